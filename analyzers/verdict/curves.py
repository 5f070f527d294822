"""The rows of ``calibration.toml``: how often claims of one kind were true, by the strength of their evidence."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, get_args

import msgspec

from analyzers.knowledge import Knowledge
from analyzers.knowledge.typed import typed
from analyzers.model.fault_classes import fault_class
from analyzers.model.finding import Family

Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Claim = Literal["one", "set"]
"""That this one is guilty, or that one of these is."""
Key = tuple[str, str, Claim]
"""Family of evidence, fault class, claim."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """The probability of claims of one kind. ``points``: (strength, probability), neither ever falls from one to the next."""

    learned_on: Literal["simulator", "site"]
    n: Count
    right: Count
    points: tuple[tuple[Share, Share], ...]

    def probability(self, strength: float) -> float:
        """Return the probability of a claim, on straight lines from (0, 0) through the points to (1, 1).

        Where no claim of such strength was seen it is not more than the strength, or than the next weaker ones seen.
        Beyond the strongest that was seen is what other evidence agrees with. Independent evidence divides the doubt that is
        left, 1 - strength, and the last line divides 1 - probability by as much.
        """
        points = ((0.0, 0.0), *self.points, (1.0, 1.0))
        place = min(bisect.bisect_left([one for one, _ in self.points], strength), len(self.points))
        (low, least), (high, most) = points[place : place + 2]
        if strength >= high or high <= low:
            return most
        between = least + (most - least) * (strength - low) / (high - low)
        return min(most, max(least, min(between, strength)))


class Calibrations(msgspec.Struct, frozen=True, kw_only=True):
    """All curves: family → fault class → claim."""

    curve: dict[str, dict[str, dict[Claim, Curve]]] = {}

    def find(self, key: Key) -> Curve | None:
        """Return the curve of one kind of claim, None where nothing was learned of it."""
        family, name, claim = key
        return self.curve.get(family, {}).get(name, {}).get(claim)


def calibrations(knowledge: Knowledge) -> Calibrations:
    """Return the curves; raise KnowledgeRowError where one cannot be read."""
    return typed(knowledge, "calibration", Calibrations)


def problems(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is unusable in a site's document: the thing, its value, and what it must be."""
    yield from (f"[{name}] is no part of calibration.toml" for name in document.keys() - {"curve", "source", "date"})
    try:
        found = msgspec.convert(document, Calibrations)
    except msgspec.ValidationError as problem:
        yield str(problem)
        return
    for family, classes in found.curve.items():
        if family not in get_args(Family):
            yield f"curve.{family}: there is no such family of evidence; there are {', '.join(get_args(Family))}"
        for name, claims in classes.items():
            if not fault_class(name).claimed_by:
                yield f"curve.{family}.{name}: there is no such fault class (docs/reference.md has them)"
            for claim, curve in claims.items():
                yield from (f"curve.{family}.{name}.{claim}: {problem}" for problem in _problems_of(curve))


def _problems_of(curve: Curve) -> Iterator[str]:
    if curve.right > curve.n:
        yield f"right = {curve.right} is more than n = {curve.n}"
    if not curve.points:
        yield "points is empty: give at least one [strength, probability]"
    if not _rises(curve.points):
        yield f"points = {[list(one) for one in curve.points]}: more strength must never give less probability"


def _rises(points: Sequence[tuple[float, float]]) -> bool:
    return all(one[0] < other[0] and one[1] <= other[1] for one, other in pairwise(points))
