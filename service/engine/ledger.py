"""What an incident cost its job: when somebody acted, when the job moved again, and how many steps were done twice.

onset ── detected ── verdict ── acted ── first good step
(published)  │           └ of the same attempt, or of a later one
└ every rank of the attempt has ended, or a later attempt has begun
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.step_rhythm import StepRow
from analyzers.incidents.state import EngineState
from analyzers.model.incident import Incident
from service.store import incidents
from service.store.models import Downtime

MOST_WATCHED = 1_000  # downtimes that wait for a good step; the oldest are given up
WATCHED_SECONDS = 7 * 86_400.0  # a job that nobody has started again by then has ended


class Cost(Struct, frozen=True, kw_only=True):
    """A downtime that is not over, and what is known of it so far."""

    incident: str
    job: str
    attempt: int | None
    detected_at: float
    last_step: int | None = None
    acted_at: float | None = None
    first_good_at: float | None = None
    resumed_step: int | None = None
    steps_lost: int | None = None


def of(incident: Incident) -> Cost:
    """Return the cost of an incident of a job that has just been opened."""
    return Cost(
        incident=incident.id, job=incident.job or "", attempt=incident.attempt, detected_at=incident.opened_at,
        last_step=incident.last_step,
    )  # fmt: skip


def watched(session: Session, now: float) -> list[Cost]:
    """Return the downtimes that wait for a good step."""
    waiting = (Downtime.first_good_at.is_(None), Downtime.detected_at >= now - WATCHED_SECONDS)
    rows = session.scalars(select(Downtime).where(*waiting).order_by(Downtime.detected_at.desc()).limit(MOST_WATCHED))
    return [
        Cost(
            incident=row.incident, job=row.job, attempt=row.attempt, detected_at=row.detected_at,
            last_step=row.last_step, acted_at=row.acted_at,
        )
        for row in rows
    ]  # fmt: skip


def grown(costs: Iterable[Cost], state: EngineState) -> Iterator[Cost]:
    """Yield the costs of which more is known now."""
    views: dict[str, list[JobView]] = {}
    for view in state.jobs.values():
        views.setdefault(view.job, []).append(view)
    for cost in costs:
        known = _known(cost, views.get(cost.job, []))
        if known != cost:
            yield known


def write(session: Session, cost: Cost) -> None:
    """Store what is known."""
    told = {name: value for name, value in asdict(cost).items() if name not in ("incident", "job", "attempt")}
    told |= {name: incidents.bounded(told[name]) for name in ("last_step", "resumed_step", "steps_lost")}
    session.execute(update(Downtime).where(Downtime.incident == cost.incident).values(told))


def _known(cost: Cost, views: list[JobView]) -> Cost:
    later = [view for view in views if (view.attempt or 0) > (cost.attempt or 0)]
    same = [view for view in views if view.attempt == cost.attempt]
    acted = [view.first_at for view in later]
    acted += [at for view in same if (at := _ended_at(view)) is not None]
    acted = [at for at in acted if at >= cost.detected_at]
    if cost.acted_at is None and acted:
        cost = replace(cost, acted_at=min(acted))
    begun = [row for view in later if (row := _first_step(view, -math.inf)) is not None]
    if begun:
        return _moved(cost, min(begun, key=lambda row: row.at))
    if cost.acted_at is None and any(view.went_on(cost.detected_at) for view in same):
        rows = [row for view in same if (row := _first_step(view, cost.detected_at)) is not None]
        return _moved(cost, min(rows, key=lambda row: row.at)) if rows else cost
    return cost


def _moved(cost: Cost, row: StepRow) -> Cost:
    lost = None if cost.last_step is None else max(0, cost.last_step - row.step + 1)
    return replace(cost, first_good_at=row.at, resumed_step=row.step, steps_lost=lost)


def _first_step(view: JobView, after: float) -> StepRow | None:
    """Return the first step that ended after an instant, as far back as steps are remembered."""
    return next((row for row in view.rhythm.rows if row.at > after), None)


def _ended_at(view: JobView) -> float | None:
    """Return when the last rank of an attempt has ended; None while one may live."""
    size = view.world_size or len(view.ranks)
    if not size or len(view.ended) < size:
        return None
    return max(end.at for end in view.ended.values())
