"""``GET /v1/jobs/{job}/downtime``: what its incidents cost a job, and the share of its time that it has trained."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from service.api import auth, fields, pages
from service.api.incident_documents import DowntimeDocument, downtime_document
from service.api.jobs import found
from service.api.problems import documented
from service.api.state import of
from service.clock import now
from service.store.ledger import Span, balance
from service.store.models import Attempt, Downtime, Incident

HOUR_SECONDS = 3_600.0
STILL_SECONDS = (
    180.0  # an attempt that was seen so lately runs: it is seen once a minute, and written down within another
)

router = APIRouter(tags=["jobs"])


class Ettr(BaseModel):
    """The effective training time ratio; null: the job has no time in the window."""

    cumulative: float | None = Field(description="Since the first attempt began that the store still has.")
    sliding_hour: float | None = Field(description="Of the last hour.")


class DowntimePage(pages.Page[DowntimeDocument]):
    """What incidents cost a job, the newest first, and its sums as of now."""

    as_of: float
    ettr: Ettr
    wall_seconds: float = Field(
        description="Since the first attempt began that the store still has, to the job's end or to now."
    )
    training_seconds: float = Field(description="Those of them in which an attempt ran and no incident held it up.")


@router.get(
    "/v1/jobs/{job:path}/downtime", operation_id="get_downtime", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def get_downtime(
    request: Request, job: fields.JobPath, limit: pages.Limit = 100, after: pages.After = None
) -> DowntimePage:
    """List what incidents cost a job: onset, detected, verdict, acted, first good step, steps lost; and its ETTR."""
    order = (Downtime.onset_at, Downtime.incident)
    query = select(Downtime).where(Downtime.job == job).order_by(*(column.desc() for column in order)).limit(limit + 1)
    if (last := pages.from_cursor(after, tuple[float, str])) is not None:
        query = query.where(tuple_(*order) < last)
    at = now()
    with of(request).database.session() as session:
        found(session, job)
        rows, following = pages.cut(session.scalars(query).all(), limit, lambda row: (row.onset_at, row.incident))
        attempts, downtimes = _attempts(session, job, at), _downtimes(session, job)
    whole, hour = (balance(attempts, downtimes, since, at) for since in (0.0, at - HOUR_SECONDS))
    return DowntimePage(
        items=[downtime_document(row) for row in rows], next=following, as_of=at,
        ettr=Ettr(cumulative=whole.ettr, sliding_hour=hour.ettr), wall_seconds=whole.wall_seconds,
        training_seconds=whole.training_seconds,
    )  # fmt: skip


def _attempts(session: Session, job: str, at: float) -> Sequence[Span]:
    query = select(Attempt.first_seen_at, Attempt.last_seen_at).where(Attempt.job == job)
    return [Span(since, None if at - until <= STILL_SECONDS else until) for since, until in session.execute(query)]


def _downtimes(session: Session, job: str) -> Sequence[Span]:
    """Return the spans in which the job stood: to its first good step, or to the incident's end where there came none."""
    query = select(Downtime.onset_at, Downtime.first_good_at, Incident.closed_at)
    rows = session.execute(query.join(Incident, Incident.id == Downtime.incident).where(Downtime.job == job))
    return [Span(since, closed_at if good_at is None else good_at) for since, good_at, closed_at in rows]
