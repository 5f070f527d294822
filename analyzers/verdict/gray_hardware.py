"""What hardware that is not well adds to a verdict: after all else is decided, so that it changes none of a hang or a crash.

It agrees with a slow machine that is the same one, and stands where nothing else holds up or ended the job.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from analyzers.model.fault_classes import has
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.verdict.candidates import Candidate, Correlation, split
from analyzers.verdict.correlate import confirm

MORE_THAN_SLOW = frozenset({"hang", "crash", "numeric"})
BESIDE = "its hardware is not well, and nothing shows that it holds the job up"


def without_gray(findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Split findings into those of gray hardware and all others: (others, gray)."""
    found = list(findings)
    gray = [finding for finding in found if has(finding.fault_class, "gray")]
    return [finding for finding in found if finding not in gray], gray


def add_gray(decision: Correlation, gray: Iterable[Finding], topology: Topology) -> None:
    """Let gray hardware confirm a slow root of its node, or stand; elsewhere it is shown among what was rejected."""
    stands = not decision.roots and not decision.excused and not decision.died
    stands = stands and not any(finding.symptom in MORE_THAN_SLOW for finding in decision.findings)
    for finding in gray:
        if not finding.suspects:
            if stands:
                decision.findings = (*decision.findings, finding)
            continue
        for new in split(finding):
            if stands:
                decision.roots.append(new)
                decision.findings = (*decision.findings, finding)
            elif not _confirms_slow(decision, new, topology):
                decision.rejected += [replace(one, why=f"{one.why}: {BESIDE}") for one in new.suspects]


def _confirms_slow(decision: Correlation, new: Candidate, topology: Topology) -> bool:
    """Merge into a slow root of its node, where that blames what this does, or nothing: a slow loader is no GPU's."""
    for number, root in enumerate(decision.roots):
        alike = root.finding.symptom == "slow" and root.finding.cause in ("unknown", new.finding.cause)
        of_one = replace(decision, roots=[root])
        if alike and confirm(of_one, new, topology):
            decision.roots[number] = of_one.roots[0]
            return True
    return False
