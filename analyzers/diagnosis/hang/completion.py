"""Completions that a rank failed to notice and its peers prove: a local failure, and the strongest clue in some dumps."""

from __future__ import annotations

import re

import numpy as np

from analyzers.model.recorder import Ints, Mask, Pairs, RecorderTable

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
