"""Which rank a process is: pids are tied to ranks by stack dumps, flight recorders, logs, placements and NCCL RAS."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, LogEvent, Placement, RasCommunicator, StackDump


@dataclass(frozen=True)
class Owners:
    """Which rank a process is, from every record that ties a pid to a rank."""

    by_node: Mapping[tuple[str, int], int]
    by_pid: Mapping[int, frozenset[int]]
    nodes: frozenset[str]
    by_rank: Mapping[int, frozenset[int]]

    @classmethod
    def of(cls, window: Window, topology: Topology) -> Owners:
        """Collect the pids of stack dumps, flight recorders, logs and placements."""
        by_node: dict[tuple[str, int], int] = {}
        by_pid: dict[int, set[int]] = defaultdict(set)
        for rank, pid, node in _known_pids(window, topology):
            where = node or topology.nodes.get(rank)
            by_pid[pid].add(rank)
            if where:
                by_node[short(where), pid] = min(rank, by_node.get((short(where), pid), rank))
        by_rank: dict[int, set[int]] = defaultdict(set)
        for pid, ranks in by_pid.items():
            for rank in ranks:
                by_rank[rank].add(pid)
        nodes = frozenset(short(node) for node in topology.nodes.values())
        return cls(by_node, _frozen(by_pid), nodes, _frozen(by_rank))

    def rank(self, pid: int | None, node: str | None) -> int | None:
        """Return the rank of a process, None where it is unknown or two ranks share its pid."""
        if pid is None:
            return None
        if node and (short(node), pid) in self.by_node:
            return self.by_node[short(node), pid]
        if node and short(node) in self.nodes:
            return None
        ranks = self.by_pid.get(pid, frozenset())
        return next(iter(ranks)) if len(ranks) == 1 else None

    def pids_of(self, rank: int) -> frozenset[int]:
        """Return the pids that a rank is known to have had."""
        return self.by_rank.get(rank, frozenset())


def _frozen(sets: Mapping[int, set[int]]) -> dict[int, frozenset[int]]:
    return {key: frozenset(values) for key, values in sets.items()}


def short(node: str) -> str:
    """Return a node's name without its domain; an address stays whole."""
    return node if re.fullmatch(r"[\d.]+|[0-9a-fA-F:]+", node) else node.split(".", 1)[0]


def _known_pids(window: Window, topology: Topology) -> Iterator[tuple[int, int, str | None]]:
    """Yield (rank, pid, node): the trainers' pids; helpers that a stack dump shows as children are left out."""
    for record in window.records:
        if isinstance(record, StackDump) and record.parent_pid is not None:
            continue
        if isinstance(record, FlightRecorderDump | StackDump | LogEvent) and record.rank is not None and record.pid:
            yield record.rank, record.pid, record.node
        elif isinstance(record, Placement) and record.ranks is not None:
            pairs = zip(record.ranks.ranks(), record.pids, strict=False)
            for index, (rank, pid) in enumerate(pairs):
                yield rank, pid, record.nodes[index] if index < len(record.nodes) else None
        elif isinstance(record, RasCommunicator):
            yield from _ras_pids(record, topology)


def _ras_pids(record: RasCommunicator, topology: Topology) -> Iterator[tuple[int, int, str | None]]:
    """Yield the pids of a communicator of all the job's ranks: its numbering is the job's."""
    if topology.ranks == tuple(range(record.size)):
        for one in record.ranks:
            if one.pid:
                yield one.rank, one.pid, one.host or None
