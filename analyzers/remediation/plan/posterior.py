"""The probabilities of guilt in a verdict: one posterior for each root, with "unknown" and "no machine".

The record of a node shifts its odds only where the verdict names it: a node is not suspected for its past alone.
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
    """One root. The rest of ``nodes`` and ``elsewhere`` to 1 is unknown: a suspect on no known node is part of it."""

    fault_class: str = ""
    cause: str = "unknown"
    nodes: dict[str, float] = {}  # node → probability that it is guilty of this root
    elsewhere: float = 0.0  # probability of another cause: code, platform, network …

    def on(self, out: frozenset[str]) -> float:
        """Return the probability that one of these nodes is guilty of it."""
        return min(1.0, math.fsum(share for node, share in self.nodes.items() if node in out))


def root_posteriors(verdict: Verdict, remembered: Mapping[str, float] = NOTHING) -> tuple[RootPosterior, ...]:
    """Return a posterior for every root that must be cured before the job runs well.

    A root with several culprits has them all (two nodes that both stopped); any other root has one guilty among its suspects.
    ``remembered``: node → shift of its log odds by its record.
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
    """Return for every suspected node the probability that it is guilty of any root."""
    innocent: dict[str, float] = {}
    for doubt in doubts:
        for node, share in doubt.nodes.items():
            innocent[node] = innocent.get(node, 1.0) * (1 - share)
    return {node: 1 - chance for node, chance in innocent.items()}


def clamp_probability(probability: float) -> float:
    """Return a valid probability: a foreign document may hold any number."""
    return min(1.0, max(0.0, probability)) if math.isfinite(probability) else 0.0


def _doubt(entries: list[Culprit], cause: str, fault_class: str) -> RootPosterior:
    nodes: dict[str, float] = defaultdict(float)
    elsewhere = 0.0
    for entry in entries:
        if cause != "machine" and entry.kind != "unknown":
            elsewhere += clamp_probability(entry.weight)
        elif cause == "machine" and entry.kind == "node":
            nodes[entry.id] += clamp_probability(entry.weight)
    total = max(1.0, elsewhere + math.fsum(nodes.values()))
    return RootPosterior(
        fault_class=fault_class,
        cause=cause,
        nodes={node: share / total for node, share in sorted(nodes.items())},
        elsewhere=elsewhere / total,
    )


def _recalled(doubt: RootPosterior, remembered: Mapping[str, float]) -> RootPosterior:
    """Weigh each node's share by its past, by Bayes: the unknown and the other causes weigh as before."""
    known = {node: weight for node in doubt.nodes if math.isfinite(weight := remembered.get(node, 0.0)) and weight}
    if not known:
        return doubt
    most = max(0.0, *known.values())  # subtracted everywhere, against overflow
    unknown = max(0.0, 1.0 - doubt.elsewhere - math.fsum(doubt.nodes.values())) * math.exp(-most)
    elsewhere = doubt.elsewhere * math.exp(-most)
    nodes = {node: share * math.exp(known.get(node, 0.0) - most) for node, share in doubt.nodes.items()}
    total = math.fsum((unknown, elsewhere, *nodes.values()))
    if not total:
        return doubt
    return replace(doubt, nodes={node: share / total for node, share in nodes.items()}, elsewhere=elsewhere / total)
