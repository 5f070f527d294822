"""Whether stated probabilities come true: Brier score, expected calibration error, log loss, each beside the base rate's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.model.doc import doc
from service.evaluation.proportions import Proportion

BINS = 10  # of equal width
RESAMPLES = 1000  # of the bootstrap that gives the interval
LEAST = 0.001  # a probability of 0 or 1 that fails would cost infinitely much
SURE = 0.9


class Bin(msgspec.Struct, frozen=True, kw_only=True):
    """Verdicts of about one probability."""

    stated: Annotated[float, doc("Their mean probability.")]
    right: Annotated[float, doc("The share of them that is right.")]
    n: Annotated[int, doc("How many there are.")]


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """How far the probability of the first culprit can be trusted, over the cases that name one."""

    right: Annotated[Proportion, doc("The base rate: how many first culprits are guilty.")]
    brier: Annotated[float, doc("The mean squared difference between probability and truth; less is better.")]
    brier_base: Annotated[float, doc("The same where every probability is the base rate.")]
    log_loss: Annotated[float, doc(f"In nats, with probabilities between {LEAST} and {1 - LEAST}; less is better.")]
    log_loss_base: Annotated[float, doc("The same where every probability is the base rate.")]
    ece: Annotated[float, doc(f"Expected calibration error over {BINS} bins of equal width.")]
    ece_95: Annotated[tuple[float, float], doc(f"Its 95 % interval, by a bootstrap of {RESAMPLES} resamples.")]
    sure: Annotated[Proportion, doc(f"Of the verdicts of {SURE} and more: how many are right.")]
    bins: Annotated[tuple[Bin, ...], doc("The bins that hold any, from the least probability on.")]


def calibrate(stated: Sequence[float], came_true: Sequence[bool]) -> Calibration | None:
    """Compare probabilities with what came true; None where there are none."""
    if not stated:
        return None
    p, y = np.asarray(stated, float), np.asarray(came_true, float)
    base = np.full_like(p, y.mean())
    sure = p >= SURE
    return Calibration(
        right=Proportion.counted(int(y.sum()), len(y)),
        brier=_rounded(np.mean((p - y) ** 2)),
        brier_base=_rounded(np.mean((base - y) ** 2)),
        log_loss=_rounded(_log_loss(p, y)),
        log_loss_base=_rounded(_log_loss(base, y)),
        ece=_rounded(_ece(p, y)),
        ece_95=_ece_interval(p, y),
        sure=Proportion.counted(int(y[sure].sum()), int(sure.sum())),
        bins=tuple(
            Bin(stated=_rounded(p[mine].mean()), right=_rounded(y[mine].mean()), n=int(mine.sum()))
            for mine in (_bin(p) == number for number in range(BINS))
            if mine.any()
        ),
    )


def _log_loss(p: NDArray[np.float64], y: NDArray[np.float64]) -> np.float64:
    bounded = np.clip(p, LEAST, 1 - LEAST)
    return np.float64(-np.mean(y * np.log(bounded) + (1 - y) * np.log(1 - bounded)))


def _ece(p: NDArray[np.float64], y: NDArray[np.float64]) -> np.float64:
    sums = np.bincount(_bin(p), weights=p - y, minlength=BINS)
    return np.float64(np.abs(sums).sum() / len(p))


def _bin(p: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.minimum((p * BINS).astype(np.int64), BINS - 1)


def _ece_interval(p: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    draws = np.random.default_rng(0)  # the same cases give the same interval
    chosen = (draws.integers(0, len(p), len(p)) for _ in range(RESAMPLES))
    low, high = np.quantile([_ece(p[rows], y[rows]) for rows in chosen], (0.025, 0.975))
    return _rounded(low), _rounded(high)


def _rounded(value: np.floating) -> float:
    return round(float(value), 4)
