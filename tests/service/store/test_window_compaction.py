"""Samples on disk by node and minute: whole after any crash, and enough to fill the window again."""

from __future__ import annotations

from array import array
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from sqlalchemy import update

from collectors.records import Record, Samples, block
from service.store.database import Database
from service.store.log import Incoming, Log, Stored
from service.store.models import Block
from service.store.window import compaction
from service.store.window.assembly import Feed
from service.store.window.compaction import Compaction, blocks
from service.store.window.tail import Tail
from tests.support.postgres import database as any_database

__all__ = ["any_database"]  # a fixture

START = 1_763_700_000.0 // 60 * 60
NODES = ("gpu-0", "gpu-1", "gpu-2")


@pytest.fixture
def database(sqlite: Database) -> Database:
    """A new SQLite database at the newest schema."""
    return sqlite


def tick(at: float, value: float) -> list[Record]:
    """Return one tick of one gauge of two devices."""
    known = {"scope": "gpu", "devices": ("GPU-0", "GPU-1"), "metrics": ("power_watts",)}
    values = array("f", [value, value + 0.5]).tobytes()
    return [Samples(**known, ticks=array("d", [at]).tobytes(), values=values)]


def filled(log: Log, minutes: int) -> list[Incoming]:
    """Append a batch every ten seconds from each node and return them."""
    batches = [
        Incoming(node, f"{number}", None, START + 10 * number, 1, block.encode(tick(START + 10 * number, number)))
        for number in range(6 * minutes)
        for node in NODES
    ]
    log.append(batches)
    return batches


def followed(log: Log, one: Compaction) -> None:
    """Hand everything after the compaction's place to it."""
    for stored in log.read_from(one.place, 10_000):
        one.add(stored.sequence, stored.node, stored.received_at, block.decode(stored.block))


def on_disk(database: Database) -> dict[tuple[str, float], list[float]]:
    """Return what the blocks hold: node and end of minute → the first device's values."""
    found: dict[tuple[str, float], list[float]] = {}
    for node, at, records in blocks(database, START - 3600, START + 3600):
        for record in records:
            assert isinstance(record, Samples)
            cube = np.frombuffer(record.values, "<f4").reshape(2, 1, -1)
            found.setdefault((node, at), []).extend(cube[0, 0].tolist())
    return found


def test_a_minute_is_one_record_a_node(database: Database) -> None:
    """Six batches become one block with six ticks; the minute that is still open is not on disk."""
    log = Log(database)
    filled(log, 3)

    followed(log, Compaction(database))

    assert on_disk(database) == {
        (node, START + 60 * (minute + 1)): [6.0 * minute + number for number in range(6)]
        for node in NODES
        for minute in range(2)
    }


@pytest.mark.parametrize("written", range(4))
def test_a_crash_between_transactions_changes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Wherever the writing of a minute stops, the next start writes the same blocks, each once."""
    monkeypatch.setattr(compaction, "ROWS_AT_ONCE", 1)
    log = Log(database)
    filled(log, 4)
    crashing, left = Compaction(database), [written]
    transaction = database.transaction

    def failing():
        if left[0] == 0:
            raise OSError("the process ends here")
        left[0] -= 1
        return transaction()

    monkeypatch.setattr(database, "transaction", failing)
    with pytest.raises(OSError, match="ends here"):
        followed(log, crashing)
    monkeypatch.setattr(database, "transaction", transaction)

    followed(log, Compaction(database))

    assert sorted(on_disk(database)) == [(node, START + 60 * end) for node in NODES for end in (1, 2, 3)]
    assert all(len(values) == 6 for values in on_disk(database).values())


def test_the_same_batch_again_is_taken_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch whose taking up failed on the database is handed over again; its samples are there once."""
    log = Log(database)
    filled(log, 3)
    one, transaction = Compaction(database), database.transaction
    for stored in log.read_from(0, 10_000):
        monkeypatch.setattr(database, "transaction", _closed)
        with suppress(OSError):
            one.add(stored.sequence, stored.node, stored.received_at, block.decode(stored.block))
            continue
        monkeypatch.setattr(database, "transaction", transaction)
        one.add(stored.sequence, stored.node, stored.received_at, block.decode(stored.block))

    assert sorted(on_disk(database)) == [(node, START + 60 * end) for node in NODES for end in (1, 2)]
    assert all(len(values) == 6 for values in on_disk(database).values())


def _closed() -> None:
    raise OSError("the database is away")


def test_a_clock_that_steps_back_overwrites_nothing(database: Database) -> None:
    """What is received, by the clock, long before the newest minute has a minute there; one that comes again is joined."""
    log = Log(database)
    filled(log, 2)
    followed(log, Compaction(database))
    early = Incoming("gpu-0", "early", None, START - 600, 1, block.encode(tick(START - 600, 77.0)))
    again = Incoming("gpu-0", "again", None, START + 65, 1, block.encode(tick(START + 65, 79.0)))
    later = Incoming("gpu-0", "later", None, START + 300, 1, block.encode(tick(START + 300, 78.0)))
    log.append([early, again, later])

    followed(log, Compaction(database))

    assert on_disk(database)["gpu-0", START + 60] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert on_disk(database)["gpu-0", START - 480] == [77.0]
    assert on_disk(database)["gpu-0", START + 120][-1] == 79.0


