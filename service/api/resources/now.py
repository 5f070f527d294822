"""``GET /v1/now``: everything at a glance, the JSON twin of the first page."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Request
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from analyzers.remediation.node_history import DAY_SECONDS
from service.api import auth
from service.api import incident_documents as shown
from service.api.job_rows import JobRow, newest_jobs
from service.api.resources.alarms import AlarmDocument, alarm_document
from service.api.resources.nodes import REPORTING_SECONDS
from service.api.routing import Router
from service.api.state import Service, service_of
from service.clock import now
from service.store import incidents
from service.store.models import Alarm, Incident, Job, Node, TimelineEntry

MOST_OPEN = 100
MOST_CLOSED = 10
MOST_JOBS = 200
MOST_SILENT = 50
SHOWN_SECONDS = 600.0  # a job that was seen so lately is shown

router = Router("incidents")


class EngineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the engine, this service's or another service's on the same store."""

    standing: Annotated[
        str, doc("This service's engine: working, standby (another service's works), silent, down, or none.")
    ]
    lag_batches: Annotated[int, doc("Numbers between its place in the log and the log's end.")]
    lag_seconds: Annotated[float, doc("How long the oldest batch that it has not seen has waited.")]


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that report. A node that does not report may be well."""

    nodes: Annotated[int, doc("Nodes that reported in the last day.")]
    reporting: Annotated[int, doc("Nodes that reported in the last minute.")]
    silent: Annotated[
        tuple[str, ...], doc(f"The others, {MOST_SILENT} at most, the one that reported last comes first.")
    ]


class NowDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Everything at a glance."""

    at: Annotated[float, doc("The instant of it, UTC seconds.")]
    stream_after: Annotated[int, doc("Send it to /v1/stream as `after`: no event lies between the two.")]
    engine: Annotated[EngineDocument, doc("The state of the engine.")]
    open: Annotated[int, doc("How many incidents are open.")]
    incidents: Annotated[
        tuple[shown.IncidentSummary, ...], doc(f"The open incidents, the newest first, {MOST_OPEN} at most.")
    ]
    closed: Annotated[tuple[shown.IncidentSummary, ...], doc(f"The {MOST_CLOSED} that were closed last.")]
    jobs: Annotated[tuple[JobRow, ...], doc(f"The jobs seen in the last minutes, by name, {MOST_JOBS} at most.")]
    sight: Annotated[Sight, doc("The nodes that report.")]
    alarms: Annotated[tuple[AlarmDocument, ...], doc("The raised alarms, the newest first.")]


@router.get("/v1/now", dependencies=[auth.READ])
def get_now(request: Request) -> NowDocument:
    """Get everything at a glance: open incidents, running jobs, reporting nodes, and the state of the engine."""
    return document(service_of(request))


def document(service: Service) -> NowDocument:
    """Return everything at a glance, of one moment."""
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
            stream_after=session.scalar(select(func.max(TimelineEntry.sequence))) or 0,
            engine=EngineDocument(standing=standing, lag_batches=lag.batches, lag_seconds=lag.seconds),
            open=session.scalar(select(func.count()).select_from(Incident).where(going_on)) or 0,
            incidents=tuple(shown.summary(*row) for row in open_now),
            closed=tuple(shown.summary(*row) for row in last),
            jobs=newest_jobs(service, session, MOST_JOBS, Job.last_seen_at >= at - SHOWN_SECONDS),
            sight=_sight(session, at),
            alarms=tuple(map(alarm_document, alarms)),
        )


def _sight(session: Session, at: float) -> Sight:
    of_the_day = Node.last_seen_at >= at - DAY_SECONDS
    silent = (of_the_day, Node.last_seen_at < at - REPORTING_SECONDS)
    nodes, quiet = (
        session.scalar(select(func.count()).select_from(Node).where(*where)) or 0 for where in ((of_the_day,), silent)
    )
    names = select(Node.name).where(*silent).order_by(Node.last_seen_at.desc(), Node.name).limit(MOST_SILENT)
    return Sight(nodes=nodes, reporting=nodes - quiet, silent=tuple(session.scalars(names)))
