"""Retention: what leaves the store, what stays, and that the file becomes smaller."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, func, select

from service.store import retention
from service.store.database import Database
from service.store.log import Incoming, Log
from service.store.models import Attempt, AuditEvent, Block, Command, Cursor, Job, Node, Pin, Placement, RemovedBatches
from service.store.retention import DAY_SECONDS, Retention
from service.store.upkeep import Upkeep

NOW = 100 * DAY_SECONDS


@dataclass
class Bounds:
    """What is kept."""

    retention_days: float = 14.0
    retention_bytes: int = 1 << 40


def sweep(database: Database, days: float = 14.0, size_bytes: int = 1 << 40) -> retention.Swept:
    """Sweep once, now."""
    return Retention(database, Bounds(days, size_bytes), lambda: NOW).sweep()


def fill(
    database: Database, ages_days: list[float], size: int = 1_000, node: str = "gpu-0001", read: int | None = None
) -> None:
    """Store a batch of each age, and say that the log's readers have come to ``read``, or to its end."""
    log = Log(database)
    log.append(
        [
            Incoming(node, f"{node}-{n}", None, NOW - age * DAY_SECONDS, 1, bytes(size))
            for n, age in enumerate(ages_days)
        ]
    )
    with database.transaction() as session:
        for reader in ("follower", "compaction"):
            session.merge(
                Cursor(reader=reader, sequence=read if read is not None else log.read_from(0, 100_000)[-1].sequence)
            )


def ages(database: Database) -> list[float]:
    """The ages in days of the batches that are left, in the log's order."""
    return [round((NOW - one.received_at) / DAY_SECONDS, 3) for one in Log(database).read_from(0, 100_000)]


def test_old_batches_go(database: Database) -> None:
    """A batch older than retention_days goes; one that is exactly as old stays."""
    fill(database, [30.0, 15.0, 14.001, 14.0, 1.0])

    swept = sweep(database)

    assert ages(database) == [14.0, 1.0]
    assert (swept.batches, swept.bytes, swept.log_bytes) == (3, 3_000, 2_000)


def test_the_log_stays_within_its_size(database: Database) -> None:
    """Of a log that is too large the oldest batches go, and a hundredth more than needed."""
    fill(database, [10.0 - number / 200 for number in range(2_000)], size=100)

    swept = sweep(database, size_bytes=100_000)

    assert swept.batches == 1_010
    assert len(ages(database)) == 990
    assert max(ages(database)) == 4.95
    assert swept.over_bytes == 0
    assert sweep(database, size_bytes=100_000).batches == 0


