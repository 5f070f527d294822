"""A proportion with its exact 95 % bounds."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from analyzers.model.doc import doc


class Proportion(msgspec.Struct, frozen=True, kw_only=True):
    """How many of how many, with Clopper and Pearson's bounds."""

    count: Annotated[int, doc("How many.")]
    n: Annotated[int, doc("Of how many.")]
    low_95: Annotated[float, doc("The lower end of the exact 95 % interval.")]
    high_95: Annotated[float, doc("The upper end.")]

    @classmethod
    def counted(cls, count: int, n: int) -> Proportion:
        """Return a count with its bounds."""
        low, high = interval(count, n) if n else (0.0, 1.0)
        return cls(count=count, n=n, low_95=low, high_95=high)


def interval(successes: int, trials: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the Clopper–Pearson bounds of a proportion: exact, from quantiles of the beta distribution."""
    tail = (1 - confidence) / 2
    low = _beta_quantile(tail, successes, trials - successes + 1) if successes else 0.0
    high = _beta_quantile(1 - tail, successes + 1, trials - successes) if successes < trials else 1.0
    return round(low, 4), round(high, 4)


def _beta_quantile(probability: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _binomial_tail(middle, int(a), int(a + b - 1)) < probability else (low, middle)
    return (low + high) / 2


def _binomial_tail(p: float, least: int, trials: int) -> float:
    """Return P(X ≥ least) for X ~ Binomial(trials, p), which is the regularised incomplete beta I_p(least, …)."""
    if p in (0.0, 1.0):
        return p
    logs = (
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
        + k * math.log(p) + (trials - k) * math.log1p(-p)
        for k in range(least, trials + 1)
    )  # fmt: skip
    return math.fsum(math.exp(term) for term in logs)
