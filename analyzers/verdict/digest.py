"""What of a verdict counts as news."""

from __future__ import annotations

import hashlib

from analyzers.model.verdict import Verdict


def digest(verdict: Verdict) -> str:
    """Return a hash of what a reader would act on: a verdict that says the same in other words is not a new version."""
    culprits = sorted((one.kind, one.id, one.ranks) for one in verdict.culprits)
    action = (verdict.action.kind, sorted(verdict.action.nodes), sorted(verdict.action.ranks), verdict.action.role)
    said = (
        verdict.symptom,
        verdict.cause,
        verdict.abstained,
        [root.fault_class for root in verdict.roots],
        culprits,
        action,
    )
    return hashlib.sha256(repr(said).encode()).hexdigest()[:16]
