"""The page of one incident: its verdict and versions, remediations, timeline and feedback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.model.verdict import Verdict
from analyzers.remediation.types import ENDED
from service.api import incident_documents as documents
from service.api.problems import Problem
from service.api.state import Service
from service.clock import now
from service.pages import proposals
from service.pages.rendering import response
from service.pages.stops import stops
from service.pages.visitors import Visitor
from service.reports import history, html
from service.reports.text import PAST
from service.store.models import TimelineEntry
from service.store.models import Verdict as VerdictRow

MOST_HAPPENINGS = 500


def page(
    service: Service, visitor: Visitor, id: str, version: int | None = None, *, paused: bool = False, notice: str = "",
    status: int = 200,
) -> HTMLResponse:  # fmt: skip
    """Return the page. ``notice``: what came of a form that was sent from it; it stands first."""
    with service.database.session() as session:
        row = documents.found(session, id)
        incident = documents.document(session, row)
        number = row.verdict_version if version is None else version
        verdict = _verdict(session, id, number) if number else None
        timeline = _timeline(session, id)
        remedies = proposals.of_incident(service, session, now(), id)
        stopped = stops(session)
    known = msgspec.to_builtins(incident)
    versions = history.versions_of(known, known["versions"])
    planned = incident.remediation if version is None else None
    acting = next((one for one in remedies if one.plan["id"] == planned), None)
    # A reload would lose a reason that is being written.
    asks = visitor.signed_in and any(one.choices for one in remedies)
    return response(
        "incident.html", f"/v1/incidents/{id}", visitor=visitor, stops=stopped, status=status, notice=notice,
        goes_on=incident.status == "open" and version is None and not asks, paused=paused, asks=asks, incident=incident,
        merged=incident.merged_into is not None, shown_version=number, columns=history.COLUMNS,
        versions=list(history.lines(versions)), timeline=timeline[:MOST_HAPPENINGS],
        acting=acting, waits=acting is not None and acting.plan["status"] not in ENDED, past=PAST,
        timeline_is_cut=len(timeline) > MOST_HAPPENINGS, instants=_instants(incident.downtime), remedies=remedies,
        **_shown(verdict, incident.status),
    )  # fmt: skip


def rows(
    incidents: Iterable[documents.IncidentSummary],
) -> list[tuple[documents.IncidentSummary, history.VersionLine | None]]:
    """Return incidents with their newest verdicts, as a table has them."""
    return [(one, history.of_incident(msgspec.to_builtins(one))) for one in incidents]


def _shown(verdict: Verdict | None, status: str) -> dict[str, Any]:
    if verdict is None:
        return {
            "v": None,
            "tone": "open",
            "title": "no verdict yet" if status == "open" else "closed without a verdict",
        }
    shown = html.shown(verdict)
    return {**shown, "title": str(shown["headlines"][0])}


def _verdict(session: Session, id: str, version: int) -> Verdict:
    row = session.get(VerdictRow, (id, version))
    if row is None:
        raise Problem("not-found", f"incident {id} has no version {version}: its page lists what was published")
    return msgspec.json.decode(row.document, type=Verdict)


def _timeline(session: Session, id: str) -> Sequence[documents.TimelineEntryDocument]:
    found = (
        select(TimelineEntry)
        .where(TimelineEntry.incident == id)
        .order_by(TimelineEntry.sequence)
        .limit(MOST_HAPPENINGS + 1)
    )
    return [documents.timeline_entry_document(row) for row in session.scalars(found)]


def _instants(downtime: documents.DowntimeDocument | None) -> list[tuple[str, float | None]]:
    if downtime is None:
        return []
    return [
        ("first sign", downtime.onset_at),
        ("detected", downtime.detected_at),
        ("first verdict", downtime.verdict_at),
        ("attempt ended or restarted", downtime.acted_at),
        ("first good step", downtime.first_good_at),
    ]
