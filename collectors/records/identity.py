"""Who a process of a job is: its role and its rank. A job whose roles count from 0 each has a trainer 0 and a rollout 0.

A process that states no number gets one from its place: its node's part of the numbers above ``PLACED``, and there the
lowest that is free. Agents do not ask one another, so that the number must not depend on other nodes.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec

from collectors.records.processes import Placement
from collectors.records.record import Members

PLACED = 1 << 20
MOST_PLACED = 256  # of one role on one node
_PARTS = 1 << 21  # of the numbers: with them the largest is below LARGEST_RANK
_COLUMNS = ("nodes", "pids", "local_ranks", "roles", "devices", "started_ats", "world_sizes")
_WORD = re.compile(r"(?<!local )(?<!group )(?<!node )\b(rank|ranks) (?=[\d#])")
_LISTED = re.compile(r"\branks? [\d,\- ]*\d{7}[\d,\- ]*")
_NUMBER = re.compile(r"\d{7,}")


def placed_rank(node: str, index: int) -> int:
    """Return the number of a node's process without one; ``index`` counts from 0 within its role there."""
    return PLACED + zlib.crc32(node.encode()) % _PARTS * MOST_PLACED + index


def shown_rank(rank: int) -> str:
    """Write a rank's number; one that comes from its place is shown as its number on that node.

    >>> shown_rank(7), shown_rank(placed_rank("gpu-7", 2))
    ('7', '#2')
    """
    return str(rank) if rank < PLACED else f"#{(rank - PLACED) % MOST_PLACED}"


def name_rank(rank: int, role: str | None = "") -> str:
    """Name one process: ``rank 3`` in a job of one role, ``rollout rank 3`` where there are several."""
    return f"{role} rank {shown_rank(rank)}" if role else f"rank {shown_rank(rank)}"


@lru_cache(maxsize=1 << 14)
def short(node: str) -> str:
    """Return a node's name without its domain; an address stays whole."""
    return node if re.fullmatch(r"[\d.]+|[0-9a-fA-F:]+", node) else node.split(".", 1)[0]


def plain(node: str | None) -> str:
    """Return a node's name as two senders may give it: without its domain, in lower case; empty: none is given."""
    return short(node or "").lower()


def names_of_placed(ranks: Iterable[int], role: str | None = "") -> tuple[str, ...]:
    """Name processes each as ``rollout rank #2``; none where all numbers are their own, and say it themselves."""
    every = tuple(ranks)
    return tuple(name_rank(rank, role) for rank in every) if max(every, default=0) >= PLACED else ()


def with_role(text: str, role: str) -> str:
    """Return a sentence about ranks of one role with the role before each number.

    >>> with_role("rank 3 waits for ranks 0-1 (local rank 2)", "rollout")
    'rollout rank 3 waits for rollout ranks 0-1 (local rank 2)'
    """
    named = _WORD.sub(rf"{role} \1 " if role else r"\1 ", text)
    return _LISTED.sub(lambda found: _NUMBER.sub(_placed, found[0]), named)


def _placed(found: re.Match[str]) -> str:
    number = int(found[0])
    return shown_rank(number) if PLACED <= number < PLACED + _PARTS * MOST_PLACED else found[0]


def places(placement: Placement) -> Iterator[tuple[int, str, int]]:
    """Yield (place in the columns, role, rank) of each process of a placement; the role is empty where none is stated."""
    ranks = placement.ranks.ranks() if placement.ranks is not None else ()
    roles = placement.roles if len(placement.roles) == len(ranks) else (placement.role or "",) * len(ranks)
    for place, (role, rank) in enumerate(zip(roles, ranks, strict=True)):
        yield place, role, rank


def only(placement: Placement, kept: Collection[int], **changes: Any) -> Placement:
    """Return a placement with the processes at these places of its columns only."""
    ranks = placement.ranks.ranks() if placement.ranks is not None else ()
    chosen = [place for place in range(len(ranks)) if place in kept]
    columns = {
        name: tuple(values[place] for place in chosen) if len(values) == len(ranks) else values
        for name in _COLUMNS
        if (values := getattr(placement, name))
    }
    return msgspec.structs.replace(placement, **{**columns, "ranks": Members.of(ranks[p] for p in chosen), **changes})


def size_of(placement: Placement, kept: Collection[int]) -> int | None:
    """Return the number of ranks that a placement states for the processes at these places; None: none, or several."""
    if placement.world_sizes and placement.ranks is not None and len(placement.world_sizes) == len(placement.ranks):
        sizes = {placement.world_sizes[place] for place in kept} - {0}
        return sizes.pop() if len(sizes) == 1 else None
    return placement.world_size
