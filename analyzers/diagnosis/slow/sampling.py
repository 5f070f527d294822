"""Fewer steps of traces that have more operations than are compared in a few seconds: short runs of whole steps, evenly spread.

Every worker keeps the same steps, so that all are compared; a run has neighbours, between which a host may stall; the spread
shows since when. An operation has 2 µs of a core and 100 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from analyzers.diagnosis.slow.grouping import Ints
from analyzers.diagnosis.slow.op_table import columns_of
from collectors.records import OP_COLUMNS, OpTimings

MOST_COMPARED = 4_000_000  # operations
RUN_STEPS = 4
FEWEST_STEPS = 8


def sampled(records: Sequence[OpTimings]) -> tuple[Sequence[OpTimings], int]:
    """Return the records with so many steps that their operations can be compared, and how many steps they had."""
    rows = sum(record.count for record in records)
    if rows <= MOST_COMPARED:
        return records, 0
    steps = np.unique(np.concatenate([np.unique(columns_of(record)["step"]) for record in records]))
    steps = steps[steps >= 0]
    keep = max(int(MOST_COMPARED * len(steps) / rows), FEWEST_STEPS)
    if len(steps) <= keep:
        return records, 0
    chosen = steps[spread_runs(len(steps), keep)]
    return [_cut(record, chosen) for record in records], len(steps)


def spread_runs(count: int, keep: int) -> Ints:
    """Return ``keep`` of ``count`` places: runs of neighbours, of which one is the first and one the last."""
    runs = max(keep // RUN_STEPS, 1)
    each = keep // runs
    begins = np.linspace(0, count - each, runs).round().astype(np.int64)
    return np.unique(begins[:, None] + np.arange(each))


def _cut(record: OpTimings, steps: Ints) -> OpTimings:
    columns = columns_of(record)
    mine = np.isin(columns["step"], steps)
    kept = {name: columns[name][mine].tobytes() for name in OP_COLUMNS}
    return msgspec.structs.replace(record, count=int(mine.sum()), columns=kept)
