"""The downtime that an incident cost its job: when it was acted on, when the job moved again, how many steps were done twice.

onset ── detected ── verdict ── acted ── first good step
(published)  │           └ of the same attempt, or of a later one
└ every rank of the attempt has ended, or a later attempt has begun

A job may go on without one of its roles: then it stands since its last step at its pace, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.loss_anomalies import odd_until
from analyzers.incidents.job_views.step_rhythm import MOST_ROWS, P99_FACTOR, StepRow
from analyzers.model.incident import Incident


class Downtime(Struct, frozen=True, kw_only=True):
    """A downtime without a good step yet, and what is known of it so far."""

    incident: str
    job: str
    attempt: int | None
    kind: str = ""  # of the incident
    onset_at: float
    detected_at: float
    last_step: int | None = None
    stood_at: float | None = None  # steps went on after the onset, until then; None: they did not
    acted_at: float | None = None
    first_good_at: float | None = None
    resumed_step: int | None = None
    steps_lost: int | None = None


def begin_downtime(incident: Incident) -> Downtime:
    """Return the downtime of an incident of a job that has just been opened."""
    return Downtime(
        incident=incident.id, job=incident.job or "", attempt=incident.attempt, kind=incident.kind,
        onset_at=incident.onset_at, detected_at=incident.opened_at, last_step=incident.last_step,
    )  # fmt: skip


def update_downtimes(downtimes: Iterable[Downtime], jobs: Iterable[JobView]) -> Iterator[Downtime]:
    """Yield the downtimes of which more is known now."""
    views: dict[str, list[JobView]] = {}
    for view in jobs:
        views.setdefault(view.job, []).append(view)
    for downtime in downtimes:
        updated = _update(downtime, views.get(downtime.job, []))
        if updated != downtime:
            yield updated


def _update(downtime: Downtime, views: list[JobView]) -> Downtime:
    later = [view for view in views if (view.attempt or 0) > (downtime.attempt or 0)]
    same = [view for view in views if view.attempt == downtime.attempt]
    acted = [view.first_at for view in later]
    acted += [at for view in same if (at := _ended_at(view)) is not None]
    acted = [at for at in acted if at >= downtime.detected_at]
    if downtime.acted_at is None and acted:
        downtime = replace(downtime, acted_at=min(acted))
    stood = [at for view in same if (at := _went_on_until(view, downtime)) is not None]
    downtime = replace(downtime, stood_at=max(stood, default=downtime.stood_at))
    begun = [row for view in later if (row := _first_good_step(view, -math.inf)) is not None]
    if begun:
        return _end(downtime, min(begun, key=lambda row: row.at))
    if downtime.acted_at is None and any(view.went_on(downtime.detected_at) for view in same):
        rows = [
            row
            for view in same
            if (after := _as_before_since(view, downtime)) is not None
            and (row := _first_good_step(view, after)) is not None
        ]
        return _end(downtime, min(rows, key=lambda row: row.at)) if rows else downtime
    return downtime


def _end(downtime: Downtime, row: StepRow) -> Downtime:
    lost = None if downtime.last_step is None else max(0, downtime.last_step - row.step + 1)
    stood_at = None if downtime.stood_at is None else min(downtime.stood_at, row.at)
    return replace(downtime, stood_at=stood_at, first_good_at=row.at, resumed_step=row.step, steps_lost=lost)


def _as_before_since(view: JobView, downtime: Downtime) -> float | None:
    """Return since when a step of the same attempt may be a good one; None: the slowdown that the incident is of lasts."""
    if downtime.kind != "slow":
        return downtime.detected_at
    if view.progress.slowdown is not None:
        return None
    over = view.progress.slowdown_after(downtime.onset_at)
    return max(
        downtime.detected_at, view.progress.forgotten_at, 0.0 if over is None or over.until is None else over.until
    )


def _went_on_until(view: JobView, downtime: Downtime) -> float | None:
    """Return until when steps went on at the job's pace after the onset, at any pace where it is slow; None: they did not."""
    usual, rows, onset_at = view.rhythm.p99_seconds(), view.rhythm.rows, downtime.onset_at
    if downtime.kind == "slow" and view.newest_step_at is not None:
        return view.newest_step_at if view.newest_step_at > onset_at else None
    if usual is None or view.progress.trouble() is not None:
        return None
    before = [row for row in rows if row.at <= onset_at]
    after = [row for row in rows if row.at > max(onset_at, odd_until(rows))]
    reached = before[-1].at if before else after[0].at if after and len(rows) >= MOST_ROWS else None
    if reached is None:
        return None
    for row in after:
        if row.at - reached > P99_FACTOR * usual:
            break
        reached = row.at
    return reached if reached > onset_at else None


def _first_good_step(view: JobView, after: float) -> StepRow | None:
    """Return the first kept step that ended after an instant, with a loss and a norm as before, and so did all after it."""
    if view.progress.trouble() is not None:
        return None
    since = max(after, odd_until(view.rhythm.rows))
    return next((row for row in view.rhythm.rows if row.at > since), None)


def _ended_at(view: JobView) -> float | None:
    """Return when the last rank of an attempt has ended; None while any rank may live."""
    size = view.world_size or len(view.ranks)
    if not size or len(view.ended) < size:
        return None
    return max(end.at for end in view.ended.values())
