"""Samples on disk by node and minute: whole after any crash, and enough to fill the window again."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from collectors import block
from collectors.records import Record, Samples
from service.store.database import Database
from service.store.log import Incoming, Log
from service.window import compaction
from service.window.compaction import Compaction, blocks
from service.window.feed import Feed
from service.window.tail import Tail

START = 1_763_700_000.0 // 60 * 60
NODES = ("gpu-0", "gpu-1", "gpu-2")


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """A new SQLite database at the newest schema."""
    made = Database(f"sqlite:///{tmp_path / 'store.db'}")
    made.migrate()
    yield made
    made.close()


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
    for node, at, records in blocks(database, START, START + 3600):
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
    """Batches received, by the clock, before the newest minute are kept with the minute that is open."""
    log = Log(database)
    filled(log, 2)
    followed(log, Compaction(database))
    early = Incoming("gpu-0", "early", None, START - 600, 1, block.encode(tick(START - 600, 77.0)))
    later = Incoming("gpu-0", "later", None, START + 300, 1, block.encode(tick(START + 300, 78.0)))
    log.append([early, later])

    followed(log, Compaction(database))

    assert on_disk(database)["gpu-0", START + 60] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert 77.0 in on_disk(database)["gpu-0", START + 120]


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
