"""Ranks with their roles as a cut stores them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from analyzers.incidents.rank_maps import Seat
from analyzers.model.ranges import numbers, ranges


def seats_in_words(seats: Iterable[Seat]) -> str:
    """Write ranks as a cut stores them: ``0-3,7``, and by role ``trainer=0-1;rollout=2``."""
    of_role: dict[str, list[int]] = defaultdict(list)
    for rank, role in seats:
        of_role[role].append(rank)
    return ";".join(f"{role}={ranges(found)}" if role else ranges(found) for role, found in sorted(of_role.items()))


def seats_of(text: str) -> frozenset[Seat]:
    """Return the ranks that ``seats_in_words`` wrote.

    >>> sorted(seats_of("7;trainer=0-1"))
    [(0, 'trainer'), (1, 'trainer'), (7, '')]
    """
    parts = (part.rpartition("=") for part in text.split(";"))
    return frozenset((rank, role) for role, _, found in parts for rank in numbers(found))
