"""What is known of a job when a plan is made: its nodes, other jobs on them, and what it can lose.

A job that keeps its newest checkpoint in memory backs up each node's shards on other nodes, so that the loss of a node is not the
loss of the checkpoint. [ByteRobust, SOSP 2025: backups across parallel groups, so that a whole group can be evicted]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from analyzers.remediation.role_restart import RoleFacts


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Facts beside the verdict. An unknown fact is None or empty, and costs nothing (docs/plan.md)."""

    nodes: tuple[str, ...] = ()  # that the newest attempt runs on
    gpus_per_node: int = 8
    has_gpus: bool = True  # False: its nodes have none; a loss is then stated in node hours
    spares: int | None = None  # nodes that can take an evicted one's place
    minimum_nodes: int | None = None  # with fewer it cannot go on
    holders: dict[str, tuple[str, ...]] = {}  # node → other nodes with a copy of its checkpoint shards
    tenants: dict[str, tuple[str, ...]] = {}  # node → other jobs that run on it
    tenant_gpus: dict[str, int] = {}  # other job → all of its GPUs: one node less stops them all
    seconds_since_checkpoint: float | None = None
    groups: dict[str, tuple[str, ...]] = {}  # parallel group → its nodes
    roles: dict[str, tuple[str, ...]] = {}  # role → its nodes
    instances: RoleFacts = RoleFacts()  # of the roles, where they are registered
    older_code: bool = True  # whether a version of the code is known that ran well; a rollback needs one
    remembered: dict[
        str, float
    ] = {}  # node → how far its past moves its log odds (analyzers/remediation/node_history.py)

    def gpus(self, *, least_ranks: int = 0) -> int:
        """Return how many GPUs stand still when the job does; by its ranks, where its nodes are unknown."""
        return len(self.nodes) * self.gpus_per_node or max(least_ranks, self.gpus_per_node)

    @property
    def unit(self) -> tuple[str, float]:
        """Return in what people read a loss, and how many GPU hours one of these is: a rank counts as a GPU."""
        return ("GPU hours", 1.0) if self.has_gpus else ("node hours", float(self.gpus_per_node))

    def left_without(self, out: int) -> int:
        """Return how many nodes the job would have after so many are taken out and spares have come."""
        return len(self.nodes) - out + min(out, self.spares or 0)

    def jobs_on(self, nodes: tuple[str, ...]) -> dict[str, int]:
        """Return the other jobs on these nodes, each once, with all of their GPUs."""
        jobs = {job for node in nodes for job in self.tenants.get(node, ())}
        return {job: self.tenant_gpus.get(job, self.gpus_per_node) for job in sorted(jobs)}


def find_lost_shards(out: Iterable[str], holders: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the nodes whose checkpoint shards would lose their last holder. ``out``: all nodes that are or would be out.

    ``holders``: node → nodes with a copy of its shards; it holds them itself, listed or not. A node that is no key has
    registered no copies and is left out.
    """
    gone = frozenset(out)
    return tuple(sorted(node for node in gone & holders.keys() if gone.issuperset(holders[node])))
