"""``GET /v1/now``: everything at a glance, the JSON twin of the first page."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.api import auth
from service.api import incident_documents as shown
from service.api.alarms import AlarmDocument, alarm_document
from service.api.problems import documented
from service.api.state import Service, of
from service.clock import now
from service.store import incidents
from service.store.models import Alarm, Attempt, Happening, Incident, Job, Node

MOST_OPEN = 100
MOST_CLOSED = 10
MOST_JOBS = 200
MOST_SILENT = 50
RUNNING_SECONDS = 600.0  # a job that was seen so lately is shown
REPORTING_SECONDS = 60.0  # a node that was seen so lately reports; agents ship every ten seconds
DAY_SECONDS = 86_400.0

router = APIRouter(tags=["incidents"])


class EngineDocument(BaseModel):
    """How the engine stands, this service's or another one's on the same store."""

    standing: str = Field(
        description="Of this service's engine: working, standby (another service's works), silent, down, or none."
    )
    lag_batches: int = Field(description="Numbers between its place in the log and the log's end.")
    lag_seconds: float = Field(description="That the oldest batch it has not seen has waited.")


class RunningJob(BaseModel):
    """A job that was seen in the last minutes."""

    name: str
    attempt: int | None
    world_size: int | None
    last_seen_at: float
    incidents: list[str] = Field(description="The ids of its open incidents.")


class Sight(BaseModel):
    """Who reports. Silence is no verdict: a node that does not report may be well."""

    nodes: int = Field(description="That reported in the last day.")
    reporting: int = Field(description="That reported in the last minute.")
    silent: list[str] = Field(description=f"Those that did not, {MOST_SILENT} at most, the longest silent last.")


class NowDocument(BaseModel):
    """What is going on."""

    at: float
    stream_after: int = Field(description="Give it to /v1/stream as `after`: nothing lies between the two.")
    engine: EngineDocument
    open: int = Field(description="How many incidents are open.")
    incidents: list[shown.IncidentSummary] = Field(description=f"The open ones, the newest first, {MOST_OPEN} at most.")
    closed: list[shown.IncidentSummary] = Field(description=f"The {MOST_CLOSED} that were closed last.")
    jobs: list[RunningJob] = Field(description=f"The jobs that run, by name, {MOST_JOBS} at most.")
    sight: Sight
    alarms: list[AlarmDocument] = Field(description="Those that go on, the newest first.")


@router.get("/v1/now", operation_id="get_now", dependencies=[auth.READ], responses=documented())
def get_now(request: Request) -> NowDocument:
    """Get everything at a glance: open incidents, the jobs that run, who reports, and how the engine stands."""
    return document(of(request))


def document(service: Service) -> NowDocument:
    """Return what is going on, of one moment."""
    at = now()
    with service.database.session() as session:
        lag = incidents.lag(session, at)
        standing = service.engine.standing if service.engine is not None else "none"
        newest = (Incident.opened_at.desc(), Incident.id.desc())
        going_on, closed = Incident.closed_at.is_(None), Incident.closed_at.is_not(None)
        open_now = session.execute(shown.query().where(going_on).order_by(*newest).limit(MOST_OPEN)).all()
        last = session.execute(
            shown.query().where(closed).order_by(Incident.closed_at.desc(), Incident.id).limit(MOST_CLOSED)
        ).all()
        alarms = session.scalars(
            select(Alarm).where(Alarm.over_at.is_(None)).order_by(Alarm.id.desc()).limit(MOST_OPEN)
        )
        return NowDocument(
            at=at,
            stream_after=session.scalar(select(func.max(Happening.sequence))) or 0,
            engine=EngineDocument(standing=standing, lag_batches=lag.batches, lag_seconds=lag.seconds),
            open=session.scalar(select(func.count()).select_from(Incident).where(going_on)) or 0,
            incidents=[shown.summary(*row) for row in open_now],
            closed=[shown.summary(*row) for row in last],
            jobs=_jobs(session, at, [row[0] for row in open_now]),
            sight=_sight(session, at),
            alarms=[alarm_document(row) for row in alarms],
        )


def _jobs(session: Session, at: float, open_now: Sequence[Incident]) -> list[RunningJob]:
    recent = select(Job.name, Job.last_seen_at).where(Job.last_seen_at >= at - RUNNING_SECONDS)
    rows = session.execute(recent.order_by(Job.last_seen_at.desc()).limit(MOST_JOBS))
    seen = {row.name: row.last_seen_at for row in rows}
    runs = select(Attempt.job, Attempt.number, Attempt.world_size).where(Attempt.job.in_(seen)).order_by(Attempt.number)
    newest = {job: (number, size) for job, number, size in session.execute(runs)}
    own: dict[str, list[str]] = {}
    for incident in open_now:
        own.setdefault(incident.job or "", []).append(incident.id)
    return [
        RunningJob(
            name=name, attempt=newest.get(name, (None, None))[0], world_size=newest.get(name, (None, None))[1],
            last_seen_at=seen[name], incidents=own.get(name, []),
        )
        for name in sorted(seen)
    ]  # fmt: skip


def _sight(session: Session, at: float) -> Sight:
    of_the_day = Node.last_seen_at >= at - DAY_SECONDS
    silent = (of_the_day, Node.last_seen_at < at - REPORTING_SECONDS)
    nodes, quiet = (
        session.scalar(select(func.count()).select_from(Node).where(*where)) or 0 for where in ((of_the_day,), silent)
    )
    names = select(Node.name).where(*silent).order_by(Node.last_seen_at.desc(), Node.name).limit(MOST_SILENT)
    return Sight(nodes=nodes, reporting=nodes - quiet, silent=list(session.scalars(names)))
