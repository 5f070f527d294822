"""Entries that seem unfinished and are not: of an earlier attempt, overtaken, timed out, or parts of a batch that ended."""

from __future__ import annotations

import numpy as np

from analyzers.model.recorder import Mask, Pairs, RecorderTable, keyed

LIVES_LONGER_NS = 3_600_000_000_000


def of_this_attempt(table: RecorderTable, pairs: Pairs) -> Mask:
    """Drop entries from before a sequence number fell: the recorder outlives a process group that was made anew."""
    rows = np.flatnonzero(~table.is_p2p)
    order = rows[np.argsort(pairs.of_row[rows], kind="stable")]
    pair, sequence = pairs.of_row[order], table["collective_seq"][order]
    before = order[:-1][(pair[1:] == pair[:-1]) & (sequence[1:] < sequence[:-1])]
    cut = np.full(len(table.ranks) + 1, -1, np.int64)
    np.maximum.at(cut, table.rank_index[before], table["record_id"][before])
    kept: Mask = table["record_id"] > cut[table.rank_index]
    return kept


def lingering(table: RecorderTable, pairs: Pairs, current: Mask) -> Mask:
    """Mark what lingers among this attempt's entries."""
    mark: Mask = _passed(table, pairs, current) | _passed_transfers(table, current)
    return mark | _timed_out(table) | _parts_ended(table) | _counted_as_ended(table)


def _passed(table: RecorderTable, pairs: Pairs, current: Mask) -> Mask:
    """Mark collectives that a later finished one of the same rank and communicator has overtaken (CUDA graphs)."""
    reached = pairs.highest(table["collective_seq"], current & table.finished & ~table.is_p2p & ~is_whole(table))
    passed: Mask = ~table.is_p2p & (table["collective_seq"] < reached[pairs.of_row])
    return passed


def _passed_transfers(table: RecorderTable, current: Mask) -> Mask:
    """The same for sends and receives, each lane (rank, group, operation with peers) by order of recording."""
    rows = np.flatnonzero(table.is_p2p & current)
    keys = keyed(table["rank"][rows], table["group"][rows], table["operation"][rows])
    _, lane = np.unique(keys, return_inverse=True)
    newest = np.full(len(rows) + 1, -1, np.int64)
    done = table.finished[rows]
    np.maximum.at(newest, lane[done], rows[done])
    passed = np.zeros(len(table), np.bool_)
    passed[rows] = rows < newest[lane]
    return passed


def _timed_out(table: RecorderTable) -> Mask:
    """Mark entries whose own timeout ran out while their rank still launched others: no watchdog watches them any more."""
    newest = np.full(len(table.ranks) + 1, -1, np.int64)
    np.maximum.at(newest, table.rank_index, table["created_ns"])
    # One wild instant in a dump must not make its rank's other waits look forgotten: no rank lives an hour after most.
    middle = int(np.sort(newest)[len(newest) // 2])
    newest = np.where(newest > middle + LIVES_LONGER_NS, middle, newest)
    known = (table["timeout_ms"] > 0) & (table["created_ns"] > 0)
    expired: Mask = known & (table["created_ns"] + table["timeout_ms"] * 1_000_000 < newest[table.rank_index])
    return expired


def _counted_as_ended(table: RecorderTable) -> Mask:
    """Mark collectives below what their rank's own status counter knows completed: captured in a graph, or forgotten.

    Gloo's counter counts the sends and receives too that its recorder leaves out: it shows nothing of collectives.
    """
    done, p2p, collective = table["status_completed"], table["p2p_seq"], table["collective_seq"]
    about = (np.abs(done - collective) < np.abs(done - p2p)) | (p2p <= 0)
    ended: Mask = ~table.is_p2p & ~table.gloo & about & (done >= collective) & (collective > 0)
    return ended


def is_whole(table: RecorderTable) -> Mask:
    """Mark ``coalesced`` entries: the batch as a whole, which alone is watched; its parts come before it."""
    return table.where_operation(lambda operation: operation == "coalesced")


def _parts_ended(table: RecorderTable) -> Mask:
    """Mark parts of a batch that ended: no watchdog watches a part, which stays ``scheduled`` for ever [ProcessGroupNCCL].

    The batch's own entry says so, or, where a dump of active entries leaves that out, the rank's status counter does:
    it holds the number of the last work that ended, p2p work being counted on its own since version 2.5.
    """
    whole = is_whole(table)
    if not whole.any() and not table.is_p2p.any():
        return np.zeros(len(table), np.bool_)
    _, key = np.unique(
        keyed(*(table[name] for name in ("rank", "group", "p2p_seq", "collective_seq"))), return_inverse=True
    )
    batched, ended = (np.zeros(len(table), np.bool_) for _ in range(2))
    batched[key[whole]] = True
    ended[key[whole & table.finished]] = True
    part: Mask = (ended[key] & ~whole) | (table.is_p2p & ~batched[key] & _ended_by_status(table, whole))
    return part


def _ended_by_status(table: RecorderTable, whole: Mask) -> Mask:
    """Mark transfers without a batch's entry that ended, by the numbers that batches take.

    Up to version 2.4 a batch took a collective number: transfers so numbered are parts, and a dump that lacks their
    batch lacks it because it ended. Later the rank's own status counter decides, unless it is nearer to the collective
    numbers of its group than to the p2p ones: then it counts the group's collectives and not its transfers.
    """
    if (whole & ~table.is_p2p).any() or _numbered_by_collectives(table):
        return table.is_p2p
    done, p2p, collective = table["status_completed"], table["p2p_seq"], table["collective_seq"]
    ended: Mask = (done >= p2p) & (p2p > 0) & (np.abs(done - p2p) < np.abs(done - collective))
    return ended


def _numbered_by_collectives(table: RecorderTable) -> bool:
    """Return whether transfers of one group share a p2p number and differ in the collective one, as up to version 2.4."""
    rows = np.flatnonzero(table.is_p2p)
    _, key = np.unique(keyed(table["rank"][rows], table["group"][rows], table["p2p_seq"][rows]), return_inverse=True)
    lowest = np.full(len(rows) + 1, np.iinfo(np.int64).max)
    np.minimum.at(lowest, key, table["collective_seq"][rows])
    return bool((table["collective_seq"][rows] > lowest[key]).any())
