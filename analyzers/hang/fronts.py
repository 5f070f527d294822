"""What each rank has outstanding: unfinished entries, less those that only look so, and the front of each communicator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.recorder import Ints, Mask, RecorderTable

# A peer's end of one of these proves that every member's device reached it. A broadcast, reduce or send may end early.
_SYNCHRONISING = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE)
_PEERS = re.compile(r"(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)")


@dataclass(frozen=True)
class Progress:
    """Which rows of the table are outstanding, and how far each rank got in each group.

    ``outstanding``, ``lost``, ``current`` are masks of shape (n,). ``lost``: the rank never saw it end, but a peer's end
    proves that it did. ``current``: of this attempt. ``entered``: (rank index, group) → highest collective sequence.
    """

    table: RecorderTable
    current: Mask
    lost: Mask
    outstanding: Mask
    entered: Ints  # shape (ranks, groups), -1 where the rank's dump says nothing of the group
    ended: Ints  # shape (groups,): highest sequence that some member is known to have ended

    @cached_property
    def index_of(self) -> dict[int, int]:
        """Map a rank to its row in ``entered``."""
        return {rank: index for index, rank in enumerate(self.table.ranks)}

    @cached_property
    def oldest_row(self) -> dict[int, int]:
        """Map each waiting rank to its oldest outstanding row: what holds it up, whatever it launched afterwards."""
        rows = np.flatnonzero(self.outstanding)
        ranks, first = np.unique(self.table["rank"][rows], return_index=True)
        return {int(rank): int(rows[index]) for rank, index in zip(ranks, first, strict=True)}

    @cached_property
    def fronts(self) -> list[int]:
        """Return each rank's oldest outstanding row of every communicator; a send or receive is one per peer."""
        rows = np.flatnonzero(self.outstanding)
        table = self.table
        lane = np.where(table.is_p2p[rows], table["operation"][rows] + 1, 0)
        keys = np.stack([table["rank"][rows], table["group"][rows], lane])
        _, first = np.unique(keys, axis=1, return_index=True) if len(rows) else (None, np.zeros(0, np.int64))
        return [int(rows[index]) for index in np.sort(first)]

    def lost_count(self, rank: int) -> int:
        """Count the completions that this rank failed to notice."""
        return int(np.count_nonzero(self.lost & (self.table["rank"] == rank)))


def peers_of(operation: str) -> tuple[str, int, int] | None:
    """Read ``send 0->3`` or ``recv 2<-3`` as (direction, own, peer), in group-local ranks; None for anything else."""
    found = _PEERS.search(operation)
    return (found[1], int(found[2]), int(found[3])) if found else None


def is_synchronising(operation: str) -> bool:
    """Return whether a member's end of this operation proves that all members reached it."""
    return _SYNCHRONISING.search(operation) is not None


def progress(table: RecorderTable) -> Progress:
    """Separate what is truly outstanding from what lingers: earlier attempts, passed entries, lost completions."""
    current = _of_this_attempt(table)
    unfinished = ~table.finished & current & ~is_whole(table)
    lingering = unfinished & (_passed(table, current) | _timed_out(table) | _ended_as_part(table))
    unfinished &= ~lingering
    ended_by_rank = _ended(table, current, unfinished)
    lost = _lost(table, unfinished, ended_by_rank)
    lost |= unfinished & _of_ranks_that(lost, table)
    entered = _highest(table, current & ~table.is_p2p)
    ended = ended_by_rank.max(axis=0) if ended_by_rank.size else np.full(len(table.groups), -1, np.int64)
    return Progress(table, current & ~lingering, lost, unfinished & ~lost, entered, ended)


def is_whole(table: RecorderTable) -> Mask:
    """Mark ``coalesced`` entries: the batch as a whole, which alone is watched; its parts come before it."""
    return _named(table, "coalesced")[table["operation"]] & (table["operation"] >= 0)


def _named(table: RecorderTable, word: str) -> Mask:
    """Mark the strings that are operations of this name; one more False at the end serves the code -1."""
    return np.array([text.rpartition(":")[2] == word for text in table.strings] + [False], np.bool_)


