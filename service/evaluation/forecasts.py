"""What a verdict claims of each culprit, and whether it was true: the cases that calibration is learned from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from analyzers.model.verdict import Culprit, Verdict
from analyzers.verdict.calibrated import key_of
from analyzers.verdict.curves import Key


@dataclass(frozen=True, slots=True)
class Forecast:
    """One culprit of one case. ``first``: it is the one that a verdict is judged by."""

    case: str
    origin: str  # real or simulator
    key: Key
    strength: float  # by the evidence alone
    stated: float  # by the tables of today
    guilty: bool
    first: bool


class UnusableIncident(ValueError):
    """A document is of no incident that anything can be learned from; the message is the reason."""


def forecasts_of(case: str, origin: str, verdict: Verdict, is_guilty: Callable[[Culprit], bool]) -> Iterator[Forecast]:
    """Yield a forecast for each culprit of a root whose kind of claim is known."""
    keys = {root.root: key_of(root, verdict) for root in verdict.roots}
    for number, one in enumerate(verdict.culprits):
        if (key := keys.get(one.root)) is not None:
            yield Forecast(case, origin, key, one.weight, one.probability, is_guilty(one), number == 0)


def forecasts_of_incident(name: str, shown: Mapping[str, Any]) -> list[Forecast]:
    """Return the forecasts of ``incidents show ID --json``: the operator's newest feedback on the newest verdict is the truth.

    A right verdict has its first culprit right; of the others feedback says nothing.
    """
    try:
        incident, verdict = shown["incident"], msgspec.convert(shown["verdict"], Verdict)
        feedback = [one for one in incident["feedback"] if one["judgement"] != "unclear"]
        version = incident["verdict"]["version"]
    except (KeyError, TypeError, msgspec.ValidationError):
        raise UnusableIncident(
            "it is not what `faulthound incidents show ID --json` prints, or has no verdict"
        ) from None
    if not feedback:
        raise UnusableIncident("it has no feedback of right or wrong (`faulthound incidents feedback --help`)")
    if feedback[0]["verdict_version"] != version:
        raise UnusableIncident(f"its feedback is not on version {version} of its verdict, the newest")
    found = [
        one for one in forecasts_of(name, "real", verdict, lambda _: feedback[0]["judgement"] == "right") if one.first
    ]
    if not found:
        raise UnusableIncident("its verdict names nothing, or an older program wrote it, without the kinds of evidence")
    return found
