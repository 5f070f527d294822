"""``GET /v1/now``: everything at a glance, the JSON twin of the first page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import Request
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from service.api import auth
from service.api import incident_documents as shown
from service.api.resources.alarms import AlarmDocument, alarm_document
from service.api.resources.nodes import REPORTING_SECONDS
from service.api.routing import Router
from service.api.state import Service, service_of
from service.clock import now
from service.store import incidents
from service.store.models import Alarm, Attempt, Incident, Job, Node, TimelineEntry
from service.store.window.steps import JobSteps

MOST_OPEN = 100
MOST_CLOSED = 10
MOST_JOBS = 200
MOST_SILENT = 50
RUNNING_SECONDS = 600.0  # a job that was seen so lately is shown
DAY_SECONDS = 86_400.0

router = Router("incidents")


class EngineDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the engine, this service's or another service's on the same store."""

    standing: Annotated[
        str, doc("This service's engine: working, standby (another service's works), silent, down, or none.")
    ]
    lag_batches: Annotated[int, doc("Numbers between its place in the log and the log's end.")]
    lag_seconds: Annotated[float, doc("How long the oldest batch that it has not seen has waited.")]


class RunningJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was seen in the last minutes."""

    name: Annotated[str, doc("Its name.")]
    attempt: Annotated[int | None, doc("Its newest attempt; null: none was seen.")]
    world_size: Annotated[int | None, doc("Ranks of that attempt; null: unknown.")]
    last_seen_at: Annotated[float, doc("When an agent last saw it, UTC seconds.")]
    incidents: Annotated[tuple[str, ...], doc("The ids of its open incidents.")]
    step: Annotated[int | None, doc("Its newest step; null: none was reported lately.")] = None
    step_at: Annotated[float | None, doc("When that was reported, UTC seconds.")] = None
    step_seconds: Annotated[float | None, doc("The median time of its recent steps; null: too few were reported.")] = (
        None
    )


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
    jobs: Annotated[tuple[RunningJob, ...], doc(f"The running jobs, by name, {MOST_JOBS} at most.")]
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
            jobs=jobs_seen(service, session, at - RUNNING_SECONDS, MOST_JOBS, [row[0] for row in open_now]),
            sight=_sight(session, at),
            alarms=tuple(map(alarm_document, alarms)),
        )


def jobs_seen(
    service: Service, session: Session, since: float, most: int, open_now: Sequence[Incident]
) -> tuple[RunningJob, ...]:
    """Return the jobs that were seen after an instant, by name: of more than ``most`` those that were seen last."""
    recent = select(Job.name, Job.last_seen_at).where(Job.last_seen_at >= since)
    rows = session.execute(recent.order_by(Job.last_seen_at.desc(), Job.name).limit(most))
    seen = {row.name: row.last_seen_at for row in rows}
    runs = select(Attempt.job, Attempt.number, Attempt.world_size).where(Attempt.job.in_(seen)).order_by(Attempt.number)
    newest = {job: (number, size) for job, number, size in session.execute(runs)}
    own: dict[str, list[str]] = {}
    for incident in open_now:
        own.setdefault(incident.job or "", []).append(incident.id)
    return tuple(
        _with_steps(
            RunningJob(
                name=name, attempt=newest.get(name, (None, None))[0], world_size=newest.get(name, (None, None))[1],
                last_seen_at=seen[name], incidents=tuple(own.get(name, ())),
            ), service.steps.find(name),
        )
        for name in sorted(seen)
    )  # fmt: skip


def _with_steps(job: RunningJob, steps: JobSteps | None) -> RunningJob:
    if steps is None:
        return job
    seen = max(job.last_seen_at, min(steps.at, now()))
    return msgspec.structs.replace(
        job, last_seen_at=seen, step=steps.step, step_at=steps.at, step_seconds=steps.median_seconds
    )


def _sight(session: Session, at: float) -> Sight:
    of_the_day = Node.last_seen_at >= at - DAY_SECONDS
    silent = (of_the_day, Node.last_seen_at < at - REPORTING_SECONDS)
    nodes, quiet = (
        session.scalar(select(func.count()).select_from(Node).where(*where)) or 0 for where in ((of_the_day,), silent)
    )
    names = select(Node.name).where(*silent).order_by(Node.last_seen_at.desc(), Node.name).limit(MOST_SILENT)
    return Sight(nodes=nodes, reporting=nodes - quiet, silent=tuple(session.scalars(names)))
