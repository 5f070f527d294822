"""A job's samples as one array, out of memory or out of the blocks, and over REST."""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
import pytest

from collectors.records import Members, Placement, Record, Samples, block
from service.clock import now
from service.store.database import Database
from service.store.log import Incoming, Log, Stored
from service.store.window.assembly import Feed, assemble
from service.store.window.compaction import Compaction
from service.store.window.tail import Tail, TooMany
from tests.support.served import served

START = 1_763_700_000.0 // 60 * 60
NODES = ("gpu-0", "gpu-1")


def tick(node: str, at: float, value: float) -> list[Record]:
    """Return one tick of a gauge and a counter of one device."""
    known = {"node": node, "scope": "gpu", "devices": ("GPU-0",), "ticks": array("d", [at]).tobytes()}
    return [
        Samples(**known, metrics=("power_watts",), values=array("f", [value]).tobytes()),
        Samples(**known, type="<i8", metrics=("replays_total",), values=array("q", [1000 + int(value)]).tobytes()),
    ]


def test_the_past_is_what_the_present_was(tmp_path: Path) -> None:
    """What was assembled out of memory is assembled out of the blocks an hour later: same gauges, same growth."""
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    feed, span = Feed(Tail(600), Compaction(database)), (START + 60, START + 240)
    for number in range(60):
        for place, node in enumerate(NODES):
            at = START + 10 * number
            feed.tail.add(node, at, tick(node, at, 7.0 * place + number))
            feed.compaction.add(2 * number + place + 1, node, at, tick(node, at, 7.0 * place + number))
    end = START + 600

    live = assemble(feed.tail, database, "gpu", NODES, None, *span, end)
    past = assemble(Tail(600), database, "gpu", NODES, None, *span, end + 3600)

    assert live.devices == past.devices
    assert live.metrics == past.metrics
    assert live.values.shape == (18, 2, 2)
    np.testing.assert_array_equal(live.values[:, :, 0], past.values[:, :, 0])
    np.testing.assert_array_equal(np.diff(live.values[:, :, 1], axis=0), np.diff(past.values[:, :, 1], axis=0))
    assert np.diff(live.values[:, :, 1], axis=0).tolist() == [[1.0, 1.0]] * 17
    database.close()


def test_the_newest_minutes_are_not_missing(tmp_path: Path) -> None:
    """A span that began before the window has the minutes that no block holds yet, out of the log."""
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    log, feed = Log(database), Feed(Tail(120), Compaction(database))
    instants = [START + 20 * number for number in range(30)]
    log.append(
        [Incoming("gpu-0", f"{at}", None, at, 2, block.encode(tick("gpu-0", at, at - START))) for at in instants]
    )
    for stored in log.read_from(0, 100):
        feed.add(stored, block.decode(stored.block))

    cube = assemble(feed.tail, database, "gpu", NODES, ["power_watts"], START, START + 600, START + 600)

    assert feed.compaction.place < 30
    assert cube.values[::2, 0, 0].tolist() == [at - START for at in instants]
    database.close()


def test_no_more_is_made_than_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An array past its bound is refused before it is made, out of memory and out of the blocks, and so are the blocks."""
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    feed = Feed(Tail(600), Compaction(database))
    for sequence, minute in enumerate((0, 1, 2), 1):
        feed.add(
            Stored(sequence, "gpu-0", f"{minute}", None, START + 60 * minute, 1, b""),
            tick("gpu-0", START + 60 * minute, 1.0),
        )
    asked = "gpu", NODES, None, START, START + 60

    for end, values in ((START + 120, 12), (START + 3600, 12)):
        assert assemble(feed.tail, database, *asked, end, values).values.size == values
        with pytest.raises(TooMany, match="12 values, and 11 are the most"):
            assemble(feed.tail, database, *asked, end, values - 1)
    monkeypatch.setattr("service.store.window.assembly.MOST_ROOM", 50)
    with pytest.raises(TooMany, match="of 2 nodes are in the blocks"):
        assemble(feed.tail, database, *asked, START + 3600)
    feed.tail.drop(START + 1_000)
    assert feed.tail.size == 0
    database.close()


def test_samples_over_rest(tmp_path: Path) -> None:
    """A job's samples come by name of node, device and metric; what was not read is null, what is unknown a 404."""
    at = now() // 10 * 10 - 20
    placed = Placement(node="gpu-0", job="llama", attempt=1, ranks=Members.of([0]), nodes=("gpu-0",), world_size=1)
    with served(tmp_path) as client:
        client.ship("gpu-0", [placed, *tick("gpu-0", at, 300.0), *tick("gpu-0", at + 20, 301.0)])
        path = f"/v1/jobs/llama/samples?scope=gpu&since={at}&until={at + 30}"
        client.eventually(path, lambda found: found["devices"])

        answer = client.get(path)
        unknown = client.get("/v1/jobs/mixtral/samples", params={"scope": "gpu"})
        endless = client.get("/v1/jobs/llama/samples", params={"scope": "gpu", "since": 0})

    assert answer.json() == {
        "ticks": [at, at + 10, at + 20],
        "devices": [["gpu-0", "GPU-0"]],
        "metrics": ["power_watts", "replays_total"],
        "values": [[[300.0, 0.0]], [[None, None]], [[301.0, 1.0]]],
    }
    assert unknown.status_code == 404
    assert endless.status_code == 422
    assert "ask for 1 to" in endless.json()["detail"]
