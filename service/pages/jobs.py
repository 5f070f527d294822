"""``/jobs``: all known jobs; ``/jobs/{job}``: one job's steps, share of time trained, incidents, attempts and places."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.api import fields
from service.api import incident_documents as documents
from service.api.job_rows import newest_jobs, newest_steps
from service.api.resources import downtime, jobs
from service.api.resources.job_progress import newest_progress
from service.api.state import service_of
from service.clock import now
from service.pages import incidents
from service.pages.missing import PageRoute
from service.pages.rendering import response
from service.pages.routes import Pause
from service.pages.stops import stops
from service.pages.visitors import Looks
from service.reports import job_lines, sparkline
from service.reports.hostlists import placed
from service.roles.directory import by_instance
from service.store.models import Incident, Job, Placement
from service.store.placements import is_newest

MOST_INCIDENTS = 20
MOST_JOBS = 500
MOST_NODES = 200
MOST_PAUSES = 8
MOST_ROLES = 200
LINE_WIDTH, LINE_HEIGHT = 480, 48

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/jobs", response_class=HTMLResponse)
def jobs_page(request: Request, visitor: Looks, pause: Pause = False) -> HTMLResponse:
    """Show the jobs that are known, by name: their state, steps and open incidents."""
    service = service_of(request)
    with service.database.session() as session:
        found, stopped = newest_jobs(service, session, MOST_JOBS), stops(session)
    return response(
        "jobs.html", "/v1/jobs", visitor=visitor, stops=stopped, goes_on=True, paused=pause, jobs=found,
        more=len(found) == MOST_JOBS,
    )  # fmt: skip


@router.get("/jobs/{job:path}", response_class=HTMLResponse)
def job_page(request: Request, visitor: Looks, job: fields.JobPath, pause: Pause = False) -> HTMLResponse:
    """Show one job; it reloads, because its steps go on."""
    service = service_of(request)
    with service.database.session() as session:
        newest = documents.query().where(Incident.job == job).order_by(Incident.opened_at.desc(), Incident.id.desc())
        found = [documents.summary(*row) for row in session.execute(newest.limit(MOST_INCIDENTS))]
        known = session.get(Job, job) is not None or not found
        document = jobs.shown(service, session, job) if known else _forgotten(job, found)
        places, stopped = _places(session, job), stops(session)
        progress = newest_progress(session, job, newest_steps(service, session, job))
        current = jobs.newest_attempt(session, job)
        ettr = downtime.ettr_of(*downtime.ledgers(session, job, now()))
    directory = service.roles.read(job)
    roles = sorted(directory.slots.values(), key=by_instance) if directory is not None else []
    recent = document.steps.recent_seconds if document.steps else ()
    twin = f"/v1/jobs/{quote(job, safe='/')}" if known else f"/v1/incidents?job={quote(job)}"
    return response(
        "job.html", twin, visitor=visitor, stops=stopped, goes_on=True, paused=pause, doc=document,
        attempt=next((one for one in document.attempts if one.number == current), None), rows=incidents.rows(found),
        is_open=any(one.status == "open" for one in found), places=places[:MOST_NODES], more=len(places) - MOST_NODES,
        progress=progress and msgspec.to_builtins(progress), lines=job_lines, ettr=ettr,
        pauses=progress.pauses[-MOST_PAUSES:] if progress else (),
        roles=msgspec.to_builtins(roles[:MOST_ROLES]), more_roles=len(roles) - MOST_ROLES,
        line=sparkline.points(recent, LINE_WIDTH, LINE_HEIGHT), width=LINE_WIDTH, height=LINE_HEIGHT,
    )  # fmt: skip


def _forgotten(job: str, found: Sequence[documents.IncidentSummary]) -> jobs.JobDocument:
    """Return a job of which only incidents are left: retention has deleted the rest."""
    first, last = min(one.opened_at for one in found), max(one.opened_at for one in found)
    return jobs.JobDocument(
        name=job, first_seen_at=first, last_seen_at=last, declared_at=None, version=0, declared=None, attempts=()
    )


def _places(session: Session, job: str) -> list[tuple[str, str, str]]:
    """Return (node, role, its ranks) of the newest attempt."""
    ranks = select(Placement.node, Placement.role, Placement.rank).where(Placement.job == job, is_newest())
    found = session.execute(ranks.where(Placement.attempt == jobs.newest_attempt(session, job)))
    return placed((node, role or "", rank) for node, role, rank in found)
