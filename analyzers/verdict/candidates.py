"""What the correlation of findings works on: candidates for independent causes, what excuses one, and the outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from analyzers.model.finding import Cause, Evidence, Family, Finding, Suspect
from analyzers.model.topology import Topology

# Dumps, stacks and logs watch one event: two of them are no more certain than the surer one. A process
# table and a hardware event are independent of it.
SAME_EVENT: frozenset[Family] = frozenset({"waits", "roles", "stacks", "log"})
EVEN_ODDS = 0.5  # a set of one that is less likely guilty than not remains a set


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


def split(finding: Finding) -> list[Candidate]:
    """A finding whose suspects are all guilty is that many roots; a set of which one is guilty is one."""
    parts = [(suspect,) for suspect in finding.suspects] if finding.together else [finding.suspects]
    alone = len(parts) == 1 and len(parts[0]) == 1 and parts[0][0].strength >= EVEN_ODDS
    families = frozenset({finding.family})
    return [
        Candidate(finding, part, finding.together or alone, families=families, senders=finding.senders)
        for part in parts
    ]


def nodes_of(suspects: Iterable[Suspect], topology: Topology) -> set[str]:
    """Return the nodes of these suspects and of their ranks."""
    of_ranks = {topology.nodes[rank] for one in suspects for rank in one.ranks if rank in topology.nodes}
    return of_ranks | {one.node for one in suspects if one.node}
