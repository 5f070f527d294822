"""Who is guilty with what probability, read from a verdict: one value for each root, "unknown" and "no machine" with it.

What is remembered of a node moves its odds, and only of a node that the verdict names: nobody is suspected for the past alone.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from analyzers.model.verdict import Culprit, Verdict

NOTHING: Mapping[str, float] = MappingProxyType({})


class RootPosterior(msgspec.Struct, frozen=True, kw_only=True):
    """One root. What ``nodes`` and ``elsewhere`` leave to 1 is unknown: a suspect on no known node is part of that."""

    fault_class: str = ""
    cause: str = "unknown"
    nodes: dict[str, float] = {}  # node → that it is guilty of this root
    elsewhere: float = 0.0  # that no machine is: the code, the platform, the network …

    def on(self, out: frozenset[str]) -> float:
        """Return the probability that one of these nodes is guilty of it."""
        return min(1.0, math.fsum(share for node, share in self.nodes.items() if node in out))


def root_posteriors(verdict: Verdict, remembered: Mapping[str, float] = NOTHING) -> tuple[RootPosterior, ...]:
    """Return a doubt for every root that must be cured before the job runs well.

    A root with several culprits has them all (a node and a second one that both stopped); any other has one guilty among its
    suspects. ``remembered``: node → how far what followed its earlier evictions moves its log odds.
    """
    roots = {root.root: root for root in verdict.roots}
    labels = dict.fromkeys(entry.root for entry in (*verdict.culprits, *verdict.suspects))
    found = []
    for label in labels:
        cause = roots[label].cause if label in roots else verdict.cause
        fault_class = roots[label].fault_class if label in roots else ""
        culprits = [entry for entry in verdict.culprits if entry.root == label]
        suspects = [entry for entry in verdict.suspects if entry.root == label] or culprits
        each = [[entry] for entry in culprits] if len(culprits) > 1 else [suspects]
        found += [_recalled(_doubt(entries, cause, fault_class), remembered) for entries in each]
    return tuple(found)


def guilt_by_node(doubts: Iterable[RootPosterior]) -> dict[str, float]:
    """Return the probability that a node is guilty of any root, for every node that is suspected."""
    innocent: dict[str, float] = {}
    for doubt in doubts:
        for node, share in doubt.nodes.items():
            innocent[node] = innocent.get(node, 1.0) * (1 - share)
    return {node: 1 - chance for node, chance in innocent.items()}


def clamp_probability(probability: float) -> float:
    """Bring what a document says to a probability: one that came from elsewhere may hold anything."""
    return min(1.0, max(0.0, probability)) if math.isfinite(probability) else 0.0


def _doubt(entries: list[Culprit], cause: str, fault_class: str) -> RootPosterior:
    nodes: dict[str, float] = defaultdict(float)
    elsewhere = 0.0
    for entry in entries:
        if cause != "machine" and entry.kind != "unknown":
            elsewhere += clamp_probability(entry.probability)
        elif cause == "machine" and entry.kind == "node":
            nodes[entry.id] += clamp_probability(entry.probability)
    total = max(1.0, elsewhere + math.fsum(nodes.values()))
    return RootPosterior(
        fault_class=fault_class,
        cause=cause,
        nodes={node: share / total for node, share in sorted(nodes.items())},
        elsewhere=elsewhere / total,
    )


def _recalled(doubt: RootPosterior, remembered: Mapping[str, float]) -> RootPosterior:
    """Weigh each guilty node's share by its past, as Bayes says: what is unknown, and what is no machine, weighs as before."""
    known = {node: weight for node in doubt.nodes if math.isfinite(weight := remembered.get(node, 0.0)) and weight}
    if not known:
        return doubt
    most = max(0.0, *known.values())  # taken off everything, so that nothing overflows
    unknown = max(0.0, 1.0 - doubt.elsewhere - math.fsum(doubt.nodes.values())) * math.exp(-most)
    elsewhere = doubt.elsewhere * math.exp(-most)
    nodes = {node: share * math.exp(known.get(node, 0.0) - most) for node, share in doubt.nodes.items()}
    total = math.fsum((unknown, elsewhere, *nodes.values()))
    if not total:
        return doubt
    return replace(doubt, nodes={node: share / total for node, share in nodes.items()}, elsewhere=elsewhere / total)
