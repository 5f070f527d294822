"""How long an instance works at a step, apart from its waits: its own past, and whether its peers changed alike.

Ranks that train together finish each step together, so their steps and phases say nothing of who is slow. The seconds in which
an instance waited for no other do, where it says what it waits for. Work differs between instances by design (stages, shards)
and grows for all as answers become longer: so an instance is compared with itself, and the change with that of its peers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, sqrt
from statistics import fmean, median

MOST_PACES, RECENT, PACE_SECONDS = 48, 24, 15.0
LEAST_SPANS = 5  # on each side of a change: some of them hold a checkpoint
LATEST = 3  # it has not ended
LEAST_ERRORS = 6.0  # a job is looked at for days, at every split: chance has to be far

_Seat = tuple[str, str]  # role and instance


@dataclass(frozen=True, slots=True)
class Pace:
    """How many steps were done, and how many seconds worked, at one instant."""

    at: float
    steps: int
    worked: float


@dataclass(frozen=True, slots=True)
class Change:
    """Since when a step takes how many times as long, and how many times as long the peer that changed most with it."""

    at: float
    times: float
    beside: float = 0.0


@dataclass(frozen=True, slots=True)
class _Span:
    at: float  # its end
    a_step: float  # seconds


def add_pace(paces: list[Pace], pace: Pace) -> None:
    """Keep a reading that shows progress: the recent ones, and some of the whole past at about even distances."""
    if paces and (pace.steps < paces[-1].steps or pace.worked < paces[-1].worked):
        paces.clear()  # another process
    if paces and (pace.at - paces[-1].at < PACE_SECONDS or pace.steps == paces[-1].steps):
        return
    paces.append(pace)
    if len(paces) > MOST_PACES:
        del paces[min(range(1, MOST_PACES - RECENT), key=lambda place: paces[place + 1].at - paces[place - 1].at)]


def slower_than_before(
    paces: Mapping[_Seat, Sequence[Pace]], seconds: float, factor: float
) -> Iterator[tuple[_Seat, Change]]:
    """Yield who has worked ``factor`` times as long at a step as before for so many ``seconds``, while no peer changed so.

    ``paces``: of the instances of one role. None is named without a past, or where no peer shows that the work is the same.
    """
    spans = {seat: _spans(of) for seat, of in paces.items()}
    for seat, own in spans.items():
        change = _change(own, seconds, factor)
        if change is None:
            continue
        peers = [_times(other, change.at) for name, other in spans.items() if name != seat]
        known = [times for times in peers if times is not None]
        if 2 * len(known) > len(peers) and all(times * factor <= change.times for times in known):
            yield seat, Change(change.at, change.times, max(known))


def _spans(paces: Sequence[Pace]) -> list[_Span]:
    return [_Span(new.at, (new.worked - old.worked) / (new.steps - old.steps)) for old, new in pairwise(paces)]


def _change(spans: Sequence[_Span], seconds: float, factor: float) -> Change | None:
    """Return the greatest change that has lasted so long and goes on; None: there is none of ``factor``."""
    if len(spans) < 2 * LEAST_SPANS:
        return None
    ordered = sorted(span.a_step for span in spans)
    middle = LEAST_SPANS // 2
    if ordered[-1 - middle] < factor * ordered[middle]:  # no split has such medians
        return None
    found = Change(0.0, 0.0)
    for place in range(LEAST_SPANS, len(spans) - LEAST_SPANS + 1):
        at = spans[place - 1].at
        if spans[-1].at - at < seconds:
            break
        before, after = _sides(spans, at)
        latest = median(after[-LATEST:])
        times = min(median(after), latest) / max(median(before), 1e-9)
        if times > found.times and _errors(before, after) >= LEAST_ERRORS:
            found = Change(at, times)
    return found if found.times >= factor else None


def _errors(before: Sequence[float], after: Sequence[float]) -> float:
    """Return by how many standard errors the logarithms of the two differ: Student's t, with one variance for both."""
    old, new = ([log(max(seconds, 1e-6)) for seconds in side] for side in (before, after))
    means = [fmean(side) for side in (old, new)]
    squares = sum((one - mean) ** 2 for side, mean in zip((old, new), means, strict=True) for one in side)
    spread = squares / (len(old) + len(new) - 2)
    return (means[1] - means[0]) / max(sqrt(spread * (1 / len(old) + 1 / len(new))), 1e-9)


def _sides(spans: Sequence[_Span], at: float) -> tuple[list[float], list[float]]:
    return [one.a_step for one in spans if one.at <= at], [one.a_step for one in spans if one.at > at]


def _times(spans: Sequence[_Span], at: float) -> float | None:
    """Return how many times as long a step takes after an instant as before it; None where too little is known."""
    before, after = _sides(spans, at)
    if len(before) < LATEST or len(after) < LATEST:
        return None
    return median(after) / max(median(before), 1e-9)
