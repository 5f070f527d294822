"""The timeline's numbers, on SQLite and on PostgreSQL: who reads on from the newest it has seen misses nothing."""

from __future__ import annotations

import threading
import time

from sqlalchemy import select

from service.store import timeline
from service.store.database import Database
from service.store.models import TimelineEntry


def seen(database: Database, after: int = 0) -> list[int]:
    """Return the numbers that a reader of the stream finds."""
    with database.session() as session:
        return list(session.scalars(select(TimelineEntry.sequence).where(TimelineEntry.sequence > after)))


def test_numbers_are_in_commit_order(database: Database) -> None:
    """A transaction that takes long holds up those after it: no smaller number appears behind one that was seen."""
    added = threading.Event()

    def slowly() -> None:
        with database.transaction() as session:
            timeline.add(session, 1.0, "opened", None, "slow", {})
            added.set()
            time.sleep(0.4)

    thread = threading.Thread(target=slowly)
    thread.start()
    added.wait()
    with database.transaction() as session:
        timeline.add(session, 2.0, "opened", None, "quick", {})
    newest = max(seen(database))
    before = seen(database)
    thread.join()
    missed = [number for number in seen(database) if number < newest and number not in before]

    assert missed == []
    assert len(before) == 2


def test_a_text_that_no_column_takes_is_made_fit(database: Database) -> None:
    """NUL, lone surrogates and a megabyte of text are stored as what a column holds."""
    with database.transaction() as session:
        timeline.add(session, 1.0, "asked" * 20, None, None, {"text": "a\x00b\ud800" + "c" * 2_000})

    with database.session() as session:
        (row,) = session.scalars(select(TimelineEntry)).all()
    assert row.kind == ("asked" * 20)[:32]
    assert row.details["text"].startswith("ab?c")
    assert len(row.details["text"]) <= timeline.LONGEST_DETAIL
