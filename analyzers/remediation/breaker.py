"""What bounds evictions whatever their reason: a budget of nodes an hour, and a breaker that only a person closes.

    closed ── a share of the fleet's nodes was taken out within its time ──▶ open ── a person has looked ──▶ closed

A detector that has gone mad names one node after the other, each with good reason. Neither bound asks for reasons.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.remediation.types import Book, Execution, Limits

BUDGET_SECONDS = 3_600.0


def nodes_bound(limits: Limits, fleet_nodes: int) -> int:
    """Return how many nodes may be taken out within the breaker's time: the share, and never fewer than the least."""
    return max(limits.breaker_least_nodes, int(limits.breaker_share * fleet_nodes))


def taken(executions: Iterable[Execution], since: float, but: str | None = None) -> int:
    """Return how many nodes were taken out after an instant, by other remediations than ``but``."""
    return sum(len(one.nodes) for one in executions if one.at > since and one.remediation != but)


def kept_after(limits: Limits, now: float) -> float:
    """Return the instant before which an execution counts nowhere any more."""
    return now - max(BUDGET_SECONDS, limits.breaker_seconds)


def over_budget(book: Book, nodes: int, now: float, but: str | None = None) -> str | None:
    """Say why so many nodes more are too many for the hour; None: they are not."""
    before, most = taken(book.executions, now - BUDGET_SECONDS, but), book.limits.evictions_an_hour
    if before + nodes <= most:
        return None
    return (
        f"{before} nodes were taken out within the hour, and {nodes} more would pass the budget of {most}: "
        "wait, or raise evictions_an_hour in the policy"
    )


def open_because(book: Book, nodes: int, now: float, but: str | None = None) -> str | None:
    """Say why the breaker keeps so many nodes more from being taken out; None: it is closed, and stays so."""
    if book.trip is not None:
        return f"the breaker is open: {book.trip.reason}; look, and close it with `faulthound breaker close`"
    before = taken(book.executions, _counted_after(book, now), but)
    most = nodes_bound(book.limits, book.facts.fleet_nodes)
    if before + nodes <= most:
        return None
    return (
        f"{before} nodes were taken out within {book.limits.breaker_seconds:,.0f} s, and {nodes} more would pass {most}"
    )


def trips(book: Book, now: float) -> str | None:
    """Say why the breaker opens after what was executed; None: it stays closed."""
    before, most = taken(book.executions, _counted_after(book, now)), nodes_bound(book.limits, book.facts.fleet_nodes)
    if book.trip is not None or before < most:
        return None
    return f"{before} of {book.facts.fleet_nodes} nodes were taken out within {book.limits.breaker_seconds:,.0f} s"


def _counted_after(book: Book, now: float) -> float:
    since = now - book.limits.breaker_seconds
    return since if book.breaker_closed_at is None else max(since, book.breaker_closed_at)
