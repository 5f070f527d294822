"""The fast code of the hang analyzer beside an obvious slow version of each part, on random input."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.diagnosis.hang.fronts import peers_of, progress
from analyzers.diagnosis.hang.roots import Paths, chains, endings
from analyzers.diagnosis.hang.waits import Node, Operation, Waits
from analyzers.model.ranges import ranges
from analyzers.model.recorder import Pairs, keyed
from analyzers.model.tables import tabulate
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump
from tests.support import naive
from tests.support.hand_made import COMPLETED, SCHEDULED, STARTED, Entry, call, dump, group

if TYPE_CHECKING:  # the quick tests do without it
    import networkx as nx

NODES = st.one_of(st.integers(0, 7), st.builds(Operation, st.integers(0, 2), st.integers(0, 2)))
GRAPHS = st.dictionaries(NODES, st.sets(NODES, max_size=3), max_size=12)
INTS = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-3, 4)
GROUPS = (group("0", 0, 1, 2, 3), group("1", 0, 1, 2, 3))
OPERATIONS = ("all_reduce", "broadcast", "_all_gather_base", "barrier", "reduce")


@st.composite
def jobs(draw: st.DrawFn) -> list[FlightRecorderDump]:
    """Up to four ranks in two groups, each with numbers that only rise, in any state."""
    found = []
    for rank in range(draw(st.integers(1, 4))):
        entries: list[Entry] = []
        for name in ("0", "1"):
            numbers = sorted(draw(st.sets(st.integers(1, 8), max_size=5)))
            for number in numbers:
                state = draw(st.sampled_from((SCHEDULED, STARTED, COMPLETED, COMPLETED)))
                operation = OPERATIONS[number % len(OPERATIONS)] if name == "1" else draw(st.sampled_from(OPERATIONS))
                entries.append(call(number, state, operation, group=name))
        order = draw(st.permutations(entries))  # groups interleave as they like; a group's own order is kept below
        by_group = {name: iter([e for e in entries if e.group == name]) for name in ("0", "1")}
        found.append(dump(rank, [next(by_group[entry.group]) for entry in order], GROUPS))
    return found


def drawn(after: dict[Node, set[Node]]) -> nx.DiGraph:
    """The same graph for networkx."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(after)
    graph.add_edges_from((node, target) for node, targets in after.items() for target in targets)
    return graph


@pytest.mark.system
@given(GRAPHS)
@settings(max_examples=300)
def test_endings_are_what_every_reachable_node_reaches_back(after: dict[Node, set[Node]]) -> None:
    """The search finds the components that networkx finds and that no wait leaves."""
    import networkx as nx

    waits = Waits()
    for node, targets in after.items():
        waits.after[node].update(targets)
    graph = drawn(after)
    parts = [part for part in nx.strongly_connected_components(graph) if not nx.node_boundary(graph, part)]
    found = [
        (
            tuple(sorted(n for n in part if isinstance(n, int))),
            tuple(sorted(n for n in part if isinstance(n, Operation))),
        )
        for part in parts
    ]
    assert [(ending.ranks, ending.operations) for ending in endings(waits)] == sorted(found)


@pytest.mark.system
@given(GRAPHS, st.sets(NODES, min_size=1, max_size=3))
@settings(max_examples=200)
def test_ways_lead_to_an_end_step_by_step(after: dict[Node, set[Node]], ends: set[Node]) -> None:
    """Who waits for the ends is who reaches them; each way follows edges; a chain shows ranks of one way only."""
    import networkx as nx

    waits = Waits()
    for node, targets in after.items():
        waits.after[node].update(targets)
    following = Paths(waits).towards(sorted(ends, key=repr))
    graph = drawn(after)
    graph.add_nodes_from(ends)
    assert set(following) == ends.union(*(nx.ancestors(graph, end) for end in ends))
    assert all(step is None or step in after[node] for node, step in following.items())
    assert all(step is not None for node, step in following.items() if node not in ends)
    for chain in chains(following):
        assert len(chain) > 1
        assert all(nx.has_path(graph, earlier, later) for earlier, later in pairwise(chain))


def test_a_chain_of_every_rank_needs_no_recursion() -> None:
    """Sixteen thousand ranks that wait one for the next end in the last one."""
    waits = Waits()
    for rank in range(16_384):
        waits.after[rank].add(rank + 1)
    (found,) = endings(waits)
    assert found.ranks == (16_384,)


