"""Whose network a slow job's verdict names: the node that all connections with longer round trips have in common."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator

import pytest

from collectors.records import Record, Samples
from tests.analyzers.incidents.test_who_is_slow import BEGAN, Readings, named, verdicts
from tests.support.watched_jobs import START

Trip = Callable[[int, int, float], float]
"""Two nodes and an instant → the milliseconds of a round trip between them."""


def address(node: int) -> str:
    """Return a node's address."""
    return f"10.0.0.{node + 1}"


def connections(trip: Trip, peers: Callable[[int], list[int]], sent: int = 1_000_000) -> Readings:
    """Return readings of the connections over which each node sends to its peers; its store sends next to nothing."""
    ticks: dict[int, int] = {}

    def read(at: float, node: int) -> Iterator[Record]:
        ticks[node] = ticks.get(node, 0) + 1
        others = [(peer, sent) for peer in peers(node)] + [(0, 10)] * (node != 0)
        edges = tuple(f"{address(node)}:{4000 + place}>{address(peer)}:5000" for place, (peer, _) in enumerate(others))
        rows = [(int(1000 * trip(node, peer, at)), ticks[node] * moved) for peer, moved in others]
        yield Samples(
            source="fabric", at=START + at, scope="socket", type="<i8", devices=edges,
            metrics=("round_trip_us", "bytes_sent_total"), ticks=array("d", [START + at - 0.5]).tobytes(),
            monotonic_ticks=array("d", [at]).tobytes(), values=array("q", [value for row in rows for value in row]).tobytes(),
        )  # fmt: skip

    return read


def ring(node: int) -> list[int]:
    """Return whom a node of four sends to in a ring."""
    return [(node + 1) % 4]


def of_node(culprit: int, since: float = BEGAN) -> Trip:
    """Return round trips that are long to and from one node."""
    return lambda a, b, at: 40.0 if culprit in (a, b) and at >= since else 0.3


@pytest.mark.parametrize("culprit", range(4))
def test_the_node_that_all_long_round_trips_share_is_named(culprit: int) -> None:
    """Its links are to be tested; it is not taken out."""
    *_, last = verdicts(connections(of_node(culprit), ring), nodes=4)

    assert named(last) == [("node", f"n{culprit}")]
    assert (last.symptom, last.cause, last.roots[0].fault_class) == ("slow", "network", "slow_path")
    assert last.action.kind in {"probe", "none"}
    assert "40 ms" in last.culprits[0].why


@pytest.mark.parametrize(
    ("trip", "peers"),
    [
        (lambda _a, _b, at: 40.0 if at >= BEGAN else 0.3, ring),
        (of_node(2, 0.0), ring),
        (lambda a, b, at: 40.0 if (a, b) == (1, 2) and at >= BEGAN else 0.3, ring),
        (of_node(1), lambda node: [node ^ 1]),
    ],
    ids=["all alike", "as before", "one connection", "one peer each"],
)
def test_what_more_than_one_node_may_be_the_reason_of_names_none(trip: Trip, peers: Callable[[int], list[int]]) -> None:
    """All connections, those that were long before, and a single one whose two ends are both suspects."""
    for verdict in verdicts(connections(trip, peers), nodes=4):
        assert named(verdict) == []


def test_connections_that_send_nothing_show_nothing() -> None:
    """The kernel measures round trips of what is sent: those of idle connections are old."""
    for verdict in verdicts(connections(of_node(1), ring, sent=100), nodes=4):
        assert named(verdict) == []


def test_an_address_of_two_nodes_is_of_none() -> None:
    """Pods of different nodes may have the same address in networks of their own."""
    read = connections(of_node(1), ring)

    def shared(at: float, node: int) -> Iterator[Record]:
        for one in read(at, node):
            assert isinstance(one, Samples)
            yield one
            yield from read(at, (node + 1) % 4)

    for verdict in verdicts(shared, nodes=4):
        assert named(verdict) == []


@pytest.mark.parametrize("taken", range(4))
def test_a_node_that_takes_anothers_address_has_none_named(taken: int) -> None:
    """Node 0 lies: long round trips of its own to node 1, and readings as if another's address were its own."""
    read = connections(lambda a, b, at: 40.0 if {a, b} == {0, 1} and at >= BEGAN else 0.3, ring)
    false = connections(lambda _a, _b, at: 40.0 if at >= BEGAN else 0.3, ring)

    def lying(at: float, node: int) -> Iterator[Record]:
        yield from read(at, node)
        if node == 0:
            yield from false(at, taken)

    for verdict in verdicts(lying, nodes=4):
        assert [one for one in named(verdict) if one != ("node", "n0")] == []
