"""Who waits at the storage: findings that blame it are one root, and the ranks that wait there are not at fault."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from analyzers.model.fault_classes import has
from analyzers.model.finding import Finding, Suspect
from analyzers.verdict.candidates import (
    SAME_EVENT,
    Argument,
    Candidate,
    Correlation,
    arguments_of,
    joint,
    shows_who_only,
)
from analyzers.verdict.senders import one_voice

_STANDS_STILL = ("hang", "hardware")
"""Symptoms of a root that blames the storage, and of which it is one with others."""
_IN_FILES = frozenset({"stuck_storage", "stuck_checkpoint"})


def is_storage(root: Candidate) -> bool:
    """Whether a root blames the storage itself for a standstill."""
    if root.finding.symptom not in _STANDS_STILL:
        return False
    return root.certain and root.finding.cause == "storage" and all(one.kind == "storage" for one in root.suspects)


def one_storage(roots: Sequence[Candidate]) -> list[Candidate]:
    """Return the roots with those that blame the storage for a hang as one: what several of them show is one file system."""
    alike = [root for root in roots if is_storage(root)]
    if len(alike) < 2:
        return list(roots)
    first = min(alike, key=lambda root: (_STANDS_STILL.index(root.finding.symptom), root.finding.onset or float("inf")))
    joined = first
    for root in alike:
        joined = joined if root is first else _joined(joined, root)
    return [joined if root is alike[0] else root for root in roots if root is alike[0] or root not in alike]


def _joined(one: Candidate, other: Candidate) -> Candidate:
    """Return both as one root: independent kinds of evidence make it surer."""
    strength = max(suspect.strength for suspect in other.suspects)
    again = bool(one.families & other.families) or bool(SAME_EVENT & one.families and SAME_EVENT & other.families)
    again = again or one_voice(one.senders, other.senders, ())
    ranks = one.ranks | other.ranks
    first = one.suspects[0]
    surer = round(joint(first.strength, strength, once=again), 4)
    return replace(
        one,
        finding=replace(one.finding, scope=one.finding.scope | other.finding.scope),
        suspects=(replace(first, strength=surer, ranks=tuple(sorted(ranks))), *one.suspects[1:]),
        arguments=one.arguments + arguments_of(other) + other.arguments,
        families=one.families | other.families,
        agreeing=(*one.agreeing, other.finding.fault_class, *other.agreeing),
        narrowed=one.narrowed or other.narrowed,
        senders=one.senders | other.senders if one.senders and other.senders else frozenset(),
    )


def blamed(root: Candidate, storage: Finding) -> Candidate:
    """Return a root of which a process's state shows that it waits for the storage: the rank waits there, and is not at fault."""
    suspects = tuple(replace(one, kind="storage", node=None, device=None) for one in root.suspects)
    finding = replace(root.finding, cause="storage", fault_class=storage.fault_class)
    return replace(root, finding=finding, suspects=suspects)


def with_waiters(decision: Correlation, finding: Finding) -> None:
    """Name with a file system that does not answer on a node the ranks of that node whose stacks may be reading from it."""
    if not (has(finding.fault_class, "own_code") or finding.fault_class in _IN_FILES):
        return
    for root in decision.roots:
        unplaced = is_storage(root) and "hardware" in root.families and not root.ranks
        waiters = tuple(one for one in finding.suspects if one.ranks and root.finding.scope.issuperset(one.ranks))
        if unplaced and waiters:
            held = frozenset(rank for one in waiters for rank in one.ranks)
            others = [one for one in decision.roots if not (shows_who_only(one) and one.ranks and one.ranks <= held)]
            decision.roots = [_waited_for(root, waiters, finding) if one is root else one for one in others]
            return


def _waited_for(root: Candidate, waiters: tuple[Suspect, ...], finding: Finding) -> Candidate:
    ranks = tuple(sorted(rank for one in waiters for rank in one.ranks))
    strength = max(root.suspects[0].strength, *(one.strength for one in waiters))
    arguments = tuple(Argument(finding.analyzer, one.why, one.evidence[:1], frozenset(one.ranks)) for one in waiters)
    return replace(
        root,
        finding=replace(root.finding, symptom=finding.symptom, scope=root.finding.scope | finding.scope),
        suspects=(replace(root.suspects[0], ranks=ranks, strength=strength), *root.suspects[1:]),
        arguments=root.arguments + arguments,
        families=root.families | {finding.family},
    )