def test_the_window_is_the_same_after_a_restart(database: Database) -> None:
    """What the memory held before the end is there again, from the blocks and from what is not yet in them."""
    log, now = Log(database), START + 5 * 60 - 10
    filled(log, 5)
    before = Feed(Tail(240), Compaction(database))
    for stored in log.read_from(0, 10_000):
        before.add(stored, block.decode(stored.block))
    last = log.read_from(0, 10_000)[-1].sequence

    after = Feed(Tail(240), Compaction(database))
    after.resume(log, last, now - 240, now)

    for feed in (before, after):
        assert not np.isnan(feed.tail.assemble("gpu", NODES, None, now - 230, now + 10).values).any()
    cubes = [feed.tail.assemble("gpu", NODES, None, now - 230, now + 10) for feed in (before, after)]
    np.testing.assert_array_equal(cubes[0].values, cubes[1].values)


def test_damaged_samples_cost_themselves(database: Database) -> None:
    """Samples whose bytes are not what their names say are left out; the block of the minute is written."""
    one = Compaction(database)
    wrong = Samples(scope="gpu", devices=("GPU-0",), metrics=("power_watts",), ticks=b"\0" * 8, values=b"\0")
    one.add(1, "gpu-0", START, [wrong, *tick(START, 1.0)])

    one.add(2, "gpu-0", START + 60, tick(START + 60, 2.0))

    assert one.left_out == 1
    assert on_disk(database) == {("gpu-0", START + 60): [1.0]}


def samples(scope: str = "gpu", devices: int = 1, metrics: int = 1, ticks: int = 1) -> Samples:
    """Return samples of this shape, all readings 0."""
    return Samples(
        scope=scope, devices=tuple(f"GPU-{n}" for n in range(devices)), metrics=tuple(f"m{n}" for n in range(metrics)),
        ticks=array("d", [START] * ticks).tobytes(), values=bytes(4 * devices * metrics * ticks),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("odd", "left_out"),
    [
        ([samples(devices=0), samples(devices=0)], 0),
        ([samples(metrics=0), samples(metrics=0, ticks=2)], 0),
        ([samples(ticks=0), samples(ticks=0)], 0),
        ([samples("x" * 65)], 1),
        ([samples("gp\0u")], 1),
    ],
    ids=["no devices", "no metrics", "no ticks", "a long scope", "a scope with NUL"],
)
def test_no_samples_stop_the_blocks(any_database: Database, odd: list[Samples], left_out: int) -> None:
    """Whatever one node samples, the minute is written on both databases, and the place moves on."""
    one = Compaction(any_database)
    one.add(1, "gpu-0", START, odd)
    one.add(2, "gpu-1", START, tick(START, 1.0))

    for sequence in (3, 4):
        one.add(sequence, "gpu-1", START + 60 * (sequence - 2), tick(START, 2.0))

    assert (one.place, one.left_out) == (3, left_out)
    assert ("gpu-1", START + 60) in {(node, at) for node, at, _ in blocks(any_database, START, START + 60)}


def test_a_flood_of_samples_is_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a node samples past its bound is left out of the minute's block; another node's, and the next minute's, is not."""
    monkeypatch.setattr(compaction, "MOST_NODE_BYTES", 3 * compaction.RECORD_BYTES)
    one = Compaction(database)
    for sequence in range(1, 6):
        one.add(sequence, "gpu-0", START, tick(START + sequence, 1.0))
    one.add(6, "gpu-1", START, tick(START, 1.0))
    one.add(7, "gpu-0", START + 60, tick(START + 60, 1.0))
    one.add(8, "gpu-0", START + 120, tick(START + 120, 1.0))

    assert one.left_out == 3
    assert {key: len(found) for key, found in on_disk(database).items()} == {
        ("gpu-0", START + 60): 2, ("gpu-1", START + 60): 1, ("gpu-0", START + 120): 1,
    }  # fmt: skip


def test_boots_are_not_joined(database: Database) -> None:
    """Samples since two boots stay two records: their monotonic ticks count from different instants."""
    (first,) = tick(START, 1.0)
    since = array("d", [5.0]).tobytes()
    boots = [msgspec.structs.replace(first, boot_id=boot, monotonic_ticks=since) for boot in ("a", "a", "b")]
    one = Compaction(database)
    one.add(1, "gpu-0", START, [*boots, first])
    one.add(2, "gpu-0", START + 60, [])

    one.add(3, "gpu-0", START + 60, [])

    ((_, _, found),) = blocks(database, START, START + 60)
    kept = [(one.boot_id, len(one.ticks), len(one.monotonic_ticks)) for one in found if isinstance(one, Samples)]
    assert kept == [("a", 16, 16), ("b", 8, 8), (None, 8, 0)]


def test_a_node_that_went_leaves_the_window(database: Database) -> None:
    """What has sent nothing for a window's length takes no memory any more, without being asked to go."""
    feed = Feed(Tail(240), Compaction(database))
    for sequence, (node, at) in enumerate([("gone", START), ("here", START + 200), ("here", START + 500)], 1):
        feed.add(Stored(sequence, node, f"{sequence}", None, at, 1, b""), tick(at, 1.0))

    cube = feed.tail.assemble("gpu", ("gone", "here"), None, START, START + 510)

    assert {node for node, _ in cube.devices} == {"here"}


def test_a_damaged_block_costs_itself(database: Database) -> None:
    """A block whose bytes were changed on disk is passed over, and the others are read."""
    log = Log(database)
    filled(log, 2)
    followed(log, Compaction(database))
    with database.transaction() as session:
        session.execute(update(Block).where(Block.node == "gpu-1").values(block=b"FHBLOCK"))

    assert set(on_disk(database)) == {("gpu-0", START + 60), ("gpu-2", START + 60)}
