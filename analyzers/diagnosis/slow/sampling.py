"""Fewer steps of traces that have more operations than are compared in a few seconds: short runs of whole steps, evenly spread.

Every worker keeps the same steps, so that all are compared; a run has neighbours, between which a host may stall; the spread
shows since when. An operation has 2 µs of a core and 100 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from analyzers.diagnosis.slow.grouping import Ints, runs
from analyzers.diagnosis.slow.op_table import batches, column
from collectors.records import OpTimings

MOST_COMPARED = 4_000_000  # operations
RUN_STEPS = 4
FEWEST_STEPS = 8


class Sample(NamedTuple):
    """Which steps are compared, None for all; how many operations those have; and of how many steps, 0 where all are."""

    steps: Ints | None
    operations: int
    all_steps: int


def sampled(records: Sequence[OpTimings]) -> Sample:
    """Return so many of the steps that their operations can be compared."""
    operations = sum(record.count for record in records)
    everything = Sample(None, operations, 0)
    if operations <= MOST_COMPARED:
        return everything
    steps, counts = _operations_by_step(records)
    keep = max(int(MOST_COMPARED * len(steps) / operations), FEWEST_STEPS)
    if len(steps) <= keep:
        return everything
    chosen = spread_runs(len(steps), keep)
    return Sample(steps[chosen], int(counts[chosen].sum()), len(steps))


def _operations_by_step(records: Sequence[OpTimings]) -> tuple[Ints, Ints]:
    """Return the numbers of the steps, sorted, and how many operations each has."""
    numbers, counts = [], []
    for batch in batches(records):
        step = column(batch, "step")
        begins, lengths = runs(step)
        numbers.append(step[begins])
        counts.append(lengths)
    steps, place = np.unique(np.concatenate(numbers), return_inverse=True)
    total = np.zeros(len(steps), np.int64)
    np.add.at(total, place, np.concatenate(counts))
    return steps[steps >= 0], total[steps >= 0]


def spread_runs(count: int, keep: int) -> Ints:
    """Return ``keep`` of ``count`` places: runs of neighbours, of which one is the first and one the last."""
    runs = max(keep // RUN_STEPS, 1)
    each = keep // runs
    begins = np.linspace(0, count - each, runs).round().astype(np.int64)
    return np.unique(begins[:, None] + np.arange(each))
