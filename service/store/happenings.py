"""The timeline of incidents, and the stream of all of them: rows are added in commit order and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, text
from sqlalchemy.orm import Session

from service.store.models import Happening
from service.store.words import clean

HAPPENINGS_LOCK = 0x464848  # "FHH": the number of PostgreSQL's advisory lock
LONGEST_DETAIL = 1_000


def add(
    session: Session,
    at: float,
    kind: str,
    incident: str | None,
    job: str | None,
    details: Mapping[str, Any] | None = None,
) -> None:
    """Add one to the transaction of what it tells of, as the last thing that the transaction does.

    A reader of the stream never finds a smaller number than one that it has seen. For that PostgreSQL lets one
    transaction at a time pass from here to its commit; one that locked a row only after this could wait in a circle
    with one that has the row and waits here.
    """
    if session.get_bind().dialect.name != "sqlite":  # which has one writer anyway
        session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": HAPPENINGS_LOCK})
    told = {
        key: clean(value, LONGEST_DETAIL) if isinstance(value, str) else value for key, value in (details or {}).items()
    }
    row = {"at": at, "kind": clean(kind, 32), "incident": incident, "job": job, "details": told}
    session.execute(insert(Happening), [row])
