"""What gave no record, and why: each reason once, with all the ranks that it is about. Pure."""

from __future__ import annotations

import re

from analyzers.model.ranges import ranges
from analyzers.model.verdict import Verdict

_MORE = re.compile(r"(\d+) more")
_OF_A_RANK = re.compile(r"(?:.*#\d+:)?(.*) of rank (\d+): (.*)", re.DOTALL)


def count(verdict: Verdict) -> int:
    """Return how many sources gave none; the document lists the first and then says how many more there are."""
    more = _MORE.fullmatch(verdict.coverage.unread[-1]) if verdict.coverage.unread else None
    return len(lines(verdict)) + (int(more[1]) if more else 0)


def lines(verdict: Verdict) -> list[str]:
    """Return each source with its reason; agents are asked in every evidence round, and answer the same each time."""
    of_ranks: dict[tuple[str, str], set[int]] = {}
    found: dict[str | tuple[str, str], None] = {}
    for line in verdict.coverage.unread:
        if _MORE.fullmatch(line) and line == verdict.coverage.unread[-1]:
            continue
        if (one := _OF_A_RANK.fullmatch(line)) is None:
            found[line] = None
        else:
            of_ranks.setdefault((one[1], one[3]), set()).add(int(one[2]))
            found[one[1], one[3]] = None
    return [one if isinstance(one, str) else _sentence(*one, of_ranks[one]) for one in found]


def _sentence(what: str, why: str, ranks: set[int]) -> str:
    return f"{what} of rank{'s' if len(ranks) > 1 else ''} {ranges(sorted(ranks))}: {why}"