def _ended_as_part(table: RecorderTable) -> Mask:
    """Mark parts of a batch that ended: nobody watches a part, it stays ``scheduled`` for ever [ProcessGroupNCCL].

    The batch's own entry says so, or, where a dump of active entries leaves that out, the rank's status counter does:
    it holds the number of the last work that ended, p2p work being counted on its own since version 2.5.
    """
    whole = is_whole(table)
    if not whole.any() and not table.is_p2p.any():
        return np.zeros(len(table), np.bool_)
    keys = np.stack([table[name] for name in ("rank", "group", "p2p_seq", "collective_seq")])
    _, key = np.unique(keys, axis=1, return_inverse=True)
    key = key.reshape(-1)
    batched, ended = (np.zeros(int(key.max(initial=0)) + 1, np.bool_) for _ in range(2))
    batched[key[whole]] = True
    ended[key[whole & table.finished]] = True
    return (ended[key] & ~whole) | (table.is_p2p & ~batched[key] & _ended_by_status(table, whole))


def _ended_by_status(table: RecorderTable, whole: Mask) -> Mask:
    """Compare p2p entries with their rank's own status counter, where it is clear which of two numberings it speaks.

    Up to version 2.4 a batch took a collective number. Later a counter nearer to the collective numbers of its group
    than to the p2p ones tells of the group's collectives, and nothing of its transfers.
    """
    done, p2p, collective = table["status_completed"], table["p2p_seq"], table["collective_seq"]
    if (whole & ~table.is_p2p).any() or _numbered_by_collectives(table):
        old: Mask = (done >= collective) & (collective > 0)
        return old
    ended: Mask = (done >= p2p) & (p2p > 0) & (np.abs(done - p2p) < np.abs(done - collective))
    return ended


def _rank_index(table: RecorderTable) -> Ints:
    return np.searchsorted(np.asarray(table.ranks, np.int64), table["rank"]).astype(np.int64)


def _of_this_attempt(table: RecorderTable) -> Mask:
    """Drop entries from before a sequence number fell: the recorder outlives a process group that was made anew."""
    rows = np.flatnonzero(~table.is_p2p)
    order = rows[np.lexsort((rows, table["group"][rows], table["rank"][rows]))]
    rank, group, sequence = table["rank"][order], table["group"][order], table["collective_seq"][order]
    falls = (rank[1:] == rank[:-1]) & (group[1:] == group[:-1]) & (sequence[1:] < sequence[:-1])
    cut = np.full(len(table.ranks), -1, np.int64)
    np.maximum.at(cut, _rank_index(table)[order[:-1][falls]], table["record_id"][order[:-1][falls]])
    kept: Mask = table["record_id"] > cut[_rank_index(table)] if len(table.ranks) else np.zeros(0, np.bool_)
    return kept


def _highest(table: RecorderTable, rows: Mask) -> Ints:
    """Return the highest collective sequence per (rank, group) among the chosen rows, -1 where there is none."""
    highest = np.full((len(table.ranks), len(table.groups)), -1, np.int64)
    chosen = np.flatnonzero(rows & (table["group"] >= 0))
    np.maximum.at(highest, (_rank_index(table)[chosen], table["group"][chosen]), table["collective_seq"][chosen])
    return highest


def _passed(table: RecorderTable, current: Mask) -> Mask:
    """Mark unfinished entries that a later finished one of the same rank and communicator has overtaken (CUDA graphs)."""
    reached = _highest(table, current & table.finished & ~table.is_p2p)
    inside = table["group"] >= 0
    group = np.where(inside, table["group"], 0)
    beyond = reached[_rank_index(table), group] if reached.size else np.full(len(table), -1, np.int64)
    passed: Mask = ~table.is_p2p & inside & (table["collective_seq"] < beyond)
    return passed | _passed_p2p(table, current)


