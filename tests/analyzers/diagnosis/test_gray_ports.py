"""Which port of a network card is down, slow, or has errors that grow, and its peers have not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from analyzers.model.verdict import Verdict
from collectors.records import Device, Record, Samples
from tests.support.gray_fleet import BEGIN_AT, named, verdict_on

METRICS = (
    "state", "rate_megabits_per_second", "symbol_error_total", "link_error_recovery_total", "link_downed_total",
    "out_of_sequence_total",
)  # fmt: skip
PORTS = tuple(f"mlx5_{number}/1" for number in range(4))
Port = dict[str, int]
Change = Callable[[int, int, int], Port]


def healthy(_node: int, port: int, reading: int) -> Port:
    """One reading of a port: the last one is of the storage, and slower."""
    return {
        "state": 4, "rate_megabits_per_second": 400_000 if port < 3 else 100_000, "symbol_error_total": 7,
        "link_error_recovery_total": 1, "link_downed_total": 2, "out_of_sequence_total": 40 * reading,
    }  # fmt: skip


def sent(change: Change, nodes: int = 5, readings: int = 12) -> Iterator[Record]:
    """Yield what the agents of some nodes send of their ports."""
    ticks = np.array([BEGIN_AT + 10.0 * number for number in range(readings)])
    for node in range(nodes):
        known = {"node": f"gpu-{node:04d}", "source": "fabric", "received_at": BEGIN_AT + 600.0}
        for name in PORTS:
            yield Device(type="infiniband", id=name, name="MT4129", pci="0000:1a:00", **known)  # type: ignore[arg-type]
        cube = [
            [
                [(healthy(node, port, one) | change(node, port, one))[metric] for one in range(readings)]
                for metric in METRICS
            ]
            for port in range(len(PORTS))
        ]
        yield Samples(
            scope="infiniband", type="<i8", at=BEGIN_AT, devices=PORTS, metrics=METRICS, ticks=ticks.tobytes(),
            values=np.array(cube, "<i8").tobytes(), **known,  # type: ignore[arg-type]
        )  # fmt: skip


def judged(change: Change, nodes: int = 5) -> Verdict:
    """Return the verdict on them."""
    return verdict_on(list(sent(change, nodes)))


def on(since: int = 0, **changes: int) -> Change:
    """Change the second port of the fourth node from a reading on."""
    return lambda node, port, reading: changes if (node, port) == (3, 1) and reading >= since else {}


def growing(metric: str, step: int) -> Change:
    """Let a count of the second port of the fourth node grow by so much a reading."""
    return lambda node, port, reading: {metric: step * reading} if (node, port) == (3, 1) else {}


POSITIVES = {
    "down": on(state=1), "down since": on(6, state=1), "half its rate": on(rate_megabits_per_second=200_000),
    "half its rate since": on(6, rate_megabits_per_second=200_000), "errors": growing("symbol_error_total", 5),
    "recoveries": growing("link_error_recovery_total", 1),
}  # fmt: skip


@pytest.mark.parametrize("case", POSITIVES)
def test_a_port_that_stands_apart_is_a_link_to_test(case: str) -> None:
    """The port is named, with its node; the network is the cause, and no node is taken out."""
    verdict = judged(POSITIVES[case])
    assert [(kind, id) for kind, id, _ in named(verdict)] == [("link", "gpu-0003/mlx5_1/1")]
    assert (verdict.symptom, verdict.cause, verdict.action.kind) == ("hardware", "network", "probe")


NEGATIVES: dict[str, Change] = {
    "healthy": lambda *_place: {},
    "that port is down on every node": lambda _node, port, _reading: {"state": 1} if port == 2 else {},
    "that port is slow on every node": lambda _node, port, _reading: (
        {"rate_megabits_per_second": 200_000} if port == 2 else {}
    ),
    "errors of long ago": on(symbol_error_total=900_000, link_downed_total=80),
    "errors in one burst": on(6, symbol_error_total=90_000),
    "errors on all": lambda _node, _port, reading: {"symbol_error_total": 9 * reading},
    "one reading of it down": lambda *place: {"state": 1} if place == (3, 1, 11) else {},
    "sent again": growing("out_of_sequence_total", 5_000),
    "two nodes at once": lambda node, port, _reading: {"state": 1} if node > 2 and port == 1 else {},
}


@pytest.mark.parametrize("case", NEGATIVES)
def test_no_port_that_does_not_stand_apart_is_named(case: str) -> None:
    """What is so on every node, over, once, or its peers' as well accuses none."""
    assert named(judged(NEGATIVES[case])) == []


def test_two_nodes_without_a_past_name_none() -> None:
    """Which of the two is right is not seen; a port that was active before is."""
    assert named(judged(on(state=1), nodes=2)) == []
    past = [
        (kind, id)
        for kind, id, _ in named(verdict_on(list(sent(lambda *place: on(6, state=1)(place[0] + 2, *place[1:]), 2))))
    ]
    assert past == [("link", "gpu-0001/mlx5_1/1")]
