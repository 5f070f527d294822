"""What each rank has outstanding, and the front of each communicator: where its waits begin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.diagnosis.hang.lingering import lingering, of_this_attempt
from analyzers.model.recorder import Ints, Mask, Pairs, RecorderTable, keyed

_PEERS = re.compile(r"(send|recv)\s+(\d+)\s*(?:->|<-)\s*(\d+)")


@dataclass(frozen=True)
class Fronts:
    """Which rows of the table are outstanding, and how far each rank got in each group.

    ``outstanding``, ``lost``, ``current`` are masks of shape (n,). ``lost``: the rank never saw it end, but a peer's end
    proves that it did. ``current``: of this attempt. ``entered`` and ``ended``: highest collective sequence that each
    (rank, group) pair launched, and saw end.
    """

    table: RecorderTable
    pairs: Pairs
    current: Mask
    lost: Mask
    outstanding: Mask
    entered: Ints
    ended: Ints

    @cached_property
    def dumped(self) -> frozenset[int]:
        """Return the ranks that left a whole dump: only from one of those does it follow what a rank has not done."""
        return frozenset(self.table.ranks) - self.table.partial

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
        lane = np.where(self.table.is_p2p[rows], self.table["operation"][rows] + 1, 0)
        _, first = np.unique(keyed(self.table["rank"][rows], self.table["group"][rows], lane), return_index=True)
        return [int(row) for row in rows[np.sort(first)]]

    @cached_property
    def lost_counts(self) -> dict[int, int]:
        """Map each rank to the number of ends that it failed to notice, where there are any."""
        ranks, counts = np.unique(self.table["rank"][self.lost], return_counts=True)
        return {int(rank): int(count) for rank, count in zip(ranks, counts, strict=True)}

    @cached_property
    def entered_by(self) -> dict[int, dict[int, int]]:
        """Map group and rank to the highest sequence that the rank launched there, -1 for none."""
        return self.pairs.by_group(self.entered)

    @cached_property
    def ended_by(self) -> dict[int, dict[int, int]]:
        """Map group and rank to the highest sequence that the rank saw end there, -1 for none."""
        return self.pairs.by_group(self.ended)


def peers_of(operation: str) -> tuple[str, int, int] | None:
    """Read ``send 0->3`` or ``recv 2<-3`` as (direction, own, peer), in group-local ranks; None for anything else."""
    found = _PEERS.search(operation)
    return (found[1], int(found[2]), int(found[3])) if found else None


def progress(table: RecorderTable) -> Fronts:
    """Separate what is truly outstanding from what lingers: earlier attempts, passed entries, lost completions."""
    pairs = Pairs.from_table(table)
    current = of_this_attempt(table, pairs)
    unfinished = ~table.finished & current & ~table.whole
    left = lingering(table, pairs, current, unfinished)
    unfinished &= ~left
    lost = lost_completions(table, pairs, unfinished, ended_by_pair(table, pairs, current, unfinished))
    entered = pairs.highest(table["collective_seq"], current & ~table.is_p2p)
    ended = pairs.highest(table["collective_seq"], table.finished & current & ~table.is_p2p)
    return Fronts(table, pairs, current & ~left, lost, unfinished & ~lost, entered, ended)


# A peer's end of one of these proves that every member's device reached it. A broadcast, reduce or send may end early.
_SYNCHRONISING = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier", re.IGNORECASE)


def ended_by_pair(table: RecorderTable, pairs: Pairs, current: Mask, unfinished: Mask) -> Ints:
    """Return the highest sequence each rank is known to have ended in each group; one communicator ends in order.

    The oldest unfinished one proves the one before it, which is all there is in a dump of active entries only. Gloo's
    ``retired`` also means "timed out", so that only a completed state counts there.
    """
    ended = pairs.highest(table["collective_seq"], current & (table["state"] == 2) & ~table.is_p2p)
    rows = np.flatnonzero(unfinished & ~table.is_p2p & _not_gloo(table))
    oldest = np.full(len(ended), np.iinfo(np.int64).max)
    np.minimum.at(oldest, pairs.of_row[rows], table["collective_seq"][rows])
    return np.where(oldest == np.iinfo(np.int64).max, ended, np.maximum(ended, oldest - 1))


def lost_completions(table: RecorderTable, pairs: Pairs, unfinished: Mask, ended: Ints) -> Mask:
    """Mark what a rank calls unfinished although another member's end proves that it ended, on every communicator.

    A record that is proven wrong once is believed in nothing else: all that such a rank has open is marked.
    """
    by_group = np.full(len(table.groups) + 1, -1, np.int64)
    np.maximum.at(by_group, pairs.group, ended)
    proof = unfinished & ~table.is_p2p & _not_gloo(table) & table.where_operation(_synchronises)
    proof &= table["collective_seq"] <= by_group[table["group"]]
    blind = np.zeros(len(table.ranks) + 1, np.bool_)
    blind[table.rank_index[proof]] = True
    lost: Mask = unfinished & blind[table.rank_index]
    return lost


def _synchronises(operation: str) -> bool:
    return _SYNCHRONISING.search(operation) is not None


def _not_gloo(table: RecorderTable) -> Mask:
    return ~table.gloo
