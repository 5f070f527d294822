"""What stops the follower, and what does not: poison, deleted rows, wrong clocks, a database that is down, kills."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Sequence

import pytest
from sqlalchemy import delete, func, select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from collectors.records import CollectorReport, CommandResult, Coverage, Device, Members, Placement, Record
from service.store.database import Database
from service.store.follower import MOST_TRIES, Follower
from service.store.log import Incoming, Log, Stored
from service.store.models import Attempt, AuditEvent, Cursor, Job, Node
from service.store.models import Placement as PlacementRow
from tests.support.followed_log import drain, placed, send
from tests.support.store_writer import follow_until_killed


class Heard:
    """A consumer that keeps what it is given, and fails as it is asked to."""

    def __init__(self, *failures: Exception) -> None:
        self.sequences: list[int] = []
        self.resumed: list[tuple[int, float]] = []
        self.failures = list(failures)

    def add(self, stored: Stored, records: Sequence[Record]) -> None:
        """Take up one batch, or fail."""
        if self.failures:
            raise self.failures.pop(0)
        self.sequences.append(stored.sequence)

    def resume(self, log: Log, until_sequence: int, since: float, now: float) -> None:
        """Note from where."""
        self.resumed.append((until_sequence, since))


def test_poison_is_skipped_and_told(database: Database) -> None:
    """A batch that cannot be decoded is passed over, counted and in the audit log; those around it are derived."""
    log, follower = Log(database), Follower(database, Log(database))
    send(log, 1, [placed([0], "gpu-0001")])
    log.append([Incoming("gpu-0001", "b2", None, 1_000.0, 1, b"FHBLOCK\x01 and then noise, noise, noise")])
    send(log, 3, [placed([1], "gpu-0001")])
    drain(follower)

    with database.session() as session:
        event = session.scalars(select(AuditEvent)).one()
        ranks = session.scalar(select(func.count()).select_from(PlacementRow))

    assert (event.kind, event.actor, event.details["sequence"]) == ("batch_undecodable", "agent@gpu-0001", 2)
    assert (follower.counts.undecodable_batches, ranks, follower.sequence) == (1, 2, 3)


def test_a_batch_that_cannot_be_derived_stops_nobody(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose records break the derivation is left out alone, however many it came with."""
    log, follower = Log(database), Follower(database, Log(database))
    note = follower.observations.note

    def breaking(session: Session, batch: Stored, records: Sequence[Record]) -> None:
        note(session, batch, records)
        if batch.node == "gpu-0002":
            raise TypeError("a rule that nobody thought of")

    monkeypatch.setattr(follower.observations, "note", breaking)
    send(log, 1, [placed([0], "gpu-0001")])
    send(log, 2, [placed([2], "gpu-0002")], node="gpu-0002")
    send(log, 3, [placed([1], "gpu-0001")])
    drain(follower)

    with database.session() as session:
        kinds = session.scalars(select(AuditEvent.kind)).all()
        ranks = session.scalars(select(PlacementRow.rank).order_by(PlacementRow.rank)).all()

    assert (kinds, ranks, follower.counts.underivable_batches) == (["batch_underivable"], [0, 1], 1)


