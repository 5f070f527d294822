"""Ranks as people write them."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(ranks: Iterable[int]) -> str:
    """Write ranks as ranges.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    ordered = sorted(set(ranks))
    starts = [rank for index, rank in enumerate(ordered) if index == 0 or ordered[index - 1] != rank - 1]
    ends = [rank for index, rank in enumerate(ordered) if index == len(ordered) - 1 or ordered[index + 1] != rank + 1]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))
