"""The timeline of incidents, and the stream of all of them: entries are added in commit order and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, text
from sqlalchemy.orm import Session

from service.store.models import TimelineEntry
from service.store.schema import clean, clean_details

TIMELINE_LOCK = 0x464848  # "FHH": the number of PostgreSQL's advisory lock
LONGEST_DETAIL = 1_000


def add(
    session: Session,
    at: float,
    kind: str,
    incident: str | None,
    job: str | None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Add an entry to the transaction of the change that it reports, as its last statement.

    A reader of the stream never finds a smaller number than one that it has seen. For that PostgreSQL lets one
    transaction at a time pass from here to its commit. A transaction that locked a row only after this could deadlock
    with one that has the row and waits here.
    """
    if session.get_bind().dialect.name != "sqlite":  # which has one writer anyway
        session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": TIMELINE_LOCK})
    row = {
        "at": at, "kind": clean(kind, 32), "incident": incident, "job": job,
        "details": clean_details(details, LONGEST_DETAIL),
    }  # fmt: skip
    session.execute(insert(TimelineEntry), [row])
