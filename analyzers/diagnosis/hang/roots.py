"""Where the waits end: the ranks and operations that others wait for and that wait for none."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from analyzers.diagnosis.hang.waits import Node, Operation, Waits


@dataclass(frozen=True, slots=True)
class WaitEnd:
    """One end of the waits: a rank, an operation stuck in itself, or a cycle of several."""

    ranks: tuple[int, ...]
    operations: tuple[Operation, ...]

    @property
    def cyclic(self) -> bool:
        """Return whether ranks wait for each other in a circle."""
        return len(self.ranks) > 1


def endings(waits: Waits) -> list[WaitEnd]:
    """Return the strongly connected parts of the graph that wait for nothing outside themselves, in rank order."""
    parts = list(_strongly_connected(waits.after))
    part_of = {node: number for number, part in enumerate(parts) for node in part}
    leaving = {part_of[node] for node, targets in waits.after.items() for t in targets if part_of[t] != part_of[node]}
    found = []
    for number, part in enumerate(parts):
        if number not in leaving:
            ranks = tuple(sorted(node for node in part if isinstance(node, int)))
            operations = tuple(sorted(node for node in part if isinstance(node, Operation)))
            found.append(WaitEnd(ranks, operations))
    return sorted(found, key=lambda ending: (ending.ranks, ending.operations))


def _strongly_connected(after: dict[Node, set[Node]]) -> Iterator[list[Node]]:
    """Tarjan's algorithm without recursion: 16,384 ranks make deep chains."""
    order: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    empty: set[Node] = set()
    for root in list(after):
        if root in order:
            continue
        work: list[tuple[Node, Iterator[Node]]] = [(root, iter(after.get(root, empty)))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(after.get(target, empty))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    yield _unstacked(stack, on_stack, node)


def _unstacked(stack: list[Node], on_stack: set[Node], root: Node) -> list[Node]:
    part = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        part.append(node)
        if node == root:
            return part


class Paths:
    """The ranks that wait, directly or not, for a set of ranks. Searched breadth first, so that chains are short."""

    def __init__(self, waits: Waits) -> None:
        self._before: dict[Node, list[Node]] = defaultdict(list)
        for node, targets in waits.after.items():
            for target in targets:
                self._before[target].append(node)

    def towards(self, ends: Iterable[Node]) -> dict[Node, Node | None]:
        """Return every node that waits for ``ends``, each with the next node on its way there (None: an end itself)."""
        following: dict[Node, Node | None] = dict.fromkeys(ends)
        queue = deque(following)
        while queue:
            node = queue.popleft()
            for waiter in self._before[node]:
                if waiter not in following:
                    following[waiter] = node
                    queue.append(waiter)
        return following


def chains(following: dict[Node, Node | None], most: int = 3) -> tuple[tuple[int, ...], ...]:
    """Return the longest of the shortest ways of victims to what they wait for, ranks only, none a part of another."""
    found: list[tuple[int, ...]] = []
    covered: set[int] = set()
    for node in reversed(following):
        if isinstance(node, int) and node not in covered and len(found) < most:
            chain = _chain(following, node)
            if len(chain) > 1:
                found.append(chain)
                covered.update(chain)
    return tuple(found)


def _chain(following: dict[Node, Node | None], start: Node) -> tuple[int, ...]:
    ranks = []
    node: Node | None = start
    while node is not None:
        if isinstance(node, int):
            ranks.append(node)
        node = following[node]
    return tuple(ranks)
