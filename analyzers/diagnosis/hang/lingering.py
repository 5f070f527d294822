"""Entries that seem unfinished and are not: of an earlier attempt, overtaken, timed out, or parts of a batch that ended."""

from __future__ import annotations

import numpy as np

from analyzers.model.recorder import Ints, Mask, Pairs, RecorderTable, keyed

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


def lingering(table: RecorderTable, pairs: Pairs, current: Mask, unfinished: Mask) -> Mask:
    """Mark what lingers among this attempt's unfinished entries, of which none is a batch as a whole."""
    rows = np.flatnonzero(unfinished)
    left = _passed(table, pairs, current, rows) | _passed_transfers(table, current, rows) | _timed_out(table, rows)
    left |= _parts_ended(table, pairs, rows) | _counted_as_ended(table, rows)
    mark = np.zeros(len(table), np.bool_)
    mark[rows[left]] = True
    return mark


def _passed(table: RecorderTable, pairs: Pairs, current: Mask, rows: Ints) -> Mask:
    """Mark collectives that a later finished one of the same rank and communicator has overtaken (CUDA graphs)."""
    reached = pairs.highest(table["collective_seq"], current & table.finished & ~table.is_p2p & ~table.whole)
    passed: Mask = ~table.is_p2p[rows] & (table["collective_seq"][rows] < reached[pairs.of_row[rows]])
    return passed


def _passed_transfers(table: RecorderTable, current: Mask, rows: Ints) -> Mask:
    """The same for sends and receives, each lane (rank, group, operation with peers) by order of recording."""
    first = np.full(len(table.ranks), len(table), np.int64)
    np.minimum.at(first, table.rank_index[rows], rows)
    later = table.finished & table.is_p2p & current & (np.arange(len(table)) > first[table.rank_index])
    done = np.flatnonzero(later)  # what a rank recorded before all that it has open has overtaken nothing
    both = np.concatenate([rows, done])
    _, lane = np.unique(keyed(table["pair"][both], table["operation"][both]), return_inverse=True)
    newest = np.full(len(both), -1, np.int64)
    np.maximum.at(newest, lane[len(rows) :], done)
    passed: Mask = table.is_p2p[rows] & (rows < newest[lane[: len(rows)]])
    return passed


def _timed_out(table: RecorderTable, rows: Ints) -> Mask:
    """Mark entries whose own timeout ran out while their rank still launched others: no watchdog watches them any more."""
    newest = np.full(len(table.ranks) + 1, -1, np.int64)
    np.maximum.at(newest, table.rank_index, table["created_ns"])
    # One wild instant in a dump must not make its rank's other waits look forgotten: no rank lives an hour after most.
    middle = int(np.sort(newest)[len(newest) // 2])
    newest = np.where(newest > middle + LIVES_LONGER_NS, middle, newest)
    created, timeout = table["created_ns"][rows], table["timeout_ms"][rows]
    expired: Mask = (timeout > 0) & (created > 0) & (created + timeout * 1_000_000 < newest[table.rank_index[rows]])
    return expired


def _numbers(table: RecorderTable, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Return what the rank's own status counter knows completed, and the rows' own numbers: p2p and collective."""
    done = table.statuses.looked_up(table["rank"][rows], table["pg_id"][rows])
    return done, table["p2p_seq"][rows], table["collective_seq"][rows]


def _counted_as_ended(table: RecorderTable, rows: Ints) -> Mask:
    """Mark collectives below what their rank's own status counter knows completed: captured in a graph, or forgotten.

    Gloo's counter counts the sends and receives too that its recorder leaves out: it shows nothing of collectives.
    """
    done, p2p, collective = _numbers(table, rows)
    about = (np.abs(done - collective) < np.abs(done - p2p)) | (p2p <= 0)
    ended: Mask = ~(table.is_p2p | table.gloo)[rows] & about & (done >= collective) & (collective > 0)
    return ended


def _parts_ended(table: RecorderTable, pairs: Pairs, rows: Ints) -> Mask:
    """Mark parts of a batch that ended: no watchdog watches a part, which stays ``scheduled`` for ever [ProcessGroupNCCL].

    The batch's own entry says so, or, where a dump of active entries leaves that out, the rank's status counter does:
    it holds the number of the last work that ended, p2p work being counted on its own since version 2.5.
    """
    has_open = np.zeros(len(pairs.keys), np.bool_)
    has_open[pairs.of_row[rows]] = True
    batches = np.flatnonzero(table.whole & has_open[pairs.of_row])
    both = np.concatenate([batches, rows])
    columns = (table[name][both] for name in ("pair", "p2p_seq", "collective_seq"))
    _, key = np.unique(keyed(*columns), return_inverse=True)
    batched, ended = np.zeros(len(both), np.bool_), np.zeros(len(both), np.bool_)
    of_batch, of_row = key[: len(batches)], key[len(batches) :]
    batched[of_batch] = True
    ended[of_batch[table.finished[batches]]] = True
    part: Mask = ended[of_row]
    alone = table.is_p2p[rows] & ~batched[of_row]
    return part | (alone & _ended_by_status(table, rows)) if alone.any() else part


def _ended_by_status(table: RecorderTable, rows: Ints) -> Mask:
    """Mark transfers without a batch's entry that ended, by the numbers that batches take.

    Up to version 2.4 a batch took a collective number: transfers so numbered are parts, and a dump that lacks their
    batch lacks it because it ended. Later the rank's own status counter decides, unless it is nearer to the collective
    numbers of its group than to the p2p ones: then it counts the group's collectives and not its transfers.
    """
    if (table.whole & ~table.is_p2p).any() or _numbered_by_collectives(table):
        return table.is_p2p[rows]
    done, p2p, collective = _numbers(table, rows)
    ended: Mask = (done >= p2p) & (p2p > 0) & (np.abs(done - p2p) < np.abs(done - collective))
    return ended


def _numbered_by_collectives(table: RecorderTable) -> bool:
    """Return whether transfers of one group share a p2p number and differ in the collective one, as up to version 2.4."""
    rows = np.flatnonzero(table.is_p2p)
    _, key = np.unique(keyed(table["pair"][rows], table["p2p_seq"][rows]), return_inverse=True)
    lowest = np.full(len(rows) + 1, np.iinfo(np.int64).max)
    np.minimum.at(lowest, key, table["collective_seq"][rows])
    return bool((table["collective_seq"][rows] > lowest[key]).any())
