"""Ranks that fall behind alike, and that no one node or group holds: a branch in the code may part them as a machine may."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from analyzers.model.finding import Evidence, Suspect
from analyzers.model.ranges import ranges
from analyzers.model.topology import Topology

PARTED = 0.6
"""So sure it is that one of them is at fault, as of one rank that is behind: several are no surer than one."""


def part_alike(
    named: Collection[int], behind: Mapping[int, Evidence], expected: Collection[int], topology: Topology
) -> bool:
    """Whether several ranks fell behind by one report or one number, and are neither a node's nor a group's."""
    said = {re.sub(rf"\brank {rank}\b", "", one.text) for rank, one in behind.items()}
    if set(named) != behind.keys() or len(behind) < 2 or len(said) > 1 or _of_one_node(behind, expected, topology):
        return False
    return not any(set(group.members) == behind.keys() for group in topology.groups if group.dimension != "world")


def _of_one_node(ranks: Collection[int], expected: Collection[int], topology: Topology) -> bool:
    """Whether one node of several has all these; where nodes are unknown, whether ranks in a row may be a node's."""
    nodes = {topology.nodes.get(rank) for rank in ranks}
    if None in nodes:
        return max(ranks) - min(ranks) == len(ranks) - 1
    return len(nodes) == 1 and any(topology.nodes.get(rank) not in nodes for rank in expected)


def in_doubt(suspects: Sequence[Suspect]) -> list[Suspect]:
    """Return the suspects as a set of which one may be at fault, with what else parts them."""
    doubt = f"{_named(suspects)} part from the others alike, and no node or group is just these: code is as likely"
    strength = round(PARTED / len(suspects), 4)
    return [replace(one, strength=strength, why=f"{one.why}; {doubt}") for one in suspects]


def wanted(suspects: Sequence[Suspect]) -> tuple[str, ...]:
    """Return what would show whether code or a machine parts them."""
    return (f"stacks of {_named(suspects)} and of the others: where both stand in the code shows what parts them",)


def _named(suspects: Sequence[Suspect]) -> str:
    return f"ranks {ranges(sorted(rank for one in suspects for rank in one.ranks))}"