def test_a_batch_that_the_database_never_takes_is_passed_over(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure that looks like the database's own holds the log up only while other writes fail too."""
    log, follower = Log(database), Follower(database, Log(database))
    note = follower.observations.note

    def breaking(session: Session, batch: Stored, records: Sequence[Record]) -> None:
        note(session, batch, records)
        if batch.node == "gpu-0002":
            raise OperationalError("INSERT", {}, Exception("index row size 2712 exceeds maximum 2704"))

    monkeypatch.setattr(follower.observations, "note", breaking)
    send(log, 1, [placed([0], "gpu-0001")])
    send(log, 2, [placed([2], "gpu-0002")], node="gpu-0002")
    send(log, 3, [placed([1], "gpu-0001")])
    for _ in range(MOST_TRIES):
        with pytest.raises(OperationalError):
            follower.turn()
    drain(follower)

    with database.session() as session:
        ranks = session.scalars(select(PlacementRow.rank).order_by(PlacementRow.rank)).all()
    assert (ranks, follower.counts.underivable_batches, follower.sequence) == ([0, 1], 1, 3)


def test_a_row_that_was_taken_away_is_written_again(database: Database) -> None:
    """A job that retention deleted while the follower remembers it is there again with its next run, and nothing is left out."""
    log, follower = Log(database), Follower(database, Log(database))
    send(log, 1, [placed([0], "gpu-0001")])
    drain(follower)
    with database.transaction() as session:
        session.execute(delete(Job))
    send(log, 2, [placed([0], "gpu-0001", attempt=1)], at=1_001.0)
    drain(follower)

    with database.session() as session:
        numbers = session.scalars(select(Attempt.number)).all()

    assert (numbers, follower.counts.underivable_batches) == ([1], 0)


def test_a_clock_that_was_ahead_is_forgiven(database: Database) -> None:
    """An account dated a year ahead is replaced by the next one, and one that a spool brings late replaces none."""
    log, follower = Log(database), Follower(database, Log(database))
    for number, at in enumerate((1_000.0 + 3e7, 1_001.0, 990.0)):
        send(log, number, [Coverage(at=at, spooled_batches=number)], at=1_000.0 + number)
    drain(follower)

    with database.session() as session:
        assert session.scalars(select(Node)).one().coverage["at"] == 1_001.0


def test_a_device_without_measure_is_left_out(database: Database) -> None:
    """A device of more than 4 KiB is not kept: of a thousand such a node's row would be larger than a database takes."""
    log, follower = Log(database), Follower(database, Log(database))
    sizes = {"fits": 1_950, "endless": 2_050}
    attributes = {id: {"x": "y" * size, "z": "y" * size} for id, size in sizes.items()}
    send(log, 1, [Device(type="gpu", id=id, attributes=attributes[id]) for id in sizes])
    drain(follower)

    with database.session() as session:
        assert list(session.scalars(select(Node)).one().devices) == ["fits"]
    assert follower.observations.left_out == 1


@pytest.mark.parametrize(
    "record",
    [
        Placement(job="a\x00b" * 200, attempt=-5, ranks=Members.of([-1, 2**31 - 1]), pids=(2**40, -1), world_size=2**62),
        Placement(job="x", ranks=Members.of(range(100_000))),
        Placement(job="x", ranks=Members.of([1]), roles=("r\x00" * 500,), devices=("d" * 5_000,), local_ranks=(2**33,)),
        Coverage(agent_version="v" * 900, boot_id="\x00" * 90, collectors=(CollectorReport(name="n", seconds=float("nan")),)),
        Coverage(at=float("nan"), collectors=(CollectorReport(name="x" * 1_000_000),)),
        Device(type="gpu", id="i" * 100_000, attributes={"a\x00": "\x00"}),
        CommandResult(command="c" * 5_000, text="\x00" * 9_000),
        Placement(job="", ranks=Members.of([1])),
        Placement(job="x", at=float("inf"), ranks=Members.of([1])),
    ],
)  # fmt: skip
def test_hostile_values_fit_or_are_left_out(database: Database, record: Record) -> None:
    """Numbers past a column, NUL, NaN and endless texts are derived or left out, and never stop the follower."""
    log, follower = Log(database), Follower(database, Log(database))
    send(log, 1, [record])
    send(log, 2, [placed([0], "gpu-0001", job="after")], at=1_001.0)
    drain(follower)

    with database.session() as session:
        assert session.get(Job, "after") is not None
        assert follower.counts.underivable_batches == 0


def test_a_consumer_that_cannot_resume_stops_nobody(database: Database) -> None:
    """A consumer that breaks while it takes up its past is reported, and hears what comes."""

    class Broken(Heard):
        def resume(self, log: Log, until_sequence: int, since: float, now: float) -> None:
            raise ValueError("bug")

    log, broken = Log(database), Broken()
    follower = Follower(database, log, [broken])
    follower.start()
    send(log, 1, [placed([0], "gpu-0001")])
    follower.wake()
    ends_at = time.monotonic() + 60
    while not broken.sequences and time.monotonic() < ends_at:
        time.sleep(0.01)
    follower.close()

    assert (broken.sequences, follower.counts.consumer_failures) == ([1], 1)


def test_consumers_hear_every_batch_once(database: Database) -> None:
    """A consumer whose database failed gets the same batch again; one that raises anything else misses that batch."""
    log = Log(database)
    waits, breaks = Heard(OperationalError("", {}, Exception("gone"))), Heard(ValueError("bug"))
    follower = Follower(database, log, [breaks, waits])
    for number in range(3):
        send(log, number, [])

    with pytest.raises(OperationalError):
        follower.turn()
    drain(follower)

    assert waits.sequences == [1, 2, 3]
    assert follower.counts.consumer_failures == 1
    assert breaks.sequences == [2, 3]


@pytest.mark.system
def test_kills_neither_repeat_nor_skip_a_batch(database: Database, url: str) -> None:
    """A follower that is killed ten times has derived every batch, and reported each poisonous one exactly once."""
    log = Log(database)
    for number in range(400):
        if number % 10:
            send(log, number, [placed([number], f"gpu-{number % 7:04}", world_size=400)], f"gpu-{number % 7:04}")
        else:
            log.append([Incoming("gpu-0001", f"b{number}", None, 1_000.0, 1, b"noise")])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.support.store_writer", "sqlalchemy.dialects.sqlite", "psycopg"])
    lots = random.Random(11)
    kills = 0
    while True:
        hears, tells = context.Pipe(duplex=False)
        process = context.Process(target=follow_until_killed, args=(url, tells), daemon=True)
        process.start()
        tells.close()
        until = lots.randrange(1, 12) if kills < 10 else 10_000
        try:
            for _ in range(until):
                hears.recv()
        except EOFError:
            break
        process.kill()
        process.join()
        kills += 1

    with database.session() as session:
        reported = session.scalars(select(AuditEvent)).all()
        ranks = session.scalars(select(PlacementRow.rank).order_by(PlacementRow.rank)).all()
        cursor = session.get_one(Cursor, "follower").sequence
    assert kills == 10
    assert sorted(event.details["batch"] for event in reported) == sorted(f"b{number}" for number in range(0, 400, 10))
    assert ranks == [number for number in range(400) if number % 10]
    assert cursor == log.read_from(399, 10)[-1].sequence


@pytest.mark.system
def test_the_thread_outlives_its_database(url: str) -> None:
    """A follower whose tables are not there yet waits, says how far behind it is, and goes on once they are."""
    database = Database(url)
    heard = Heard()
    follower = Follower(database, Log(database), [heard], window_seconds=60.0, clock=lambda: 2_000.0)
    follower.start()
    time.sleep(0.3)
    database.migrate()
    send(Log(database), 1, [placed([0], "gpu-0001")], at=1_990.0)
    follower.wake()
    ends_at = time.monotonic() + 60
    while not heard.sequences and time.monotonic() < ends_at:
        time.sleep(0.01)
    alive = follower.alive
    time.sleep(0.3)
    lag_seconds = follower.lag_seconds
    follower.close()
    database.close()

    assert (alive, heard.sequences, heard.resumed, lag_seconds) == (True, [1], [(0, 1_940.0)], 0.0)
    assert not follower.alive


def test_memory_forgets_what_is_long_gone(database: Database) -> None:
    """What was not seen for long leaves the memory, and comes back from the table when it is seen again."""
    log, follower = Log(database), Follower(database, Log(database))
    send(log, 1, [Device(type="gpu", id="GPU-1")], at=1_000.0)
    drain(follower)
    follower.observations.forget(9_000.0)
    send(log, 2, [Device(type="gpu", id="GPU-2")], at=9_000.0)
    drain(follower)

    with database.session() as session:
        assert sorted(session.get_one(Node, "gpu-0001").devices) == ["GPU-1", "GPU-2"]
