"""How many warm standbys a job needs: a quantile of the nodes that fail on one day, at the fleet's own rate.

The failures of one day are Binomial(nodes, rate), and the standbys their p99, as in ByteRobust. The rate is learned: a Gamma
prior, worth a few failures in some node-days, and the fleet's own history.
"""

from __future__ import annotations

import math

import msgspec

from analyzers.knowledge.convictions import PriorRate

MOST_NODES = 1_000_000
MOST_FAILURES = 100_000
INTERVAL = 0.95
_HALVINGS = 60
_SPREAD = 12.0  # standard deviations: the probability beyond is below the precision of a float


class FleetRate(msgspec.Struct, frozen=True, kw_only=True):
    """Failures a node and day: the mean, and the interval that holds the rate with 95 %."""

    per_node_day: float
    low: float
    high: float


def estimate_rate(failures: int, node_days: float, prior: PriorRate) -> FleetRate:
    """Return the rate of a history: failures that took a node out, and the node-days in which they were counted."""
    if not 0 <= failures <= MOST_FAILURES:
        raise ValueError(f"failures = {failures} is not between 0 and {MOST_FAILURES:,}: count them again")
    if not 0.0 <= node_days < math.inf:
        raise ValueError(f"node_days = {node_days} is no number of days from 0 on: count nodes × days")
    shape, days = prior.failures + failures, prior.node_days + node_days
    tail = (1.0 - INTERVAL) / 2.0
    return FleetRate(
        per_node_day=shape / days,
        low=_gamma_quantile(shape, tail) / days,
        high=_gamma_quantile(shape, 1.0 - tail) / days,
    )


def count_standbys(nodes: int, failures_a_node_day: float, quantile: float = 0.99) -> int:
    """Return the least number of nodes that the failures of one day exceed with a probability of 1 − ``quantile``."""
    if not 0 <= nodes <= MOST_NODES:
        raise ValueError(f"nodes = {nodes} is not between 0 and {MOST_NODES:,}: give the nodes of the job")
    if not 0.0 <= failures_a_node_day <= 1.0:
        raise ValueError(
            f"failures_a_node_day = {failures_a_node_day} is no probability: a node fails once a day at most"
        )
    if not 0.0 < quantile < 1.0:
        raise ValueError(f"quantile = {quantile} is not between 0 and 1: 0.99 leaves one day in a hundred without")
    if failures_a_node_day == 1.0:
        return nodes
    below = 0.0
    for failed in range(nodes):
        below += math.exp(_log_binomial(failed, nodes, failures_a_node_day))
        if below >= quantile:
            return failed
    return nodes


def _log_binomial(failed: int, nodes: int, rate: float) -> float:
    """Return the logarithm of the probability, which the probability itself would lose below 1e-308."""
    if rate == 0.0:
        return 0.0 if failed == 0 else -math.inf
    ways = math.lgamma(nodes + 1) - math.lgamma(failed + 1) - math.lgamma(nodes - failed + 1)
    return ways + failed * math.log(rate) + (nodes - failed) * math.log1p(-rate)


def _gamma_quantile(shape: int, quantile: float) -> float:
    """Return the quantile of Gamma(shape, 1), by halving: its tail is a Poisson sum where the shape is whole."""
    low, high = 0.0, shape + _SPREAD * math.sqrt(shape) + 40.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _gamma_below(shape, middle) < quantile else (low, middle)
    return (low + high) / 2.0


def _gamma_below(shape: int, value: float) -> float:
    """Return P(Gamma(shape, 1) ≤ value): that at least ``shape`` events of a Poisson process came by then."""
    if value <= 0.0:
        return 0.0
    spread = _SPREAD * math.sqrt(value) + 40.0
    counts = range(max(0, int(value - spread)), shape)
    return max(0.0, 1.0 - math.fsum(math.exp(k * math.log(value) - value - math.lgamma(k + 1)) for k in counts))
