"""How long incidents stay, on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from analyzers.incidents.messages import Open
from analyzers.model.incident import Incident, Symptom
from service.store import incidents, timeline
from service.store.database import Database
from service.store.models import Incident as IncidentRow
from service.store.models import Pin, TimelineEntry
from service.store.retention import IncidentRetention

DAY_SECONDS = 86_400.0
NOW = 1_000 * DAY_SECONDS


def put(database: Database, id: str, age_days: float, *, closed: bool = True) -> None:
    """Store an incident of a certain age, with a line of its timeline."""
    at = NOW - age_days * DAY_SECONDS
    symptom = Symptom(kind="hang", detector="no_progress", at=at, text="no step since 12 s")
    opened = Incident(
        id=id, kind="hang", job="j", attempt=1, opened_at=at, onset_at=at, symptoms=(symptom,), after=0, nodes=("n",)
    )
    with database.transaction() as session:
        incidents.insert(session, Open(incident=opened))
        if closed:
            session.get_one(IncidentRow, id).closed_at = at
        timeline.add(session, at, "opened", id, "j", {})


def left(database: Database, column: Any) -> set[Any]:
    """Return a column of what is left."""
    with database.session() as session:
        return set(session.scalars(select(column)))


def test_records_go_before_what_is_known_of_them(database: Database) -> None:
    """After 90 days an incident's records are kept no longer, after a year it goes with all that hangs on it."""
    for id, age_days in (("young", 80.0), ("middle", 100.0), ("old", 400.0)):
        put(database, id, age_days)
    put(database, "open", 400.0, closed=False)

    IncidentRetention(database, 90.0, lambda: NOW).sweep()

    assert left(database, Pin.reason) == {"incident young"}
    assert left(database, IncidentRow.id) == {"young", "middle", "open"}
    assert left(database, TimelineEntry.incident) == {"young", "middle", "open"}


def test_pins_of_people_stay(database: Database) -> None:
    """A pin that a person made is no incident's, however old it is."""
    pin = Pin(job=None, since=0.0, until=1.0, reason="the great outage", by="ops", made_at=1.0)
    with database.transaction() as session:
        session.add(pin)

    IncidentRetention(database, 90.0, lambda: NOW).sweep()

    assert left(database, Pin.by) == {"ops"}
