"""Candidates for independent causes: what the correlation of findings works on, and what narrows one.

A finding that names no suspect by itself picks from a set, or shows why a rank holds the others up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from analyzers.model.fault_classes import has
from analyzers.model.finding import Cause, Evidence, Family, Finding, Suspect
from analyzers.model.topology import Topology
from analyzers.verdict.senders import one_voice

# Dumps, stacks and logs watch one event: two of them are no more certain than the surer one. A process
# table and a hardware event are independent of it.
SAME_EVENT: frozenset[Family] = frozenset({"waits", "roles", "stacks", "log"})
EVEN_ODDS = 0.5  # a set of one that is less likely guilty than not remains a set
FROZEN, FROZEN_ALONE = 0.8, 0.9
"""So sure are stacks that two rounds found in one place: of all ranks alike, and of the one apart from those that wait."""


@dataclass(frozen=True, slots=True)
class Argument:
    """Why a root is one, in a sentence, and what shows it. ``ranks``: those of its suspects that it is about; empty: all."""

    analyzer: str
    why: str
    evidence: tuple[Evidence, ...] = ()
    ranks: frozenset[int] = frozenset()

    def is_about(self, ranks: Iterable[int]) -> bool:
        """Whether it is about one of these ranks; where one of both names none, it is."""
        asked = frozenset(ranks)
        return not (asked and self.ranks) or bool(asked & self.ranks)


@dataclass(frozen=True)
class Candidate:
    """One independent cause under consideration. ``certain``: every suspect is a culprit; else at least one of them."""

    finding: Finding
    suspects: tuple[Suspect, ...]
    certain: bool
    arguments: tuple[Argument, ...] = ()  # of the findings that agree
    families: frozenset[Family] = frozenset()
    agreeing: tuple[str, ...] = ()  # fault classes of the findings that agree
    narrowed: bool = False  # a set that another family of evidence picked from
    senders: frozenset[str] = frozenset()  # as a finding's

    @property
    def ranks(self) -> frozenset[int]:
        """Return the ranks of all suspects."""
        return frozenset(rank for suspect in self.suspects for rank in suspect.ranks)


@dataclass(frozen=True)
class Excused:
    """What would have been a root, had its suspects not been in a pause."""

    root: Candidate
    cause: Cause
    fault_class: str
    why: str
    evidence: tuple[Evidence, ...] = ()


@dataclass
class Correlation:
    """What the findings come to: roots by precedence, and why the others fell."""

    roots: list[Candidate] = field(default_factory=list)
    excused: list[Excused] = field(default_factory=list)
    died: bool = False  # a process has failed while those that a root suspects still started
    rejected: list[Suspect] = field(default_factory=list)
    findings: tuple[Finding, ...] = ()


def joint(one: float, other: float, *, once: bool) -> float:
    """Return how sure two that agree are. ``once``: they watch one event, so that two are no surer than the surer one."""
    return min(0.99, max(one, other) if once else 1 - (1 - one) * (1 - other))


def split(finding: Finding) -> list[Candidate]:
    """A finding whose suspects are all guilty is that many roots; a set of which one is guilty is one."""
    parts = [(suspect,) for suspect in finding.suspects] if finding.together else [finding.suspects]
    alone = len(parts) == 1 and len(parts[0]) == 1 and parts[0][0].strength >= EVEN_ODDS
    families = frozenset({finding.family})
    return [
        Candidate(finding, part, finding.together or alone, families=families, senders=finding.senders)
        for part in parts
    ]


def arguments_of(root: Candidate) -> tuple[Argument, ...]:
    """Return what a root says of each of its suspects."""
    return tuple(
        Argument(
            root.finding.analyzer, one.why, one.evidence or root.finding.evidence or (Evidence(text=one.why),),
            frozenset(one.ranks),
        )
        for one in root.suspects
    )  # fmt: skip


def nodes_of(suspects: Iterable[Suspect], topology: Topology) -> set[str]:
    """Return the nodes of these suspects and of their ranks."""
    of_ranks = {topology.nodes[rank] for one in suspects for rank in one.ranks if rank in topology.nodes}
    return of_ranks | {one.node for one in suspects if one.node}


def narrowed(decision: Correlation, root: Candidate, finding: Finding, topology: Topology) -> Candidate:
    """Let a finding that names no suspect by itself pick among a set, or give the reason of a root that is certain."""
    picked = {rank for suspect in finding.suspects for rank in suspect.ranks}
    agreed = tuple(suspect for suspect in root.suspects if picked & set(suspect.ranks))
    absence = has(finding.fault_class, "no_stack") and not has(root.finding.fault_class, "stacks_add")
    if finding.family in root.families or absence:
        return root
    if not agreed:
        return root if root.certain else _widened(root, finding)
    if (found := _of_a_role(root, finding)) is not None:
        return found
    ranks = frozenset(rank for suspect in agreed for rank in suspect.ranks)
    root = replace(root, arguments=root.arguments + _arguments(finding, ranks))
    if one_voice(root.senders, finding.senders, nodes_of(agreed, topology)):
        return root
    both = root.senders | finding.senders if root.senders and finding.senders else frozenset()
    root = replace(root, senders=both, finding=_without_machine(root, finding))
    families = root.families | {finding.family}
    if root.certain:
        return replace(root, families=families, agreeing=(*root.agreeing, finding.fault_class))
    strength = max(suspect.strength for suspect in finding.suspects)
    if strength < EVEN_ODDS:
        return root  # a hint picks no suspect
    if has(finding.fault_class, "no_stack"):
        # Which rank it is rests on what is missing: no figure that was learned of waits is about that.
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


def _of_a_role(root: Candidate, finding: Finding) -> Candidate | None:
    """Return a role that stands in step with those of its ranks that stacks find apart; None where they find none for sure.

    By its rule the role stands still, and all of it alike: the others wait for who does not wait.
    """
    whole, picked = root.suspects[0], finding.suspects
    in_step = whole.kind == "role" and has(root.finding.fault_class, "in_step") and whole.strength >= EVEN_ODDS
    own_code = has(finding.fault_class, "own_code") and not has(finding.fault_class, "own_input")
    sure = all(one.strength >= FROZEN_ALONE and set(one.ranks) < set(whole.ranks) for one in picked)
    if not in_step or not own_code or not sure or (len(picked) > 1 and not finding.together):
        return None
    suspects = tuple(
        replace(
            whole, kind=one.kind, ranks=one.ranks, node=one.node, name="",
            strength=joint(whole.strength, one.strength, once=True),
        )
        for one in picked
    )  # fmt: skip
    return replace(
        root, suspects=suspects, narrowed=True, families=root.families | {finding.family},
        agreeing=(*root.agreeing, finding.fault_class),
        arguments=root.arguments + _arguments(finding, frozenset(rank for one in picked for rank in one.ranks)),
    )  # fmt: skip


def with_alike(decision: Correlation, finding: Finding) -> None:
    """Name with a root all that stand in their own input as its ranks do, though no dump shows that others wait for them."""
    known = {rank for root in decision.roots for rank in root.ranks}
    alike = tuple(suspect for suspect in finding.suspects if known.isdisjoint(suspect.ranks))
    if not (alike and finding.together and has(finding.fault_class, "own_input")):
        return
    for place, root in enumerate(decision.roots):
        if root.certain and root.finding.fault_class == finding.fault_class:
            suspects = tuple(sorted(root.suspects + alike, key=lambda one: one.ranks))
            decision.roots[place] = replace(root, suspects=suspects)
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
    undecided = shows_who_only(root) and root.finding.cause == "machine"
    if not (undecided and has(finding.fault_class, "own_input")):
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


def shows_who_only(root: Candidate) -> bool:
    """Whether others' waits, and stacks, are all that a root rests on: they prove which rank it is, and not why."""
    return (
        root.finding.family == "waits"
        and root.families <= SAME_EVENT
        and not has(root.finding.fault_class, "on_device")
    )
