"""From the strength of evidence to a stated probability, by the curves of ``calibration.toml``.

The last step of a verdict: what it names and its action stand by then, and rest on strengths alone (docs/decisions/0050). What an
action says of all machines is as sure as the probability: no chance of one half clears them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from analyzers.knowledge import Knowledge
from analyzers.model.verdict import SETS, Culprit, Root, Verdict
from analyzers.verdict.build import MOST_SUSPECTS
from analyzers.verdict.curves import Claim, Curve, Key, calibrations

UNKNOWN = "unknown"
SURE, LIKELY = 0.8, 0.6
"""From here on a probability is said to be very likely, and likely."""
_CLEARED = re.compile(r"(?:the [a-z ]+ is the cause: )?(no machine(?: of the job)? is at fault)(?! as far as is seen)")
LEAST_SHARE = 1e-6  # that four digits cannot show: nothing is divided by less


def calibrated(verdict: Verdict, knowledge: Knowledge) -> Verdict:
    """Return the verdict with the probabilities of those roots calibrated of whose kind something was learned."""
    curves = calibrations(knowledge)
    known = {
        root.root: curve
        for root in verdict.roots
        if (key := key_of(root, verdict)) is not None and (curve := curves.find(key)) is not None
    }
    if not known:
        return verdict
    return replace(
        verdict,
        roots=tuple(_root(root, known.get(root.root)) for root in verdict.roots),
        culprits=tuple(_stated(one, known[one.root]) if one.root in known else one for one in verdict.culprits),
        suspects=tuple(_suspects(verdict, known)),
    )


def key_of(root: Root, verdict: Verdict) -> Key | None:
    """Return what kind of claim a root makes; None where it names nothing."""
    culprits = [one for one in verdict.culprits if one.root == root.root]
    if not culprits or not root.families:
        return None
    others = sum(one.root == root.root and one.kind != UNKNOWN for one in verdict.suspects)
    a_set = culprits[0].kind in SETS or (len(culprits) == 1 and others > 1)
    claim: Claim = "set" if a_set else "one"
    return root.families[0], root.fault_class, claim


def _root(root: Root, curve: Curve | None) -> Root:
    return root if curve is None else replace(root, calibration=curve.learned_on, n=curve.n)


def _stated(one: Culprit, curve: Curve) -> Culprit:
    return replace(one, probability=round(curve.probability(one.probability), 4), strength=one.probability)


def _suspects(verdict: Verdict, known: Mapping[str, Curve]) -> list[Culprit]:
    """Return all suspects; those of a root stay in their order and sum to 1 with "unknown"."""
    found: list[Culprit] = []
    for label in dict.fromkeys(one.root for one in verdict.suspects):
        mine = [one for one in verdict.suspects if one.root == label]
        culprits = [one for one in verdict.culprits if one.root == label]
        found += _shared(mine, culprits, known[label]) if label in known else mine
    return found[:MOST_SUSPECTS]


def _shared(suspects: Sequence[Culprit], culprits: Sequence[Culprit], curve: Curve) -> list[Culprit]:
    """Share out the probability of what a root names, as the suspects shared its strength before."""
    own = [one for one in suspects if one.kind != UNKNOWN]
    before = sum(one.probability for one in own)
    claimed = curve.probability(min(1.0, before) if len(culprits) > 1 else culprits[0].probability)
    # Of a list that was cut off the rest is part of what is claimed.
    factor = claimed / max(before, culprits[0].probability if len(culprits) == 1 else 0.0, LEAST_SHARE)
    shared = [replace(one, probability=round(one.probability * factor, 4), strength=one.probability) for one in own]
    rest = round(1 - claimed, 4)
    if len(own) < len(suspects):
        return [*shared, replace(suspects[-1], probability=rest, strength=suspects[-1].probability)]
    return [*shared, Culprit(root=own[0].root, kind=UNKNOWN, id=UNKNOWN, probability=rest, strength=0.0)]


def with_doubt(verdict: Verdict) -> Verdict:
    """Return the verdict whose action clears machines only as far as what it names is likely, and if what it assumes holds."""
    first = next((one.root for one in verdict.culprits), None)
    sure = min((one.probability for one in verdict.culprits if one.root == first), default=1.0)
    said = (
        r"\g<0>" if sure >= SURE else r"probably \1" if sure >= LIKELY else "whether a machine is at fault is undecided"
    )
    if any(root.assumes for root in verdict.roots if root.root == first):
        said = f"if the job stands still, {said}"
    return replace(verdict, action=replace(verdict.action, why=_CLEARED.sub(said, verdict.action.why, count=1)))
