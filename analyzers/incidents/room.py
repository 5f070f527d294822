"""How many ranks of all jobs the engine holds: a node has its share, and all nodes together have a bound.

A rank takes some kilobytes in a view and half of one in a claim, and a batch of a few hundred bytes names thousands of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from collectors.records import Placement
from collectors.records.identity import only

MOST_OF_A_NODE = 1 << 14  # ranks: its agent reads 4,096 processes, and earlier attempts are kept for an hour
MOST = 1 << 18  # sixteen times the largest job


class Room:
    """The ranks that are held, by node."""

    def __init__(self, most_of_a_node: int = MOST_OF_A_NODE, most: int = MOST) -> None:
        self._most_of_a_node, self._most = most_of_a_node, most
        self._held: Counter[str] = Counter()
        self.total = 0
        self.refused: set[str] = set()  # nodes that had no room, since the last count

    def take(self, node: str, wanted: int) -> int:
        """Return for how many more ranks of a node there is room; they are held from now on."""
        got = max(0, min(wanted, self._most_of_a_node - self._held[node], self._most - self.total))
        self._held[node] += got
        self.total += got
        if got < wanted:
            self.refused.add(node)
        return got

    def cut(self, node: str, placement: Placement, before: int) -> Placement:
        """Return a placement with no more processes than there is room for; ``before`` of the node are held already."""
        count = len(placement.ranks or ())
        room = before + self.take(node, count - before)
        return placement if count <= room else only(placement, range(room))

    def recount(self, held: Mapping[str, int]) -> None:
        """Replace what is held: views and claims were forgotten."""
        self._held, self.refused = Counter(held), set()
        self.total = self._held.total()
