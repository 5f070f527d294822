"""Fail-slow voting over rounds of stacks: which parallel group stands apart most (ByteRobust, SOSP 2025, section 4.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from analyzers.model.topology import ProcessGroup, Topology

VOTING_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Vote:
    """The parallel group that the rounds of fail-slow voting flagged most, and how often."""

    group: ProcessGroup
    flags: int
    rounds: int


def fail_slow(
    rounds: Sequence[Mapping[int, Sequence[str]]], topology: Topology, needed: int = VOTING_ROUNDS
) -> Vote | None:
    """Vote over rounds of stacks (rank → normalised frames), taken every ten seconds: which group stands apart most.

    Each round flags the group with the most outliers, the densest of equals; a tie at the end, or a group flagged in no
    more than half of the rounds, is no answer.
    """
    if len(rounds) < needed:
        return None
    flags = Counter(group.key for one in rounds if (group := _flagged(one, topology)) is not None)
    ranking = flags.most_common(2)
    if not ranking or ranking[0][1] * 2 <= len(rounds) or (len(ranking) > 1 and ranking[0][1] == ranking[1][1]):
        return None
    group = next(group for group in topology.groups if group.key == ranking[0][0])
    return Vote(group, ranking[0][1], len(rounds))


def _flagged(stacks: Mapping[int, Sequence[str]], topology: Topology) -> ProcessGroup | None:
    """Return the group with the most outliers of one round; None where no stack dominates or there is no outlier."""
    counts = Counter(tuple(frames) for frames in stacks.values())
    if not counts:
        return None
    usual, count = max(counts.items(), key=lambda item: (item[1], item[0]))
    outliers = {rank for rank, frames in stacks.items() if tuple(frames) != usual}
    if not outliers or count * 2 <= len(stacks):
        return None
    ranking = sorted(
        (-len(outliers.intersection(group.members)), len(group.members), group.key, group)
        for group in topology.groups
        if 1 < len(group.members) < len(topology.ranks) and outliers.intersection(group.members)
    )
    if not ranking or (len(ranking) > 1 and ranking[0][:2] == ranking[1][:2]):
        return None
    return ranking[0][3]
