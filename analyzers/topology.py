"""Who is where and who talks to whom: nodes, process groups, parallel coordinates. Inferred here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One communicator. ``key`` is unique in the job; ``dimension``: world, tp, pp, dp, cp, ep, model, embedding, other."""

    key: str
    name: str
    description: str
    dimension: str
    members: tuple[int, ...]  # global ranks in group order: group-local rank i is members[i]
    inferred: bool = False  # the members were seen using it, nobody listed them: there may be more


@dataclass(frozen=True, slots=True)
class Topology:
    """What is known of the job's shape. ``ranks`` are all expected ranks, sorted, dumps or not."""

    ranks: tuple[int, ...] = ()
    nodes: Mapping[int, str] = field(default_factory=dict)
    groups: tuple[ProcessGroup, ...] = ()
    coordinates: Mapping[int, Mapping[str, int]] = field(default_factory=dict)  # rank → {"pp": 1, "dp": 0, "tp": 5}

    def ranks_on(self, node: str) -> tuple[int, ...]:
        """Return the ranks placed on a node."""
        return tuple(rank for rank in self.ranks if self.nodes.get(rank) == node)

    def shared_groups(self, ranks: Iterable[int]) -> tuple[ProcessGroup, ...]:
        """Return the groups that contain all these ranks, smallest first."""
        wanted = frozenset(ranks)
        found = [group for group in self.groups if wanted <= frozenset(group.members)]
        return tuple(sorted(found, key=lambda group: (len(group.members), group.key)))

    def label(self, rank: int) -> str:
        """Name a rank for people: ``rank 2637 (pp9/dp37/tp5, node-0413)``, as much of it as is known."""
        parts = "/".join(f"{name}{value}" for name, value in self.coordinates.get(rank, {}).items())
        known = ", ".join(part for part in (parts, self.nodes.get(rank, "")) if part)
        return f"rank {rank} ({known})" if known else f"rank {rank}"
