"""How much an instance does, a second and a request, between two instants."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from analyzers.model.role_instances import Instance

LEAST_SPANS, LEAST_DONE = 3, 4  # of a speed: readings, and what was done


@dataclass(frozen=True, slots=True)
class Speed:
    """What was done a second, a request and second, and for which share of the time it was busy."""

    a_second: float
    a_request: float
    busy: float


def speed_of(one: Instance, since: float, until: float = 1e18, least: int = LEAST_DONE) -> Speed | None:
    """Return what an instance did between two instants; None where too little was read, or less than ``least`` done."""
    marks = [mark for mark in one.marks if since <= mark.at < until]
    spans = [(b.at - a.at, a.running, b.done - a.done) for a, b in pairwise(marks) if b.done >= a.done]
    seconds, done = sum(span[0] for span in spans), sum(span[2] for span in spans)
    work = sum(span * running for span, running, _ in spans)
    if len(spans) < LEAST_SPANS or done < least or not work:
        return None
    return Speed(done / seconds, done / work, sum(span for span, running, _ in spans if running) / seconds)


def alike(one: Instance, other: Instance) -> bool:
    """Whether two had about as many requests: each takes longer the more there are."""
    mine, theirs = (sum(mark.running for mark in who.marks[-8:]) / max(1, len(who.marks[-8:])) for who in (one, other))
    return min(mine, theirs) * 2 >= max(mine, theirs) > 0
