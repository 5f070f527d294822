"""Burn-in: a node that came back counts as healthy after hours in which jobs ran well on it, or after a passed check.

Idle hours prove nothing, so the time between a job's steps is counted. Trouble restarts the hours and moves no odds; an
eviction does (node_history.py).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from analyzers.knowledge.convictions import Weights
from analyzers.remediation.node_history import HOUR_SECONDS, NodeEvent, NodeRecord, add_line, is_offender, update_record

MOST_APART_SECONDS = 600.0  # the time between two steps that lie farther apart is not counted


class NodeTrouble(NamedTuple):
    """An incident shows the node at fault."""

    at: float
    note: str
    is_open: bool


class Observed(NamedTuple):
    """The record after an observation, and the audit entry that it deserves ("": none) with its reason."""

    record: NodeRecord
    audit: str = ""
    why: str = ""


def observe(
    record: NodeRecord, troubles: Collection[NodeTrouble], steps: Iterable[float], now: float, weights: Weights
) -> Observed:
    """Count the good hours of a node under burn-in, or restart them. ``steps``: instants of good steps on the node."""
    newest = max((one for one in troubles if one.at > (record.since or 0.0)), default=None)
    if newest is not None:
        return Observed(restart_hours(record, newest.at, newest.note), "node_troubled", newest.note)
    seconds, until = good_seconds(record, steps, now)
    if any(one.is_open for one in troubles):
        seconds, until = 0.0, max(until, now)
    after = add_good_seconds(record, seconds, until, weights)
    if after.burn_in == record.burn_in:
        return Observed(after)
    return Observed(after, "node_fit", f"jobs ran well on it for {after.history[-1].note}")


def good_seconds(record: NodeRecord, steps: Iterable[float], now: float) -> tuple[float, float]:
    """Return how long jobs ran well on a node since its steps were last counted, and up to when that is known."""
    after = counted_from(record)
    instants = sorted({at for at in steps if after < at <= now})
    if not instants:
        return 0.0, after
    # The begin of the first step after the return is unknown.
    marks = [after, *instants] if record.stood_seconds else instants
    apart = (later - earlier for earlier, later in pairwise(marks))
    return math.fsum(seconds for seconds in apart if seconds <= MOST_APART_SECONDS), instants[-1]


def explain_unfit(record: NodeRecord, now: float, weights: Weights) -> str | None:
    """Say why the node does not count as healthy yet; None: it does."""
    if record.burn_in == "healthy" or record.since is None:
        return None
    if record.burn_in == "out":
        return (
            f"{record.node} was taken out, or failed a check, and has not come back: check it, then let it serve again"
        )
    if is_offender(record, now, weights):
        return (
            f"{record.node} was evicted {len(record.evictions)} times in {weights.offender.days:g} days: "
            "good hours do not clear it, a passed check does"
        )
    if not left_seconds(record, weights):
        return None
    return (
        f"{record.node} came back, or had trouble, {(now - record.since) / HOUR_SECONDS:.1f} h ago; jobs ran well on it for "
        f"{record.stood_seconds / HOUR_SECONDS:.1f} h since, of {weights.burn_in.hours:g}: wait, or check it"
    )


def left_seconds(record: NodeRecord, weights: Weights) -> float:
    """Return for how long jobs must still run well on a node under burn-in."""
    return max(0.0, weights.burn_in.hours * HOUR_SECONDS - record.stood_seconds)


def add_good_seconds(record: NodeRecord, seconds: float, until: float, weights: Weights) -> NodeRecord:
    """Add time in which jobs ran well on it, up to an instant; enough of it ends the burn-in."""
    if record.burn_in != "burning_in" or not (0.0 <= seconds < math.inf and until >= counted_from(record)):
        return record
    record = replace(record, stood_seconds=record.stood_seconds + seconds, stood_until=until)
    if left_seconds(record, weights) or is_offender(record, until, weights):
        return record
    note = f"{record.stood_seconds / HOUR_SECONDS:.1f} h"
    return update_record(record, NodeEvent(kind="burn_in_passed", note=note), until, weights)


def restart_hours(record: NodeRecord, at: float, note: str) -> NodeRecord:
    """Restart the hours of a node under burn-in; trouble from before their begin changes nothing."""
    if record.burn_in != "burning_in" or record.since is None or not at > record.since:
        return record
    return replace(add_line(record, at, "trouble", note), since=at, stood_seconds=0.0, stood_until=at)


def counted_from(record: NodeRecord) -> float:
    """Return the instant up to which steps have been counted."""
    return max(record.since or 0.0, record.stood_until or 0.0)
