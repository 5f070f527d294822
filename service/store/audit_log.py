"""The audit log: what was done, to what, by whom. Rows are added and, when they are old, removed; never changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from service.store.models import AuditEvent
from service.store.schema import clean, clean_details

LONGEST_DETAIL = 1_000


def record(
    session: Session, at: float, kind: str, actor: str, subject: str = "", details: dict[str, Any] | None = None
) -> None:
    """Add an event to the transaction of the change that it reports: both are stored, or neither."""
    row = {
        "at": at, "kind": kind, "actor": clean(actor, 255), "subject": clean(subject, 255),
        "details": clean_details(details, LONGEST_DETAIL),
    }  # fmt: skip
    session.execute(insert(AuditEvent), [row])


def newest(session: Session, most: int, before: int | None = None, kind: str | None = None) -> Sequence[AuditEvent]:
    """Return up to ``most`` events, the newest first; ``before``: those with a smaller number."""
    statement = select(AuditEvent).order_by(AuditEvent.sequence.desc()).limit(most)
    if before is not None:
        statement = statement.where(AuditEvent.sequence < before)
    if kind is not None:
        statement = statement.where(AuditEvent.kind == kind)
    return session.scalars(statement).all()
