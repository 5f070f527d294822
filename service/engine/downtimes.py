"""The downtimes of incidents, read from their table and written to it."""

from __future__ import annotations

from msgspec.structs import asdict
from sqlalchemy import select, update
from sqlalchemy.orm import Session

from analyzers.incidents.downtime import Downtime
from service.store import incidents
from service.store.models import Downtime as Row
from service.store.models import Incident

MOST_OPEN = 1_000  # downtimes that wait for a good step; the oldest are given up
OPEN_SECONDS = 7 * 86_400.0  # a job that was not started again by then has ended


def read_open(session: Session, now: float) -> list[Downtime]:
    """Return the downtimes that wait for a good step."""
    waiting = (Row.first_good_at.is_(None), Row.detected_at >= now - OPEN_SECONDS)
    rows = select(Row, Incident.kind).join(Incident, Incident.id == Row.incident).where(*waiting)
    return [
        Downtime(
            incident=row.incident, job=row.job, attempt=row.attempt, kind=kind, onset_at=row.onset_at,
            detected_at=row.detected_at, last_step=row.last_step, stood_at=row.stood_at, acted_at=row.acted_at,
        )
        for row, kind in session.execute(rows.order_by(Row.detected_at.desc()).limit(MOST_OPEN))
    ]  # fmt: skip


def write_downtime(session: Session, downtime: Downtime) -> None:
    """Store what is known."""
    known = ("incident", "job", "attempt", "kind", "onset_at")
    values = {name: value for name, value in asdict(downtime).items() if name not in known}
    values |= {name: incidents.bounded(values[name]) for name in ("last_step", "resumed_step", "steps_lost")}
    session.execute(update(Row).where(Row.incident == downtime.incident).values(values))
