"""Remediations in a database, and what they report."""

from __future__ import annotations

from sqlalchemy import select

from analyzers.remediation.messages import (
    Approve,
    Proposed,
)
from service.store.database import Database
from service.store.models import AuditEvent, TimelineEntry
from tests.support.incident_rows import AT
from tests.support.remediation_fleet import ID, INCIDENT, plan

NOW = AT + 20.0
PROPOSED = Proposed(incident=INCIDENT, plan=plan())
APPROVED = (PROPOSED, Approve(id=ID, by="ann"))


def reported(database: Database) -> tuple[list[str], list[tuple[str | None, str]]]:
    """Return the kinds of the audit log, and of the stream with the incident of each."""
    with database.session() as session:
        audit = session.scalars(select(AuditEvent.kind).order_by(AuditEvent.sequence)).all()
        stream = session.execute(
            select(TimelineEntry.incident, TimelineEntry.kind).order_by(TimelineEntry.sequence)
        ).all()
    seeded = ("opened", "published")
    return list(audit), [(row.incident, row.kind) for row in stream if row.kind not in seeded]
