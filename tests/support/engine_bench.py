"""An engine on a database, turn by turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import delete, select, text

from analyzers.incidents.messages import Judge, Judged
from analyzers.knowledge import Knowledge
from service.engine.driver import Driver
from service.engine.judge_processes import JudgeFailure
from service.engine.numbers import Numbers
from service.store import incidents
from service.store.database import Database
from service.store.leases import HELD_SECONDS, Lease
from service.store.models import (
    Base,
    Cursor,
    TimelineEntry,
)
from tests.support.scripted_engine import Fleet, Over, conclude

KNOWLEDGE = Knowledge()
NODES = ("gpu-0001", "gpu-0002")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        """Return what it shows."""
        return self.at


class Inline:
    """Judges that judge in this process, at the next turn. ``failing`` are reported instead."""

    def __init__(self) -> None:
        self.count, self.seconds_total, self.pipes = 0, 0.0, list[int]()
        self.waiting: list[Judge] = []
        self.failing: list[JudgeFailure] = []

    def ask(self, judge: Judge) -> None:
        """Take it."""
        self.waiting.append(judge)

    def forget(self, incident: str) -> None:
        """Judge it no more."""
        self.waiting = [judge for judge in self.waiting if judge.incident != incident]

    def turn(self) -> Iterator[Judged | JudgeFailure]:
        """Judge all."""
        waiting, self.waiting = self.waiting, []
        yield from self.failing
        for judge in waiting:
            yield conclude(judge, KNOWLEDGE)


class Bench:
    """An engine on a store of its own, with a fleet and a clock."""

    def __init__(self, database: Database, over: Over) -> None:
        self.database, self.over, self.clock = database, over, Clock()
        self.fleet = Fleet(database, self.clock)
        self.judges = Inline()
        self.numbers = Numbers()
        self.begin()

    def begin(self, owner: str = "a") -> None:
        """Start an engine, as if the one before had been killed."""
        self.lease = Lease(self.database, "engine", owner, self.clock)
        if not self.lease.take():  # another's, which does not prove it any more
            self.clock.at += HELD_SECONDS
            assert self.lease.take()
        self.judges.waiting.clear()
        judges: Any = self.judges
        self.driver = Driver(self.database, self.lease, KNOWLEDGE, judges, self.numbers, self.clock)

    def turns(self, count: int, seconds: float = 1.0) -> None:
        """Let time pass, a turn each ``seconds``."""
        for _ in range(count):
            self.clock.at += seconds
            self.driver.turn()

    def hang(self, job: str = "hung", nodes: tuple[str, ...] = NODES) -> None:
        """Let a job hang, be seen and asked about, answer and be judged."""
        self.fleet.run(job, nodes)
        self.turns(3)
        self.fleet.answer(nodes)
        self.turns(3)

    def forget(self) -> None:
        """Empty the store, the log too, and begin anew, with the numbers of the log where they began."""
        with self.database.transaction() as session:
            if self.database.is_sqlite:
                for table in reversed(Base.metadata.sorted_tables):
                    session.execute(delete(table))
                session.execute(text("DELETE FROM sqlite_sequence"))
            else:
                names = ", ".join(table.name for table in Base.metadata.sorted_tables)
                session.execute(text(f"TRUNCATE {names} RESTART IDENTITY"))
        self.over.because, self.clock.at = None, Clock().at
        self.fleet = Fleet(self.database, self.clock)
        self.begin()

    def all(self, model: Any) -> list[Any]:
        """Return all rows of a table."""
        with self.database.session() as session:
            return list(session.scalars(select(model).order_by(*model.__table__.primary_key.columns)))

    def one(self, model: Any) -> Any:
        """Return the only row of a table."""
        (row,) = self.all(model)
        return row

    def place(self) -> int:
        """Return how far in the log the engine says that it is."""
        (row,) = [row for row in self.all(Cursor) if row.reader == incidents.READER]
        return int(row.sequence)

    def reported(self, *kinds: str) -> list[str]:
        """Return the kinds of what happened, in order; only these, if any are given."""
        return [row.kind for row in self.all(TimelineEntry) if not kinds or row.kind in kinds]
