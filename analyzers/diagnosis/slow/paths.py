"""Which paths between ranks are slow: the matrix of senders and receivers (C4D, HPCA 2025), and what its slow cells share.

    one row      every transfer of one sender is slow: its side
    one column   every transfer to one receiver is slow: its side
    one cell     the path between two
    a block      all transfers from some nodes to others: a switch between them

A cell is compared with the others of the same size that stay within a node, or leave it, as it does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.model.medians import spread

SLOW_TIMES = 1.5  # a transfer that takes less than this times the others' is on no slow path
TIMES_SPREAD = 6.0
FEWEST_CELLS = 4  # that are alike: of three, one slow one is a third
SENDER, RECEIVER, CELL, BLOCK = "sender", "receiver", "path", "block"


@dataclass(frozen=True, slots=True, order=True)
class SlowCell:
    """One slow cell: from whom, to whom, and how many times as long as others like it."""

    source: int
    target: int
    times: float


@dataclass(frozen=True)
class PathPattern:
    """What slow cells share. ``ends``: the sender, the receiver, the two of a path, or the ranks of a block."""

    kind: str
    ends: tuple[int, ...]
    paths: tuple[SlowCell, ...]
    node: str = ""  # where all ends of a sender or receiver are one node


def slow_cells(seconds: Mapping[tuple[int, int], float], alike: Mapping[tuple[int, int], object]) -> list[SlowCell]:
    """Return the cells that take longer than the others like them. ``alike``: what a cell may be compared by."""
    groups: dict[object, list[tuple[int, int]]] = defaultdict(list)
    for cell in sorted(seconds):
        groups[alike[cell]].append(cell)
    slow = []
    for cells in groups.values():
        values = np.array([seconds[cell] for cell in cells])
        usual = float(np.median(values))
        if len(cells) < FEWEST_CELLS or usual <= 0:
            continue
        bound = max(SLOW_TIMES * usual, usual + TIMES_SPREAD * spread(values))
        found = [
            SlowCell(*cell, value / usual) for cell, value in zip(cells, values.tolist(), strict=True) if value > bound
        ]
        slow += found
    return sorted(slow)


def patterns(slow: Sequence[SlowCell], every: Sequence[tuple[int, int]], nodes: Mapping[int, str]) -> list[PathPattern]:
    """Return what the slow cells share, the widest first. ``every``: all cells that were measured."""
    left = {(one.source, one.target): one for one in slow}
    hot = set(left)
    found = []
    while left:
        best = max(
            _candidates(hot, left, every, nodes),
            key=lambda one: (len(one[2] & left.keys()), -len(one[1]), one[0], one[1]),
        )
        kind, ends, cells, node = best
        found.append(PathPattern(kind, ends, tuple(left.pop(cell) for cell in sorted(cells & left.keys())), node))
    return found


_Candidate = tuple[str, tuple[int, ...], frozenset[tuple[int, int]], str]


def _candidates(
    hot: set[tuple[int, int]],
    left: Mapping[tuple[int, int], SlowCell],
    every: Sequence[tuple[int, int]],
    nodes: Mapping[int, str],
) -> list[_Candidate]:
    """Return each cell by itself, and the rows, columns and blocks whose measured cells are all slow, two or more."""
    found: list[_Candidate] = [(CELL, cell, frozenset({cell}), "") for cell in left]
    groups: dict[tuple[str, object], set[tuple[int, int]]] = defaultdict(set)
    for source, target in every:
        at, to = nodes.get(source), nodes.get(target)
        groups[SENDER, source].add((source, target))
        groups[RECEIVER, target].add((source, target))
        if at and to and at != to:
            groups[SENDER, at].add((source, target))
            groups[RECEIVER, to].add((source, target))
            groups[CELL, (at, to)].add((source, target))
    for (kind, whose), cells in groups.items():
        place = 1 if kind == RECEIVER else 0
        # Of one node with one other, the path between them may be slow as well.
        several = kind == CELL or len({nodes.get(cell[1 - place], cell[1 - place]) for cell in cells}) > 1
        if several and cells <= hot and cells & left.keys():
            ends = {end for cell in cells for end in cell} if kind == CELL else {cell[place] for cell in cells}
            node = whose if isinstance(whose, str) else "" if kind == CELL else nodes.get(min(ends), "")
            found.append((kind, tuple(sorted(ends)), frozenset(cells), node))
    return found + _blocks(hot, every, nodes)


def _blocks(hot: set[tuple[int, int]], every: Sequence[tuple[int, int]], nodes: Mapping[int, str]) -> list[_Candidate]:
    """Return the block of all slow cells between nodes, where each of two nodes or more sends to each of two or more."""
    between = {cell for cell in hot if nodes.get(cell[0]) and nodes.get(cell[1]) and nodes[cell[0]] != nodes[cell[1]]}
    sending, receiving = {nodes[source] for source, _ in between}, {nodes[target] for _, target in between}
    if len(sending) < 2 or len(receiving) < 2 or sending & receiving:
        return []
    inside = {cell for cell in every if nodes.get(cell[0]) in sending and nodes.get(cell[1]) in receiving}
    if not inside <= hot:
        return []
    ends = tuple(sorted({end for cell in inside for end in cell}))
    return [(BLOCK, ends, frozenset(inside), "")]
