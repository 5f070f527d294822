"""Bounds on evictions, whatever their reason: a budget of nodes an hour, and a circuit breaker that only a person closes.

    closed ── a share of the fleet's nodes was taken out within its time ──▶ open ── a person closes it ──▶ closed

A faulty detector names one node after the other, each with a plausible reason. Neither bound depends on reasons.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.remediation.types import Execution, Limits, RemediationState

BUDGET_SECONDS = 3_600.0


def most_nodes(limits: Limits, fleet_nodes: int) -> int:
    """Return how many nodes may be taken out within the breaker's time: the share, and at least the minimum."""
    return max(limits.breaker_least_nodes, int(limits.breaker_share * fleet_nodes))


def count_taken(executions: Iterable[Execution], since: float, but: str | None = None) -> int:
    """Return how many nodes were taken out after an instant, by other remediations than ``but``."""
    return sum(len(one.nodes) for one in executions if one.at > since and one.remediation != but)


def counted_after(limits: Limits, now: float) -> float:
    """Return the instant before which an execution counts no more."""
    return now - max(BUDGET_SECONDS, limits.breaker_seconds)


def explain_over_budget(state: RemediationState, nodes: int, now: float, but: str | None = None) -> str | None:
    """Say why so many more nodes exceed the budget of the hour; None: they do not."""
    before, most = count_taken(state.executions, now - BUDGET_SECONDS, but), state.limits.evictions_an_hour
    if before + nodes <= most:
        return None
    return (
        f"{before} nodes were taken out within the hour, and {nodes} more would pass the budget of {most}: "
        "wait, or raise evictions_an_hour in the policy"
    )


def explain_many_restarts(state: RemediationState, now: float, but: str | None = None) -> str | None:
    """Say why one more restart of a role exceeds the budget of the hour; None: it does not."""
    since, most = now - BUDGET_SECONDS, state.limits.role_restarts_an_hour
    before = sum(not one.nodes and one.at > since and one.remediation != but for one in state.executions)
    if before < most:
        return None
    return (
        f"{before} roles were restarted within the hour, and {most} may be: find out why they fail, or raise "
        "role_restarts_an_hour in the policy"
    )


def explain_open(state: RemediationState, nodes: int, now: float, but: str | None = None) -> str | None:
    """Say why the breaker forbids so many more nodes; None: it is closed, and stays so."""
    if state.trip is not None:
        close = "`faulthound breaker close --reason TEXT`"
        return f"the breaker is open: {state.trip.reason}; find the cause, then close it with {close}"
    before = count_taken(state.executions, _counted_after(state, now), but)
    most = most_nodes(state.limits, state.facts.fleet_nodes)
    if before + nodes <= most:
        return None
    return f"{before} nodes were taken out within {state.limits.breaker_seconds:,.0f} s, and {nodes} more would pass {most}"


def explain_trip(state: RemediationState, now: float) -> str | None:
    """Say why the breaker opens after an execution; None: it stays closed."""
    before, most = (
        count_taken(state.executions, _counted_after(state, now)),
        most_nodes(state.limits, state.facts.fleet_nodes),
    )
    if state.trip is not None or before < most:
        return None
    return f"{before} of {state.facts.fleet_nodes} nodes were taken out within {state.limits.breaker_seconds:,.0f} s"


def _counted_after(state: RemediationState, now: float) -> float:
    since = now - state.limits.breaker_seconds
    return since if state.breaker_closed_at is None else max(since, state.breaker_closed_at)
