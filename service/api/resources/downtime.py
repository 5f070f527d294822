"""``GET /v1/jobs/{job}/downtime``: what its incidents cost a job, and the share of its time that it has trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec
from fastapi import Request
from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from analyzers.remediation.node_history import HOUR_SECONDS
from analyzers.remediation.types import UNDER_WAY
from service.api import auth, fields, paging
from service.api.incident_documents import DowntimeDocument, downtime_document
from service.api.job_rows import RUNNING_SECONDS
from service.api.problems import documented
from service.api.resources.jobs import found
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.remediation.rows import parse_row
from service.store.models import Attempt, Downtime, Incident, Progress, Remediation
from service.store.training_time import Span, TrainingTime, measure

router = Router("jobs")


class Ettr(msgspec.Struct, frozen=True, kw_only=True):
    """The effective training time ratio; null: the job has no time in the window, or has not taken a step yet."""

    cumulative: Annotated[float | None, doc("Since the beginning of the first attempt that the store still has.")]
    sliding_hour: Annotated[float | None, doc("Of the last hour.")]
    cumulative_partial: Annotated[
        float | None,
        doc(
            "`cumulative`, with the time of each restart of one role counted by the share of the machines whose rollouts "
            "go on (`at_work` of `role_restart`); without such restarts the same."
        ),
    ] = None
    sliding_hour_partial: Annotated[float | None, doc("The same of the last hour.")] = None


class DowntimePage(paging.Page[DowntimeDocument], frozen=True, kw_only=True):
    """What incidents cost a job, the newest first, and its sums as of now."""

    as_of: Annotated[float, doc("The instant of the sums, UTC seconds.")]
    ettr: Annotated[Ettr, doc("The share of its time that the job has trained.")]
    wall_seconds: Annotated[
        float, doc("From the beginning of the first attempt that the store still has to the job's end, or to now.")
    ]
    training_seconds: Annotated[float, doc("Those of them in which an attempt ran and no incident stopped it.")]
    partial_seconds: Annotated[
        float, doc("Of the others, what restarts of one role count by their machines at work.")
    ] = 0.0


@router.get(
    "/v1/jobs/{job:path}/downtime", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def get_downtime(
    request: Request, job: fields.JobPath, limit: paging.Limit = 100, after: paging.After = None
) -> DowntimePage:
    """List what incidents cost a job: onset, detected, verdict, acted, first good step, steps lost; and its ETTR."""
    order = (Downtime.onset_at, Downtime.incident)
    query = select(Downtime).where(Downtime.job == job).order_by(*(column.desc() for column in order)).limit(limit + 1)
    if (last := paging.from_cursor(after, tuple[float, str])) is not None:
        query = query.where(tuple_(*order) < last)
    at = now()
    with service_of(request).database.session() as session:
        found(session, job)
        rows, following = paging.cut(session.scalars(query).all(), limit, lambda row: (row.onset_at, row.incident))
        whole, hour = ledgers(session, job, at)
    return DowntimePage(
        items=tuple(map(downtime_document, rows)), next=following, as_of=at, ettr=ettr_of(whole, hour),
        wall_seconds=whole.wall_seconds, training_seconds=whole.training_seconds, partial_seconds=whole.partial_seconds,
    )  # fmt: skip


def ledgers(session: Session, job: str, at: float) -> tuple[TrainingTime, TrainingTime]:
    """Return how much of its time a job has trained: of all of it, and of the last hour. Before its first step it has no time."""
    known = session.scalars(select(Progress).where(Progress.job == job)).all()
    if known and all(row.document.get("progress", {}).get("step") is None for row in known):
        return measure([], [], 0.0, at), measure([], [], at - HOUR_SECONDS, at)
    downtimes, partial = _downtimes(session, job), _partial(session, job)
    attempts = _attempts(session, job, [stood.since for stood in downtimes], known, at)
    return measure(attempts, downtimes, 0.0, at, partial), measure(attempts, downtimes, at - HOUR_SECONDS, at, partial)


def ettr_of(whole: TrainingTime, hour: TrainingTime) -> Ettr:
    """Return the ratios of two ledgers."""
    return Ettr(
        cumulative=whole.ettr, sliding_hour=hour.ettr, cumulative_partial=whole.partial_ettr,
        sliding_hour_partial=hour.partial_ettr,
    )  # fmt: skip


def _attempts(
    session: Session, job: str, onsets: Sequence[float], known: Iterable[Progress], at: float
) -> Sequence[Span]:
    """Return the spans in which attempts ran: until each was last seen, and at least until an incident stopped it.

    An attempt is seen once a minute; one that ends sooner was seen at its beginning alone. One whose processes have all ended
    ran until then, however lately it was seen. ``known``: what the engine knows of the attempts.
    """
    over = {max(row.attempt, 0): (row.document.get("ended_at"), row.at) for row in known}
    query = select(Attempt.first_seen_at, Attempt.last_seen_at, Attempt.number).where(Attempt.job == job)
    seen = session.execute(query.order_by(Attempt.first_seen_at)).all()
    found = []
    for place, (since, last, number) in enumerate(seen):
        following = seen[place + 1].first_seen_at if place + 1 < len(seen) else at
        until = max([last, *(onset for onset in onsets if since <= onset <= following)])
        ended_at, stated_at = over.get(number, (None, at))
        if ended_at is not None and last <= stated_at:
            found.append(Span(since, max(since, min(ended_at, at))))
        else:
            found.append(Span(since, None if at - last <= RUNNING_SECONDS else until))
    return found


def _downtimes(session: Session, job: str) -> Sequence[Span]:
    """Return the spans in which the job stood: to its first good step, or to the incident's end where there came none.

    Where one role failed and steps went on, it stands since the last of them.
    """
    query = select(func.coalesce(Downtime.stood_at, Downtime.onset_at), Downtime.first_good_at, Incident.closed_at)
    rows = session.execute(query.join(Incident, Incident.id == Downtime.incident).where(Downtime.job == job))
    return [Span(since, closed_at if good_at is None else good_at) for since, good_at, closed_at in rows]


def _partial(session: Session, job: str) -> list[tuple[Span, float]]:
    """Return the restarts of one role, from their beginning until their outcome was seen, each with its share at work."""
    found = session.scalars(select(Remediation).where(Remediation.job == job, Remediation.kind == "restart_role"))
    known = [one for row in found if (one := parse_row(row)) is not None and one.role_restart is not None]
    return [
        (Span(one.began_at, None if one.status in UNDER_WAY else one.changed_at), one.role_restart.at_work)
        for one in known
        if one.began_at is not None and one.role_restart is not None and one.role_restart.at_work is not None
    ]
