"""Which process is which rank's: the pids that records name, each rank's rows of the process tables, and file-system waits."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import FlightRecorderDump, LogEvent, Placement, ProcessState, RasCommunicator, StackDump
from collectors.records.identity import short

BLOCKED = frozenset({"D", "I"})  # uninterruptible; I adds nothing to the load, as a client of Lustre waits
READ_AGAIN_SECONDS = 12.0  # within which an agent that goes on reads each process again
_LOCAL_RANK = re.compile(r"(?:(?<![A-Za-z])LOCAL_RANK=|--local[-_]rank[= ])(\d{1,5})(?!\S)")
_STORAGE = re.compile(
    r"nfs|rpc_wait_bit|rpc_execute|wait_on_commit|wait_on_page|lock_page|folio_|filemap_|io_schedule|balance_dirty_pages|"
    r"lustre|ptlrpc|ldlm_|cl_sync|cl_lock|ll_file|osc_|mdc_|lov_|obd_get_|fuse|request_wait_answer|ceph|cifs|smb\d*_|"
    r"gpfs|mmfs|beegfs|wekafs|blk_|jbd2|xfs_|ext4_|btrfs|wait_on_buffer|do_get_write_access"
)  # functions a thread sleeps in while a file system or block device answers (Linux 5.x and 6.x; mount.nfs, Lustre, FUSE)


@dataclass(frozen=True)
class Owners:
    """Which rank a process is, from every record that ties a pid to a rank."""

    by_node: Mapping[tuple[str, int], int]
    by_pid: Mapping[int, frozenset[int]]
    nodes: frozenset[str]
    by_rank: Mapping[int, frozenset[int]]

    @classmethod
    def from_records(cls, window: Window, topology: Topology) -> Owners:
        """Collect the pids of stack dumps, flight recorders, logs and placements."""
        by_node: dict[tuple[str, int], int] = {}
        by_pid: dict[int, set[int]] = defaultdict(set)
        for rank, pid, node in _known_pids(window, topology):
            where = node or topology.nodes.get(rank)
            by_pid[pid].add(rank)
            if where:
                place = short(where), pid
                by_node[place] = min(rank, by_node.get(place, rank))
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
        if node:
            where = short(node)
            if (where, pid) in self.by_node:
                return self.by_node[where, pid]
            if where in self.nodes:
                return None
        ranks = self.by_pid.get(pid, frozenset())
        return next(iter(ranks)) if len(ranks) == 1 else None

    def pids_of(self, rank: int) -> frozenset[int]:
        """Return the pids that a rank is known to have had."""
        return self.by_rank.get(rank, frozenset())


def _frozen(sets: Mapping[int, set[int]]) -> dict[int, frozenset[int]]:
    return {key: frozenset(values) for key, values in sets.items()}


def _known_pids(window: Window, topology: Topology) -> Iterator[tuple[int, int, str | None]]:
    """Yield (rank, pid, node): the trainers' pids; helpers that a stack dump shows as children are left out."""
    trainers = (one for one in window.records_of(StackDump) if one.parent_pid is None)
    naming: Iterable[FlightRecorderDump | StackDump | LogEvent] = (
        *window.records_of(FlightRecorderDump), *trainers, *window.records_of(LogEvent),
    )  # fmt: skip
    for record in naming:
        if record.rank is not None and record.pid:
            yield record.rank, record.pid, record.node
    for placement in window.records_of(Placement):
        pairs = zip(placement.ranks.ranks() if placement.ranks is not None else (), placement.pids, strict=False)
        for index, (rank, pid) in enumerate(pairs):
            yield rank, pid, placement.nodes[index] if index < len(placement.nodes) else None
    for communicator in window.records_of(RasCommunicator):
        yield from _ras_pids(communicator, topology)


def _ras_pids(record: RasCommunicator, topology: Topology) -> Iterator[tuple[int, int, str | None]]:
    """Yield the pids of a communicator of all the job's ranks: its numbering is the job's."""
    if len(topology.ranks) == record.size and (not record.size or topology.ranks[-1] == record.size - 1):
        for one in record.ranks:
            if one.pid:
                yield one.rank, one.pid, one.host or None


def in_files(row: ProcessState) -> bool:
    """Whether a process waits, uninterruptibly, for a file system or a block device."""
    return row.state in BLOCKED and _STORAGE.search(row.wait_channel or "") is not None


def rows_by_rank(window: Window, topology: Topology) -> dict[int, list[ProcessState]]:
    """Return each rank's own process in each snapshot of the window, oldest snapshot first."""
    return ranked_rows(window.records_of(ProcessState), window.once(Owners.from_records, topology), topology)


def ranked_rows(table: Sequence[ProcessState], owners: Owners, topology: Topology) -> dict[int, list[ProcessState]]:
    """Return each rank's own process in each snapshot, oldest snapshot first.

    Forked helpers repeat the trainer's command line, and with it its rank: the trainer is the oldest of them.
    """
    candidates: dict[tuple[int, float], list[ProcessState]] = defaultdict(list)
    for row in table:
        if row.rank is not None and row.parent_pid is not None:
            continue  # what a rank has started has a state and an end of its own
        known = owners.rank(row.pid, row.node)
        rank = known if known is not None else _stated_rank(row, owners, topology)
        if rank is not None:
            candidates[rank, row.at or 0.0].append(row)
    rows: dict[int, list[ProcessState]] = defaultdict(list)
    for (rank, _), found in sorted(candidates.items()):
        known_pids = owners.pids_of(rank)
        rows[rank].append(
            min(found, key=lambda row: (row.pid not in known_pids, -(row.elapsed_seconds or 0.0), row.pid, row.source))
        )
    return rows


def _stated_rank(row: ProcessState, owners: Owners, topology: Topology) -> int | None:
    """Return the rank that the row states, a local rank on a known node included, unless that rank's pid is another."""
    rank = row.rank
    local = _LOCAL_RANK.search(row.command)
    if rank is None and local:
        here = topology.ranks_on(row.node) if row.node else () if topology.nodes else topology.ranks
        rank = here[int(local.group(1))] if int(local.group(1)) < len(here) <= 64 else None
    if rank is not None and owners.pids_of(rank) and row.pid not in owners.pids_of(rank):
        return None
    return rank
