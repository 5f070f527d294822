"""What a finding does that names no suspect by itself: it picks from a set, or shows why a rank holds the others up."""

from __future__ import annotations

from dataclasses import replace

from analyzers.model.fault_classes import has
from analyzers.model.finding import Cause, Finding
from analyzers.model.topology import Topology
from analyzers.verdict.candidates import EVEN_ODDS, SAME_EVENT, Argument, Candidate, Correlation, nodes_of, split
from analyzers.verdict.senders import one_voice


def narrowed(decision: Correlation, root: Candidate, finding: Finding, topology: Topology) -> Candidate:
    """Let a finding that names no suspect by itself pick among a set, or give the reason of a root that is certain."""
    picked = {rank for suspect in finding.suspects for rank in suspect.ranks}
    agreed = tuple(suspect for suspect in root.suspects if picked & set(suspect.ranks))
    absence = has(finding.fault_class, "no_stack") and not has(root.finding.fault_class, "stacks_add")
    if finding.family in root.families or absence:
        return root
    if not agreed:
        return root if root.certain else _widened(root, finding)
    ranks = frozenset(rank for suspect in agreed for rank in suspect.ranks)
    root = replace(root, arguments=root.arguments + _arguments(finding, ranks))
    if one_voice(root.senders, finding.senders, nodes_of(agreed, topology)):
        return root
    both = root.senders | finding.senders if root.senders and finding.senders else frozenset()
    root = replace(root, senders=both, finding=_without_machine(root, finding))
    families = root.families | {finding.family}
    if root.certain:
        return replace(root, families=families)
    strength = max(suspect.strength for suspect in finding.suspects)
    if strength < EVEN_ODDS:
        return root  # a hint picks no suspect
    if has(
        finding.fault_class, "no_stack"
    ):  # which rank it is rests on what is missing: no figure of the waits is about that
        root = replace(root, finding=replace(root.finding, fault_class=finding.fault_class))
    raised = tuple(replace(s, strength=max(strength, s.strength)) for s in agreed)
    decision.rejected.extend(
        replace(s, why=f"the {finding.family} show it waiting like the others")
        for s in root.suspects
        if s not in agreed
    )
    return replace(
        root,
        suspects=raised,
        certain=finding.together or len(agreed) == 1,
        narrowed=root.narrowed or len(agreed) < len(root.suspects),
        families=families,
    )


def with_alike(decision: Correlation, finding: Finding) -> None:
    """Name with a root all that stand in their own input as its ranks do, though no dump shows that others wait for them."""
    known = {rank for root in decision.roots for rank in root.ranks}
    alike = tuple(suspect for suspect in finding.suspects if known.isdisjoint(suspect.ranks))
    if not (alike and finding.together and has(finding.fault_class, "own_input")):
        return
    for place, root in enumerate(decision.roots):
        if root.certain and root.finding.fault_class == finding.fault_class:
            decision.roots[place] = replace(
                root, suspects=tuple(sorted(root.suspects + alike, key=lambda one: one.ranks))
            )
            return


def _arguments(finding: Finding, ranks: frozenset[int]) -> tuple[Argument, ...]:
    """Return what a finding says of each of its suspects that is one of these ranks."""
    return tuple(
        Argument(finding.analyzer, one.why, one.evidence[:2], frozenset(one.ranks))
        for one in finding.suspects
        if ranks.intersection(one.ranks)
    )


def _without_machine(root: Candidate, finding: Finding) -> Finding:
    """Return the finding of a root whose rank reads what no other reads: waits prove who it is, not why (docs/decisions/0048)."""
    who_only = root.finding.family == "waits" and root.families <= SAME_EVENT and root.finding.cause == "machine"
    if not who_only or not has(finding.fault_class, "own_input"):
        return root.finding
    return replace(root.finding, cause=finding.cause, fault_class=finding.fault_class)


def _widened(root: Candidate, finding: Finding) -> Candidate:
    """Two kinds of evidence that point apart leave a set that holds both."""
    if not has(root.finding.fault_class, "stacks_add") or max(s.strength for s in finding.suspects) < EVEN_ODDS:
        return root
    added = frozenset(rank for suspect in finding.suspects for rank in suspect.ranks)
    arguments = tuple(replace(one, why="") for one in _arguments(finding, added))  # each suspect has its own reason
    return replace(root, suspects=root.suspects + finding.suspects, arguments=root.arguments + arguments)


def standing_alone(finding: Finding) -> list[Candidate]:
    """Where no waits are known a narrowing claim is all there is: a suspicion, weaker than it would be as support."""
    suspects = tuple(replace(suspect, strength=round(0.8 * suspect.strength, 4)) for suspect in finding.suspects)
    undecided = has(finding.fault_class, "own_code") and finding.cause == "machine"
    cause: Cause = "unknown" if undecided else finding.cause
    return split(replace(finding, cause=cause, narrows=False, suspects=suspects))