def _passed_p2p(table: RecorderTable, current: Mask) -> Mask:
    """The same for sends and receives, each lane (rank, group, operation with peers) by order of recording."""
    rows = np.flatnonzero(table.is_p2p & current)
    passed = np.zeros(len(table), np.bool_)
    if not len(rows):
        return passed
    lanes = np.stack([table["rank"][rows], table["group"][rows], table["operation"][rows]])
    _, lane = np.unique(lanes, axis=1, return_inverse=True)
    lane = lane.reshape(-1)
    newest = np.full(int(lane.max()) + 1, -1, np.int64)
    done = table.finished[rows]
    np.maximum.at(newest, lane[done], rows[done])
    passed[rows] = rows < newest[lane]
    return passed


def _timed_out(table: RecorderTable) -> Mask:
    """Mark entries whose own timeout ran out while their rank still launched others: nobody watches them any more."""
    newest = np.full(len(table.ranks), -1, np.int64)
    index = _rank_index(table)
    np.maximum.at(newest, index, table["created_ns"])
    known = (table["timeout_ms"] > 0) & (table["created_ns"] > 0)
    expired: Mask = known & (table["created_ns"] + table["timeout_ms"] * 1_000_000 < newest[index])
    return expired


def _ended(table: RecorderTable, current: Mask, unfinished: Mask) -> Ints:
    """Return the highest sequence each rank is known to have ended in each group; one communicator ends in order.

    The oldest unfinished one proves the one before it, which is all there is in a dump of active entries only. Gloo's
    ``retired`` also means "timed out", so that only a completed state counts there.
    """
    ended = _highest(table, current & (table["state"] == 2) & ~table.is_p2p)
    oldest = np.full_like(ended, np.iinfo(np.int64).max)
    rows = np.flatnonzero(unfinished & ~table.is_p2p & (table["group"] >= 0) & _is_nccl(table))
    np.minimum.at(oldest, (_rank_index(table)[rows], table["group"][rows]), table["collective_seq"][rows])
    return np.where(oldest == np.iinfo(np.int64).max, ended, np.maximum(ended, oldest - 1))


def _is_nccl(table: RecorderTable) -> Mask:
    gloo = np.array([text.startswith("gloo:") for text in table.strings] + [False], np.bool_)
    nccl: Mask = ~gloo[table["operation"]]
    return nccl


def _lost(table: RecorderTable, unfinished: Mask, ended_by_rank: Ints) -> Mask:
    """Mark unfinished synchronising collectives, and what went before them, that another member has ended."""
    lost = np.zeros(len(table), np.bool_)
    if not ended_by_rank.size:
        return lost
    synchronising = np.array([is_synchronising(text) for text in table.strings] + [False], np.bool_)
    ended = ended_by_rank.max(axis=0)
    inside = unfinished & ~table.is_p2p & (table["group"] >= 0)
    beyond = table["collective_seq"] <= ended[np.where(inside, table["group"], 0)]
    proof = inside & beyond & synchronising[table["operation"]] & _is_nccl(table)
    proven = _highest(table, proof)
    lost[inside] = (table["collective_seq"] <= proven[_rank_index(table), np.where(inside, table["group"], 0)])[inside]
    return lost


def _of_ranks_that(lost: Mask, table: RecorderTable) -> Mask:
    """Mark all rows of ranks that lost a completion: a record proven wrong once says nothing of what else is open."""
    blind = np.zeros(len(table.ranks), np.bool_)
    index = _rank_index(table)
    blind[index[lost]] = True
    rows: Mask = blind[index] if len(table.ranks) else lost
    return rows


def _numbered_by_collectives(table: RecorderTable) -> bool:
    """Return whether transfers of one group share a p2p number and differ in the collective one, as up to version 2.4."""
    rows = np.flatnonzero(table.is_p2p)
    keys = np.stack([table[name][rows] for name in ("rank", "group", "p2p_seq")])
    _, key = np.unique(keys, axis=1, return_inverse=True) if len(rows) else (None, np.zeros(0, np.int64))
    key = key.reshape(-1)
    lowest = np.full(int(key.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(lowest, key, table["collective_seq"][rows])
    return bool((table["collective_seq"][rows] > lowest[key]).any())
