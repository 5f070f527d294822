"""Learns how often claims come true, by their kind and the strength of their evidence, and holds that against cases left out.

scikit-learn fits; what it has learned is points that judging reads without it (``calibration.toml``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from analyzers.verdict.curves import Curve, Key
from service.evaluation.calibration import LEAST, Calibration, calibrate
from service.evaluation.forecasts import Forecast

FOLDS = 5
PRIORS = (2.0, 8.0, 32.0)
"""As many claims as if seen before, of each kind and strength, at the probability that was stated."""
FEWEST_CASES = 20  # fewer cannot be held against one another
FEWEST_CLAIMS = 10  # of a kind: of fewer nothing is learned
Numbers = NDArray[np.float64]
Fit = Callable[[Numbers, Numbers, Numbers], Numbers]
"""Strengths, truths and weights → the probability at each strength, which never falls with it."""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to learn a curve. ``prior``: how many cases what was stated before counts for, so that few cases move little."""

    name: str
    prior: float


@dataclass(frozen=True, slots=True)
class Learned:
    """Curves of all cases, and how the method that made them does on cases that it has not seen."""

    method: Method
    curves: Mapping[Key, Curve]
    before: dict[str, Calibration]  # "first" culprits, and "all"
    after: dict[str, Calibration]

    @property
    def worse(self) -> str:
        """What got worse on held-out cases; empty: nothing."""
        for which, old in self.before.items():
            new = self.after[which]
            for name, was, becomes in (("Brier score", old.brier, new.brier), ("log loss", old.log_loss, new.log_loss)):
                if becomes > was:
                    return f"the {name} of {which} culprits rises from {was:.4f} to {becomes:.4f}"
        return ""


def is_possible() -> bool:
    """Whether scikit-learn is installed, of the extra ``tables``."""
    try:
        from sklearn import __version__  # noqa: F401
    except ImportError:
        return False
    return True


def learn(forecasts: Sequence[Forecast]) -> Learned:
    """Choose a method and learn with it; each case is judged by curves that were learned, and chosen, without it."""
    after = np.array([one.stated for one in forecasts])
    for train, test in _folds(forecasts):
        known = [forecasts[number] for number in train]
        curves = fit(known, _choose(known))
        after[test] = [probability(forecasts[number], curves) for number in test]
    method = _choose(forecasts)
    stated = np.array([one.stated for one in forecasts])
    return Learned(method, fit(forecasts, method), _held_out(forecasts, stated), _held_out(forecasts, after))


def fit(forecasts: Iterable[Forecast], method: Method) -> dict[Key, Curve]:
    """Return a curve for each kind of claim of which there are enough."""
    kinds: dict[Key, list[Forecast]] = defaultdict(list)
    for one in forecasts:
        kinds[one.key].append(one)
    return {key: _curve(found, method) for key, found in sorted(kinds.items()) if len(found) >= FEWEST_CLAIMS}


def probability(one: Forecast, curves: Mapping[Key, Curve]) -> float:
    """Return what these curves state of a claim; of a kind that they do not have, what is stated today."""
    return curves[one.key].probability(one.strength) if one.key in curves else one.stated


def _curve(found: Sequence[Forecast], method: Method) -> Curve:
    strengths, truths, weights = map(np.array, zip(*_weighed(found, method.prior), strict=True))
    places = np.unique(strengths)
    if len(places) > 1:
        fitted = FITS[method.name](strengths, truths, weights)
        at = [float(fitted[strengths == place][0]) for place in places]
    else:
        at = [float(np.average(truths, weights=weights))]
    most = (len(found) + 1) / (len(found) + 2)  # Laplace: as if one more had been right, and one wrong
    points = tuple((float(place), round(min(value, most), 4)) for place, value in zip(places, at, strict=True))
    learned_on: Literal["simulator", "site"] = "simulator" if found[0].origin == "simulator" else "site"
    right = sum(one.guilty for one in found)
    return Curve(learned_on=learned_on, n=len(found), right=right, points=points)


def _weighed(found: Sequence[Forecast], prior: float) -> Iterator[tuple[float, float, float]]:
    """Yield strengths, truths and weights: of what was seen, and at each strength of what was stated, as so many claims.

    Simulated cases start from the strengths themselves: a table that was learned from them before is no second witness.
    """
    seen = Counter((one.strength, one.guilty) for one in found)
    stated = {one.strength: one.strength if one.origin == "simulator" else one.stated for one in found}
    for strength, believed in stated.items():
        yield strength, 1.0, seen[strength, True] + prior * believed
        yield strength, 0.0, seen[strength, False] + prior * (1.0 - believed)


def _isotonic(strengths: Numbers, truths: Numbers, weights: Numbers) -> Numbers:
    from sklearn.isotonic import IsotonicRegression

    found: Numbers = IsotonicRegression(y_min=0.0, y_max=1.0).fit(strengths, truths, weights).predict(strengths)
    return found


def _logistic(strengths: Numbers, truths: Numbers, weights: Numbers) -> Numbers:
    from sklearn.linear_model import LogisticRegression

    bounded = np.clip(strengths, LEAST, 1 - LEAST)
    odds = np.log(bounded / (1 - bounded)).reshape(-1, 1)
    model = LogisticRegression(C=np.inf, solver="newton-cholesky").fit(odds, truths, weights)
    if model.coef_[0, 0] < 0:  # more evidence must not count for less
        return np.full_like(strengths, np.average(truths, weights=weights))
    found: Numbers = model.predict_proba(odds)[:, 1]
    return found


FITS: Mapping[str, Fit] = {"isotonic": _isotonic, "logistic": _logistic}


def _choose(forecasts: Sequence[Forecast]) -> Method:
    """Return the most cautious method that loses no more on cases left out than the best one, but for what chance may do.

    That is the largest prior whose losses lie, claim by claim, within a standard error of the best one's.
    """
    methods = [Method(name, prior) for prior, name in product(sorted(PRIORS, reverse=True), FITS)]
    losses = [_losses(forecasts, method) for method in methods]
    best = min(losses, key=lambda lost: float(lost.mean()))
    further = [lost - best for lost in losses]
    enough = (more.mean() <= more.std() / np.sqrt(len(more)) for more in further)
    return next(method for method, one in zip(methods, enough, strict=True) if one)


def _losses(forecasts: Sequence[Forecast], method: Method) -> Numbers:
    lost = np.zeros(len(forecasts))
    for train, test in _folds(forecasts):
        curves = fit((forecasts[number] for number in train), method)
        for number in test:
            claimed = min(max(probability(forecasts[number], curves), LEAST), 1 - LEAST)
            lost[number] = -np.log(claimed if forecasts[number].guilty else 1 - claimed)
    return lost


def _folds(forecasts: Sequence[Forecast]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield (learned from, left out); all claims of one case are on one side."""
    from sklearn.model_selection import GroupKFold

    yield from GroupKFold(FOLDS).split(np.zeros(len(forecasts)), groups=[one.case for one in forecasts])


def _held_out(forecasts: Sequence[Forecast], claimed: Numbers) -> dict[str, Calibration]:
    chosen = {"first": [one.first for one in forecasts], "all": [True] * len(forecasts)}
    found = {}
    for which, mine in chosen.items():
        numbers = np.flatnonzero(mine).tolist()
        compared = calibrate(claimed[numbers].tolist(), [forecasts[number].guilty for number in numbers])
        if compared is not None:
            found[which] = compared
    return found