@pytest.mark.system
@given(st.lists(st.one_of(st.tuples(SMALL, SMALL, SMALL), st.tuples(INTS, SMALL, INTS)), max_size=20))
@settings(max_examples=200)
def test_keys_are_equal_and_ordered_as_the_columns_are(rows: list[tuple[int, ...]]) -> None:
    """Rows have equal keys where all columns agree, and keys follow the columns' order; wild values overflow nothing."""
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)] or [np.zeros(0, np.int64)] * 3
    keys = keyed(*columns)
    assert [int(number) for number in np.unique(keys, return_inverse=True)[1]] == naive.equal_keys(
        [list(c) for c in columns]
    )


@pytest.mark.system
@given(jobs())
@settings(max_examples=100)
def test_pairs_hold_each_ranks_highest_in_each_group(found: list[FlightRecorderDump]) -> None:
    """The columns of pairs say what a dictionary would, for pairs that occur and for those that do not."""
    table = tabulate(found)
    pairs = Pairs.from_table(table)
    chosen = np.asarray(table["state"] == COMPLETED)
    values = pairs.highest(table["collective_seq"], chosen)
    expected = naive.highest(table, "collective_seq", np.flatnonzero(chosen).tolist())
    found_by = pairs.by_group(values)
    for code in range(-1, len(table.groups) + 1):
        assert [found_by[code].get(rank, -1) for rank in range(6)] == [
            expected.get((rank, code), -1) for rank in range(6)
        ]


@pytest.mark.system
@given(jobs())
@settings(max_examples=150)
def test_progress_is_what_row_by_row_says(found: list[FlightRecorderDump]) -> None:
    """Outstanding, lost and entered, in array operations, are what loops over all rows and pairs find."""
    table = tabulate(found)
    made, slow = progress(table), naive.Naive(table)
    lost = slow.lost()
    assert set(np.flatnonzero(made.lost).tolist()) == lost
    assert set(np.flatnonzero(made.outstanding).tolist()) == set(slow.open()) - lost
    entered = slow.entered()
    for code in range(len(table.groups)):
        numbers = [made.entered_by[code].get(rank, -1) for rank in range(4)]
        assert numbers == [entered.get((rank, code), -1) for rank in range(4)]


@pytest.mark.system
@given(jobs())
@settings(max_examples=100)
def test_fronts_are_the_oldest_of_each_rank_and_group(found: list[FlightRecorderDump]) -> None:
    """A rank has one front a communicator, the first that it launched and that is outstanding; the oldest holds it up."""
    table = tabulate(found)
    made = progress(table)
    first: dict[tuple[int, int], int] = {}
    oldest: dict[int, int] = {}
    for row in np.flatnonzero(made.outstanding).tolist():
        first.setdefault((int(table["rank"][row]), int(table["group"][row])), row)
        oldest.setdefault(int(table["rank"][row]), row)
    assert sorted(made.fronts) == sorted(first.values())
    assert made.oldest_row == oldest


@given(jobs(), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_one_table_is_each_dump_after_the_other(found: list[FlightRecorderDump], shuffled: object) -> None:
    """All dumps at once, in any order, read as one dump at a time does."""
    given_order = list(found)
    shuffled.shuffle(given_order)  # type: ignore[attr-defined]
    table = tabulate(given_order)
    rows = [
        (
            table.ranks[int(table.rank_index[row])],
            table.groups[int(table["group"][row])].name,
            int(table["collective_seq"][row]),
        )
        for row in range(len(table))
    ]
    alone = []
    for one in found:
        single = tabulate([one])
        names = [single.groups[int(code)].name for code in single["group"]]
        alone += [(one.rank, name, int(seq)) for name, seq in zip(names, single["collective_seq"], strict=True)]
    assert rows == alone


@given(st.lists(st.integers(0, 40)))
def test_ranges_are_what_counting_gives(ranks: list[int]) -> None:
    """Ranks are written as people write them, each once, in order."""
    assert ranges(ranks) == naive.ranges(ranks)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("send 0->3", ("send", 0, 3)),
        ("recv 2<-3", ("recv", 2, 3)),
        ("nccl:send 10->11", ("send", 10, 11)),
        ("all_reduce", None),
        ("coalesced", None),
    ],
)
def test_peers_are_read_from_a_transfers_name(text: str, expected: tuple[str, int, int] | None) -> None:
    """The operation's name says who sends to whom, in group-local ranks."""
    assert peers_of(text) == expected


@given(st.permutations(range(4)))
def test_each_ranks_newest_dump_is_judged(order: list[int]) -> None:
    """Of several dumps of a rank the newest counts, whatever the order they were read in; the others are the earlier ones."""
    made = [dump(0, [call(number + 1)], at=1000.0 + number, source=f"{number}/_dump_0") for number in range(4)]
    window = Window.build([made[place] for place in order])
    assert window.dumps == (made[3],)
    assert window.earlier_dumps == tuple(made[:3])
