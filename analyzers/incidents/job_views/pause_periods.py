"""Every how many steps a job pauses, as far as its pauses determine that: what is said of them, not what silence is allowed.

A period is stated where every place of it that was observed had a pause, from the first observed step to the newest, and not by
chance. Of several that fit the same pauses the shortest is stated; pauses of two schedules may lie among one another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb
from typing import NamedTuple

import numpy as np

from analyzers.model.medians import median

CHANCE = 0.01  # of any such period among pauses that come by chance
FEWEST, FEWEST_FROM_ZERO = 4, 3  # pauses; fewer suffice where the place before the first is the count's begin
MOST_WITHIN = 0.05  # of a period, that it is known by
LEVEL_TIMES = 1.5  # pauses that are so much longer than the next shorter ones may have a schedule of their own
LONGER_TIMES = 2.0  # than those among which they lie


class Pause(NamedTuple):
    """A long interval: after which step, and when it ended."""

    at: float
    step: int
    seconds: float
    early: bool = False  # it came before the job had a rhythm
    steps: int = 1  # that ended in it: it may have come after any of them but the last

    @property
    def since(self) -> float:
        """Return when it began."""
        return self.at - self.seconds


class Thinned(NamedTuple):
    """Which long intervals are not among the pauses: none after this step, and none longer."""

    step: int = -1
    seconds: float = 0.0

    def and_one(self, step: int, seconds: float) -> Thinned:
        """Return it with one more interval that was left out."""
        return Thinned(max(step, self.step), max(seconds, self.seconds))


NONE_LEFT_OUT = Thinned()


class Recurrence(NamedTuple):
    """Pauses that come every ``period`` steps, give or take ``within``: ``place`` is the step before the newest of them."""

    period: int
    within: int
    place: int
    seconds: float


def recurrences(pauses: Sequence[Pause], first: int, newest: int, thinned: Thinned = NONE_LEFT_OUT) -> list[Recurrence]:
    """Return the periods that pauses determine, the shortest pauses first.

    ``pauses``: by instant. ``first``, ``newest``: the steps between which each pause is known, but for those that were thinned.
    """
    found = list[tuple[frozenset[Pause], int, int]]()
    pauses, first = _newest_count(pauses, first)
    for least in _levels(pauses):
        since = max(first, thinned.step + 1) if least <= LEVEL_TIMES * thinned.seconds else first
        level = [one for one in pauses if one.seconds >= least and one.step >= since]
        for hits, low, high in sorted(_complete(level, since, newest), key=lambda one: one[1:]):
            shortest, own = min(one.seconds for one in hits), frozenset(hits)
            if not any(own <= other and shortest <= LONGER_TIMES * _seconds(other) for other, *_ in found):
                found.append((own, low, high))
    return [_recurrence(found, place) for place in range(len(found))]


def _recurrence(found: Sequence[tuple[frozenset[Pause], int, int]], place: int) -> Recurrence:
    """Return one of them as it is stated: its seconds are of pauses that are of no other, where there are such."""
    own, low, high = found[place]
    shared = frozenset(one for other, *_ in found if other is not own for one in other)
    middle = (low + high) // 2
    return Recurrence(middle, high - middle, max(one.step for one in own), _seconds(own - shared or own))


def _seconds(pauses: frozenset[Pause]) -> float:
    return median(np.array([one.seconds for one in pauses]))


def _newest_count(pauses: Sequence[Pause], first: int) -> tuple[Sequence[Pause], int]:
    """Return the pauses since steps were last counted anew, and the first step since when they are known."""
    for place in range(len(pauses) - 1, 0, -1):
        if pauses[place].step <= pauses[place - 1].step:
            return pauses[place:], pauses[place].step
    return pauses, max(first, 1)  # a job does not pause before its first step


def _levels(pauses: Sequence[Pause]) -> Iterator[float]:
    """Yield the least seconds of each group of pauses that last alike, and of all that last longer."""
    before = 0.0
    for seconds in sorted(one.seconds for one in pauses):
        if seconds > LEVEL_TIMES * before:
            yield seconds
        before = seconds


def _complete(pauses: Sequence[Pause], since: int, newest: int) -> Iterator[tuple[list[Pause], int, int]]:
    """Yield pauses at all observed places of a period, and the least and the most steps that it may have."""
    for number, one in enumerate(pauses):
        for following in range(number + 1, len(pauses)):
            if one.step - _most(one, pauses[following]) >= since:
                continue  # the place before the first one was observed
            hits, low, high = _followed(pauses, number, following)
            middle, last = (low + high) // 2, hits[-1]
            fewest = FEWEST_FROM_ZERO if one.step - high <= 1 else FEWEST
            passed = last.step + max(last.steps, 1) - 1 + high < newest
            if len(hits) >= fewest and not passed and high - middle <= MOST_WITHIN * middle:
                width = 2 * max(hit.steps for hit in hits) - 1
                if comb(len(pauses), len(hits)) * (width / max(newest - since, width)) ** (len(hits) - 2) <= CHANCE:
                    yield hits, low, high


def _followed(pauses: Sequence[Pause], first: int, second: int) -> tuple[list[Pause], int, int]:
    """Return two pauses and those at the places that follow, up to the first place without one, and the bounds of the period."""
    hits = [pauses[first], pauses[second]]
    low, high = _least(*hits), _most(*hits)
    for one in pauses[second + 1 :]:
        if _least(hits[-1], one) > high:
            break
        apart = range(len(hits), 0, -1)
        least = max(low, *(-(-_least(hit, one) // times) for hit, times in zip(hits, apart, strict=True)))
        most = min(high, *(_most(hit, one) // times for hit, times in zip(hits, apart, strict=True)))
        if least <= most:
            hits, low, high = [*hits, one], least, most
    return hits, low, high


def _least(one: Pause, later: Pause) -> int:
    return max(later.step - one.step - max(one.steps, 1) + 1, 1)


def _most(one: Pause, later: Pause) -> int:
    return later.step + max(later.steps, 1) - 1 - one.step