def test_a_sender_that_floods_the_log_turns_over_its_own_records(database: Database) -> None:
    """The node that holds most gives first, its oldest, and as much as it takes; the others lose nothing, however old."""
    for node in ("gpu-0001", "gpu-0002", "gpu-0003"):
        fill(database, [9.0, 5.0, 1.0], node=node)
    fill(database, [0.5 - number / 1_000 for number in range(400)], node="flood")
    with database.transaction() as session:
        for node in ("gpu-0001", "flood"):
            for age in (9.0, 0.5, 0.2):
                session.add(Block(node=node, minute=int((NOW - age * DAY_SECONDS) // 60), scope="gpu", block=b"x"))

    swept = sweep(database, size_bytes=100_000)

    left = Counter(one.node for one in Log(database).read_from(0, 100_000))
    assert left == {"gpu-0001": 3, "gpu-0002": 3, "gpu-0003": 3, "flood": 90}
    assert min(age for age in ages(database)) == pytest.approx(0.101)  # its newest are left
    assert (swept.batches, swept.over_bytes) == (310, 0)
    with database.session() as session:
        blocks = Counter(session.scalars(select(Block.node)))
        removed = [(row.node, row.sequence) for row in session.scalars(select(RemovedBatches))]
    assert blocks == {"gpu-0001": 3}
    assert removed == [("flood", 9 + 310)]


def test_what_a_flood_has_pinned_is_made_up_for(database: Database) -> None:
    """Where pins keep what a node has beyond its share, the oldest of the others go: the log stays within its bound."""
    for node in ("gpu-0001", "gpu-0002"):
        fill(database, [9.0, 5.0, 1.0], node=node)
    fill(database, [0.5] * 10, node="flood")
    with database.transaction() as session:
        span = {"since": NOW - DAY_SECONDS / 2, "until": NOW}
        session.add(Pin(job=None, **span, reason="incident", by="ops", made_at=NOW))

    swept = sweep(database, size_bytes=13_000)

    assert Counter(one.node for one in Log(database).read_from(0, 100)) == {"gpu-0001": 1, "gpu-0002": 2, "flood": 10}
    assert swept.over_bytes == 0


def test_what_is_pinned_stays(database: Database) -> None:
    """A pin keeps its job's nodes' batches and blocks within its span, and lets other nodes and instants go."""
    for node in ("gpu-0001", "gpu-0002"):
        fill(database, [31.0, 30.0, 29.0, 1.0], node=node)
    with database.transaction() as session:
        span = {"since": NOW - 30.5 * DAY_SECONDS, "until": NOW - 29.5 * DAY_SECONDS}
        session.add(Pin(job="llama", **span, reason="incident 7", by="ops", made_at=NOW))
        seen = {"first_seen_at": NOW - 40 * DAY_SECONDS, "last_seen_at": NOW - 30 * DAY_SECONDS}
        session.add(Job(name="llama", **seen, declared={}))
        session.flush()
        session.add(Placement(job="llama", attempt=0, rank=0, node="gpu-0001", **seen))
        for node in ("gpu-0001", "gpu-0002"):
            for age in (31.0, 30.0, 1.0):
                session.add(Block(node=node, minute=int((NOW - age * DAY_SECONDS) // 60), scope="gpu", block=b"x"))

    swept = sweep(database)

    left = [(one.node, round((NOW - one.received_at) / DAY_SECONDS)) for one in Log(database).read_from(0, 100)]
    assert left == [("gpu-0001", 30), ("gpu-0001", 1), ("gpu-0002", 1)]
    assert swept.blocks == 3
    with database.session() as session:
        assert session.get(Job, "llama") is not None
        assert session.scalar(select(func.count()).select_from(Placement)) == 1


def test_pins_may_hold_more_than_the_bound(database: Database) -> None:
    """Where pins hold more than retention_bytes the sweep ends, keeps them, and says how far it is over."""
    fill(database, [3.0] * 700 + [2.0] * 50, size=100)
    with database.transaction() as session:
        session.add(Pin(job=None, since=0.0, until=NOW - 2.5 * DAY_SECONDS, reason="audit", by="ops", made_at=NOW))

    swept = sweep(database, size_bytes=10_000)

    assert (swept.batches, swept.log_bytes, swept.over_bytes) == (50, 70_000, 60_000)


def test_what_nobody_has_read_stays(database: Database) -> None:
    """Batches that the follower or the compaction has not come to are not deleted, however old they are."""
    fill(database, [30.0, 29.0, 28.0, 27.0], read=2)

    sweep(database)

    assert ages(database) == [28.0, 27.0]


def test_before_the_readers_have_begun_nothing_goes(database: Database) -> None:
    """A log that nobody has read keeps everything."""
    Log(database).append([Incoming("gpu-0001", "b", None, 0.0, 1, b"x")])

    assert sweep(database).batches == 0


def test_a_reader_that_has_not_begun_has_read_nothing(database: Database) -> None:
    """While the compaction has written no place the follower's alone lets nothing go."""
    fill(database, [30.0, 29.0])
    with database.transaction() as session:
        session.delete(session.get_one(Cursor, "compaction"))

    assert sweep(database).batches == 0


def test_rows_go_with_what_they_were_of(database: Database) -> None:
    """Nodes, jobs, attempts and commands of before the batches go; declared and recent ones stay, events for a year."""
    old, recent = NOW - 20 * DAY_SECONDS, NOW - DAY_SECONDS
    with database.transaction() as session:
        for name, at in (("old", old), ("recent", recent)):
            seen = {"first_seen_at": at, "last_seen_at": at}
            session.add(Node(name=name, **seen))
            session.add(Job(name=name, **seen))
            session.flush()
            session.add(Attempt(job=name, number=0, **seen))
            session.add(Placement(job=name, attempt=0, rank=0, node=name, **seen))
            session.add(Command(id=name, node=name, verb="stacks", asked_at=at, expires_at=at, asked_by="ops"))
            session.add(AuditEvent(at=at, kind=name, actor="ops"))
        session.add(Job(name="declared", first_seen_at=old, last_seen_at=old, declared={"x": 1}, declared_at=recent))
        session.add(AuditEvent(at=NOW - 366 * DAY_SECONDS, kind="ancient", actor="ops"))

    sweep(database)

    with database.session() as session:
        assert session.scalars(select(Node.name)).all() == ["recent"]
        assert session.scalars(select(Job.name).order_by(Job.name)).all() == ["declared", "recent"]
        assert session.scalars(select(Attempt.job)).all() == ["recent"]
        assert session.scalars(select(Placement.job)).all() == ["recent"]
        assert session.scalars(select(Command.id)).all() == ["recent"]
        assert session.scalars(select(AuditEvent.kind).order_by(AuditEvent.at)).all() == ["old", "recent"]


@pytest.mark.system
def test_the_file_becomes_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a sweep of 20 MB the SQLite file has given back all but its spare pages, and it is still whole."""
    monkeypatch.setattr(retention, "SPARE_BYTES", 1 << 20)
    path = tmp_path / "faulthound.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    fill(database, [30.0] * 200, size=100_000)
    fill(database, [1.0] * 5, size=100_000, node="gpu-0002")
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    before = path.stat().st_size

    sweep(database)

    with database.engine.connect() as connection:
        connection.rollback()
        checked = connection.exec_driver_sql("PRAGMA integrity_check").scalar()
    assert before > 20_000_000
    assert path.stat().st_size < 3_000_000
    assert checked == "ok"
    assert len(ages(database)) == 5
    database.close()


@pytest.mark.system
def test_a_sweep_holds_nobody_up(tmp_path: Path) -> None:
    """No transaction of a sweep deletes more than 500 batches or 16 MiB: SQLite has one writer, and the log needs it."""
    database = Database(f"sqlite:///{tmp_path / 'faulthound.db'}")
    database.migrate()
    fill(database, [30.0 - number / 1_000 for number in range(1_200)])
    fill(database, [29.0] * 4, size=9 << 20, node="gpu-0002")
    log, left = Log(database), []

    def watch(connection: Any) -> None:
        left.append(len(log.read_from(0, 10_000)))

    event.listen(database.engine, "commit", watch)
    sweep(database)
    event.remove(database.engine, "commit", watch)

    steps = [before - after for before, after in itertools.pairwise([*dict.fromkeys(left), 0])]
    assert ages(database) == []
    assert max(steps) <= retention.ROWS_AT_ONCE
    assert len(steps) >= 5
    database.close()


@pytest.mark.parametrize("failure", [OSError("disk gone"), RuntimeError("a bug")])
def test_upkeep_outlives_a_failing_chore(failure: Exception) -> None:
    """A chore that fails, of its database or of a bug, is counted; the others are done in the same round and in the next."""
    done: list[str] = []

    def fail() -> None:
        raise failure

    upkeep = Upkeep({"fails": fail, "works": lambda: done.append("works")}, every_seconds=0.05)
    upkeep.start()
    ends_at = time.monotonic() + 60
    while len(done) < 3 and time.monotonic() < ends_at:
        time.sleep(0.01)
    upkeep.close()

    assert upkeep.failures["fails"] >= 2


def test_a_long_chore_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stops the service does not wait for a sweep of hours; the chores behind it are not begun any more."""
    monkeypatch.setattr("service.store.upkeep.CLOSING_SECONDS", 0.1)
    begun, end, done = threading.Event(), threading.Event(), list[str]()

    def long() -> None:
        begun.set()
        end.wait(60)

    upkeep = Upkeep({"long": long, "next": lambda: done.append("next")})
    upkeep.start()
    assert begun.wait(60)
    upkeep.close()
    still_at_it = not end.is_set()
    end.set()

    assert (still_at_it, done) == (True, [])
