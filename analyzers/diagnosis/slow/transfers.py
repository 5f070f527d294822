"""What transfers between stages take, without a comparison of clocks.

The side that comes late to a transfer does not wait in it. Of the k-th send of a stage and the k-th receive of the next, in the
same step of the same replica, the shorter is the transfer itself (ByteDance, OSDI 2025, section 3.2, with durations alone).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats, Ints, grouped_median
from analyzers.diagnosis.slow.op_table import OpTable

FORWARD, BACKWARD, LOCAL = "forward", "backward", "local"


def direction_of(name: str) -> str:
    """Return which way through the stages an operation goes, by its name."""
    lowered = name.lower()
    if "forward" in lowered or "fwd" in lowered:
        return FORWARD
    return BACKWARD if "backward" in lowered or "bwd" in lowered else LOCAL


@dataclass(frozen=True)
class Transfers:
    """Matched sends and receives of one direction: the replica, the sending stage, the step and the seconds of each."""

    dp: Ints
    pp: Ints
    step: Ints
    seconds: Floats


def ordinals(group: Ints) -> Ints:
    """Return, for each row, how many rows of its group come before it."""
    order = np.argsort(group, kind="stable")
    begins = np.flatnonzero(np.diff(group[order], prepend=-1))
    found = np.empty(len(group), np.int64)
    found[order] = np.arange(len(group)) - np.repeat(begins, np.diff(np.append(begins, len(group))))
    return found


def matched(table: OpTable, direction: str) -> Transfers:
    """Return the transfers of one direction whose send and receive the trace both has."""
    dp, pp = (np.array([getattr(worker, name) for worker in table.workers], np.int64) for name in ("dp", "pp"))
    mine = np.array([direction_of(name) == direction for name in table.operations], np.bool_)
    stages = int(pp.max(initial=-1)) + 1
    onward = 1 if direction == FORWARD else -1
    keys, rows = [], []
    for word, shift in (("send", 0), ("recv", onward)):
        of_word = mine & np.array([word in name.lower() for name in table.operations], np.bool_)
        row = np.flatnonzero(of_word[table.operation]) if len(of_word) else np.zeros(0, np.int64)
        key = _keys(table, row, dp, (pp - shift) % max(stages, 1))
        keys.append(key)
        rows.append(row)
    _, sent, received = np.intersect1d(keys[0], keys[1], return_indices=True)
    sends, receives = rows[0][sent], rows[1][received]
    worker = table.worker[sends]
    return Transfers(
        dp[worker], pp[worker], table.step[sends], np.minimum(table.seconds[sends], table.seconds[receives])
    )


def _keys(table: OpTable, row: Ints, dp: Ints, pp: Ints) -> Ints:
    """Return what a send and its receive have in common, as one number: replica, sending stage, step and ordinal."""
    place = (table.worker[row] * (len(table.steps) + 1) + table.step[row]) * (len(table.operations) + 1)
    ordinal = ordinals(place + table.operation[row])
    worker = table.worker[row]
    found: Ints = (
        ((dp[worker] + 1) * 65_536 + pp[worker]) * (len(table.steps) + 1) + table.step[row]
    ) * 100_000 + ordinal
    return found


def by_edge(table: OpTable, direction: str, stages: list[int], replicas: list[int]) -> Floats:
    """Return the median seconds of the transfers of each stage (rows) and replica (columns).

    Where none is matched it is the median of those that are, 0 without any.
    """
    found = matched(table, direction)
    row = np.searchsorted(stages, found.pp)
    column = np.searchsorted(replicas, found.dp)
    inside = np.isin(found.pp, stages) & np.isin(found.dp, replicas)
    cells = len(stages) * len(replicas)
    each = grouped_median(found.seconds[inside], (row * len(replicas) + column)[inside], cells)
    known = each[np.isfinite(each)]
    filled = np.where(np.isfinite(each), each, float(np.median(known)) if len(known) else 0.0)
    return filled.reshape(len(stages), len(replicas))


def even_edges(seconds: Floats) -> Floats:
    """Return the transfers with every replica of a stage as its median replica."""
    if not seconds.shape[1]:
        return seconds
    return np.minimum(seconds, np.median(seconds, axis=1, keepdims=True))


def is_transfer(name: str) -> bool:
    """Whether an operation sends to or receives from one other stage."""
    lowered = name.lower()
    return "send" in lowered or "recv" in lowered
