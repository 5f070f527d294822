"""Whether a node that came back counts as healthy: after hours in which jobs ran well on it, or a check that it passed.

Hours by the clock prove nothing of a node that stood idle, so what counts is seen: the time between a job's steps. Trouble
makes the hours begin anew and moves no odds; where it comes to an eviction, that does (conviction.py).
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from analyzers.knowledge.convictions import Weights
from analyzers.remediation.node_history import HOUR_SECONDS, NodeEvent, NodeRecord, add_line, is_offender, update_record


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
    """Count that jobs ran well on it for so long, up to an instant; enough of it ends the burn-in."""
    if record.burn_in != "burning_in" or not (0.0 <= seconds < math.inf and until >= counted_from(record)):
        return record
    record = replace(record, stood_seconds=record.stood_seconds + seconds, stood_until=until)
    if left_seconds(record, weights) or is_offender(record, until, weights):
        return record
    note = f"{record.stood_seconds / HOUR_SECONDS:.1f} h"
    return update_record(record, NodeEvent(kind="burn_in_passed", note=note), until, weights)


def restart_hours(record: NodeRecord, at: float, note: str) -> NodeRecord:
    """Let the hours of a node under burn-in begin anew; trouble from before they began changes nothing."""
    if record.burn_in != "burning_in" or record.since is None or not at > record.since:
        return record
    return replace(add_line(record, at, "trouble", note), since=at, stood_seconds=0.0, stood_until=at)


def counted_from(record: NodeRecord) -> float:
    """Return the instant from which on a job's steps are not counted yet."""
    return max(record.since or 0.0, record.stood_until or 0.0)
