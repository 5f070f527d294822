"""Ranks as people write them."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(ranks: Iterable[int]) -> str:
    """Write ranks as ranges.

    >>> ranges([0, 1, 2, 5, 7, 8])
    '0-2,5,7-8'
    """
    return ",".join(span(low, high) for low, high in runs(ranks))


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive numbers, in order."""
    found: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def span(low: int, high: int) -> str:
    """Write one run: ``7`` or ``0-3``."""
    return str(low) if low == high else f"{low}-{high}"


def numbers(text: str) -> frozenset[int]:
    """Return the ranks that are written as ranges.

    >>> sorted(numbers("0-2,5"))
    [0, 1, 2, 5]
    """
    parts = (part.partition("-") for part in text.split(",") if part)
    return frozenset(rank for low, _, high in parts for rank in range(int(low), int(high or low) + 1))
