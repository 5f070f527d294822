"""The pages' addresses: ``/`` and ``/incidents/{id}``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.verdict import Verdict
from service.api import auth, fields
from service.api import incident_documents as documents
from service.api import now as current
from service.api.problems import Problem
from service.api.state import of
from service.pages.rendering import response
from service.store.models import Happening
from service.store.models import Verdict as VerdictRow
from service.telling import history, html
from service.telling.hostlists import fold_hosts

MOST_HAPPENINGS = 500

router = APIRouter(include_in_schema=False)
Pause = Annotated[bool, Query(description="Do not look again.")]
Version = Annotated[int | None, Query(ge=1, lt=1 << 31, description="Of the verdict; the newest, if left out.")]


@router.get("/", dependencies=[auth.PAGE], response_class=HTMLResponse)
def now_page(request: Request, pause: Pause = False) -> HTMLResponse:
    """Show what goes on: open incidents, jobs, what is not seen, and how the engine stands."""
    document = current.document(of(request))
    return response(
        "now.html",
        "/v1/now",
        goes_on=True,
        paused=pause,
        doc=document,
        open_rows=_rows(document.incidents),
        closed_rows=_rows(document.closed),
        silent=fold_hosts(document.sight.silent),
    )


def _rows(
    incidents: Sequence[documents.IncidentSummary],
) -> list[tuple[documents.IncidentSummary, history.Said | None]]:
    return [(one, history.of_summary(one.verdict.model_dump()) if one.verdict else None) for one in incidents]


@router.get("/incidents/{id}", dependencies=[auth.PAGE], response_class=HTMLResponse)
def incident_page(request: Request, id: fields.IdPath, version: Version = None, pause: Pause = False) -> HTMLResponse:
    """Show one incident: its verdict, how it changed, what happened, and what people say."""
    with of(request).database.session() as session:
        row = documents.found(session, id)
        incident = documents.document(session, row)
        number = row.verdict_version if version is None else version
        verdict = _verdict(session, id, number) if number else None
        timeline = _timeline(session, id)
    versions = [one.model_dump() for one in reversed(incident.versions)]
    return response(
        "incident.html",
        f"/v1/incidents/{id}",
        goes_on=incident.status == "open" and version is None,
        paused=pause,
        incident=incident,
        merged=incident.merged_into is not None,
        shown_version=number,
        columns=history.COLUMNS,
        versions=list(history.lines(map(history.of_summary, versions))),
        timeline=timeline[:MOST_HAPPENINGS],
        timeline_is_cut=len(timeline) > MOST_HAPPENINGS,
        instants=_instants(incident.downtime),
        **_shown(verdict),
    )


def _shown(verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {"v": None, "tone": "open", "title": "no verdict yet"}
    shown = html.shown(verdict)
    return {**shown, "title": str(shown["headlines"][0])}


def _verdict(session: Session, id: str, version: int) -> Verdict:
    row = session.get(VerdictRow, (id, version))
    if row is None:
        raise Problem("not-found", f"incident {id} has no version {version}: its page lists what was published")
    return msgspec.json.decode(row.document, type=Verdict)


def _timeline(session: Session, id: str) -> Sequence[documents.HappeningDocument]:
    found = select(Happening).where(Happening.incident == id).order_by(Happening.sequence).limit(MOST_HAPPENINGS + 1)
    return [documents.happening_document(row) for row in session.scalars(found)]


def _instants(downtime: documents.DowntimeDocument | None) -> list[tuple[str, float | None]]:
    if downtime is None:
        return []
    return [
        ("first sign", downtime.onset_at),
        ("detected", downtime.detected_at),
        ("first verdict", downtime.verdict_at),
        ("acted upon", downtime.acted_at),
        ("first good step", downtime.first_good_at),
    ]
