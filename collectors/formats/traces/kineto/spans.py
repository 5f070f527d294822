"""Times in which something ran: gathered in any order, then disjoint and sorted."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, chain

Span = tuple[float, float]
"""Begin and end, in microseconds of the rank's own clock."""


class Spans:
    """Gathers spans. What lies in the one before it takes no place: most operations are part of another."""

    __slots__ = ("begins", "ends")

    def __init__(self) -> None:
        self.begins = array("d")
        self.ends = array("d")

    def add(self, begin: float, end: float) -> bool:
        """Add a span; return whether it took a place."""
        ends = self.ends
        if ends and self.begins[-1] <= begin <= ends[-1]:
            ends[-1] = max(ends[-1], end)
            return False
        self.begins.append(begin)
        ends.append(end)
        return True

    def merged(self) -> list[Span]:
        """Return them disjoint and sorted."""
        return union(zip(self.begins, self.ends, strict=True))


def union(*several: Iterable[Span]) -> list[Span]:
    """Return the times of any of these spans."""
    found: list[Span] = []
    for begin, end in sorted(chain(*several)):
        if found and begin <= found[-1][1]:
            if end > found[-1][1]:
                found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def minus(spans: list[Span], others: list[Span]) -> list[Span]:
    """Return the times of some disjoint, sorted spans that are not of others."""
    found: list[Span] = []
    at = 0
    for begin, end in spans:
        while at < len(others) and others[at][1] <= begin:
            at += 1
        since, inside = begin, at
        while inside < len(others) and others[inside][0] < end:
            if others[inside][0] > since:
                found.append((since, others[inside][0]))
            since = max(since, others[inside][1])
            inside += 1
        if since < end:
            found.append((since, end))
    return found


class Cover:
    """How much of a time disjoint, sorted spans take."""

    def __init__(self, spans: list[Span]) -> None:
        self._begins = [begin for begin, _ in spans]
        self._spans = spans
        self._before = list(accumulate((end - begin for begin, end in spans), initial=0.0))

    def within(self, begin: float, end: float) -> float:
        """Return how long any of them ran within a time."""
        return max(self._until(end) - self._until(begin), 0.0) if end > begin else 0.0

    def first(self, begin: float, end: float) -> float | None:
        """Return when the first of them that has a part in a time begins there."""
        at = max(bisect_right(self._begins, begin) - 1, 0)
        for first, last in self._spans[at : at + 2]:
            if max(first, begin) < min(last, end):
                return max(first, begin)
        return None

    def _until(self, time: float) -> float:
        at = bisect_right(self._begins, time)
        if not at:
            return 0.0
        begin, end = self._spans[at - 1]
        return self._before[at - 1] + min(time, end) - begin
