"""Ranks and hosts as people write them: ``0-3303,3305-4095`` and ``gpu-[0413,0419-0421]``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from analyzers.model.ranges import runs, span
from collectors.records.identity import PLACED, shown_rank

MOST_RANKS = 1_048_576  # the ranks that one text of ranges may stand for

_TRAILING_NUMBER = re.compile(r"^(.*?)(\d+)(\D*)$", re.DOTALL)


def ranks_for_people(ranks: Iterable[int], most: int = 8) -> str:
    """Fold ranks into ranges with a space after the comma, and stop after ``most`` ranges with how many are left."""
    found = runs(ranks)
    spans = [span(low, high) if high < PLACED else _placed(low, high) for low, high in found[:most]]
    left = sum(high - low + 1 for low, high in found[most:])
    if left:
        return f"{', '.join(spans)} and {left:,} more"
    return " and ".join(spans) if len(spans) == 2 else ", ".join(spans)


def placed(seats: Iterable[tuple[str, str, int]]) -> list[tuple[str, str, str]]:
    """Return (node, role, its ranks for people), in order, of (node, role, rank); an empty role: none is known."""
    where: dict[tuple[str, str], list[int]] = {}
    for node, role, rank in seats:
        where.setdefault((node, role), []).append(rank)
    return [(node, role, ranks_for_people(ranks)) for (node, role), ranks in sorted(where.items())]


def _placed(low: int, high: int) -> str:
    return shown_rank(low) if low == high else f"{shown_rank(low)}-{shown_rank(high)}"


def parse_ranks(text: str) -> tuple[int, ...]:
    """Unfold ``0-3,7``; ValueError names the part that is no range, or makes the whole too long."""
    ranks: list[int] = []
    for part in (piece.strip() for piece in text.split(",") if piece.strip()):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if high < low:
            raise ValueError(f"{part!r} is no rank and no range of ranks: write 14 or 12-15")
        if len(ranks) + high - low >= MOST_RANKS:
            raise ValueError(f"{part!r} makes more than {MOST_RANKS:,} ranks: write fewer")
        ranks.extend(range(low, high + 1))
    return tuple(ranks)


def parse_seats(text: str) -> dict[str, tuple[int, ...]]:
    """Unfold ``7;trainer=0-1;rollout=3`` by role, "" for none; a comma may stand for the semicolon before a role.

    >>> parse_seats("7,rollout=3,5-6")
    {'': (7,), 'rollout': (3, 5, 6)}
    """
    found: dict[str, tuple[int, ...]] = {}
    for part in re.split(r";|,(?=[^,;]*=)", text):
        role, stated, ranks = part.rpartition("=")
        if stated and not role.strip():
            raise ValueError(f"{part.strip()!r} names no role: write rollout=3")
        if part.strip():
            found[role.strip()] = found.get(role.strip(), ()) + parse_ranks(ranks)
    return found


def fold_hosts(hosts: Iterable[str]) -> str:
    """Fold host names into hostlist notation, in sorted order; names without a number stay as they are."""
    series: dict[tuple[str, int, str], list[int]] = {}
    plain: list[str] = []
    for host in sorted(set(hosts)):
        match = _TRAILING_NUMBER.match(host)
        if match:
            series.setdefault((match[1], len(match[2]), match[3]), []).append(int(match[2]))
        else:
            plain.append(host)
    return ",".join(sorted(plain + [_folded(key, numbers) for key, numbers in series.items()]))


def _folded(key: tuple[str, int, str], numbers: list[int]) -> str:
    before, width, after = key
    if len(numbers) == 1:
        return f"{before}{numbers[0]:0{width}}{after}"
    spans = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in runs(numbers)]
    return f"{before}[{','.join(spans)}]{after}"
