"""What gave no record, and why: each reason once, with all the ranks that it is about. Pure."""

from __future__ import annotations

import re
from collections import deque

from analyzers.model.ranges import ranges
from analyzers.model.verdict import Verdict

_MORE = re.compile(r"(\d+) more")
_PLACE = re.compile(r"#\d+:")  # in a log or dump: `train.log#2:`
_OF_A_RANK = re.compile(r" of rank (\d{1,9}): ")


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
        if (one := _last(_OF_A_RANK, line)) is None:
            found[line] = None
            continue
        what, why = line[: one.start()], line[one.end() :]
        if place := _last(_PLACE, what):
            what = what[place.end() :]
        of_ranks.setdefault((what, why), set()).add(int(one[1]))
        found[what, why] = None
    return [one if isinstance(one, str) else _sentence(*one, of_ranks[one]) for one in found]


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match. Agents report long texts: the time of one greedy pattern would grow by their square."""
    found = deque(pattern.finditer(text), maxlen=1)
    return found[0] if found else None


def _sentence(what: str, why: str, ranks: set[int]) -> str:
    return f"{what} of rank{'s' if len(ranks) > 1 else ''} {ranges(sorted(ranks))}: {why}"
