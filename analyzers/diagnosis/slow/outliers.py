"""Workers that take longer for the same work than their peers, or than they themselves did before.

The centre is the median of the peers and never the fastest; how far from it is too far comes from how far the others are.
The bound is higher where few workers show that. With two peers and no past it does not show which is slow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats, Ints, Mask
from analyzers.diagnosis.slow.levels import Levels, changes
from analyzers.diagnosis.slow.op_table import OpTable
from analyzers.model.medians import spread

LEAST = float(np.log(1.02))  # a smaller difference is no fault of a machine
LEAST_CHANGE = float(np.log(1.05))
TIMES, TIMES_ALONE = 5.0, 12.0  # so many times the spread; the second is divided by the workers that show it
TIMES_CHANGED, TIMES_HALVES = 8.0, 12.0
TIMES_BOTH = 3.0  # above the peers, for a worker that has changed
FEWEST_ALIKE = 4  # workers, for how far they are apart to show what is usual
LEAST_CHANGE_ALONE = float(np.log(1.10))  # of whole batches, which hold more than compute


@dataclass(frozen=True)
class Outliers:
    """``slow``: workers above their peers. ``open``: those of which one is, and the evidence does not decide which.

    ``excess``: the logarithm of how many times as long as the peers each worker takes. ``changed_at``: the index of the step
    since which a worker has been slower than before, -1 for none. ``spread``: of the levels of all workers. ``limit``: the
    logarithm of how many times as long as its peers a worker may take without standing out. ``unsure``: workers that take
    longer than their own steps vary, but not by enough for as few workers as there are.
    """

    slow: Ints
    open: tuple[Ints, ...]
    excess: Floats
    changed_at: Ints
    spread: float
    limit: float
    unsure: Ints


def find(levels: Levels, *, by_past_alone: bool = False) -> Outliers:
    """Return who stands out. ``by_past_alone``: peers may be unlike machines, and only a change counts."""
    size, at, times = changes(levels)
    changed = (size > (LEAST_CHANGE_ALONE if by_past_alone else LEAST_CHANGE)) & (times > TIMES_CHANGED)
    changed_at = np.where(changed, at, -1)
    compared = levels.peers >= 3
    wide = spread(levels.level[compared])
    count = int(np.count_nonzero(compared & np.isfinite(levels.level)))
    bound = (TIMES + TIMES_ALONE / max(count - 1, 1)) * np.hypot(wide, levels.noise)
    bound = np.maximum(bound, LEAST)
    level = _current(levels, changed_at)
    if by_past_alone:
        slow = changed & (2 * np.count_nonzero(changed) < len(level))
        return Outliers(
            np.flatnonzero(slow), (), np.where(slow, size, 0.0), changed_at, wide, LEAST_CHANGE_ALONE, levels.peers[:0]
        )
    above = compared & (level > bound)
    above |= changed & (level > np.maximum(LEAST, TIMES_BOTH * np.hypot(wide, levels.noise)))
    open_sets = []
    for duty in np.unique(levels.duty):
        members = np.flatnonzero((levels.duty == duty) & np.isfinite(levels.level))
        if 2 * np.count_nonzero(changed[members]) > len(members):  # they have become slow together
            above[members] = False
        undecided = _undecided(members, level, above, changed, levels.noise)
        if len(undecided):
            above[members] = False
            open_sets.append(undecided)
    excess = np.where(above, _excess(levels, level, above), 0.0)
    limit = float(np.max(bound[compared & np.isfinite(levels.level)], initial=LEAST))
    least = np.hypot((TIMES + TIMES_ALONE / max(count - 1, 1)) * wide, TIMES * levels.noise)
    unsure = np.flatnonzero(compared & ~above & (level > np.maximum(least, LEAST_CHANGE_ALONE)))
    return Outliers(np.flatnonzero(above), tuple(open_sets), excess, changed_at, wide, limit, unsure)


def _current(levels: Levels, changed_at: Ints) -> Floats:
    """Return the levels, of a worker that has changed since it has."""
    level = np.nan_to_num(levels.level)
    for number in np.flatnonzero(changed_at >= 0).tolist():
        since = levels.by_step[number, changed_at[number] :]
        known = since[np.isfinite(since)]
        level[number] = (
            max(level[number], float(np.median(known)) - levels.shared[number]) if len(known) else level[number]
        )
    return level


def _undecided(members: Ints, level: Floats, above: Mask, changed: Mask, noise: Floats) -> Ints:
    """Return the workers of a duty of which some are slow where it is not shown which: one of two, half of them, or most.

    Where a quarter or more are alike and most of the others take longer, these are slow or those are fast.
    """
    if len(members) < 2 or changed[members].any():
        return members[:0]
    ordered = np.sort(level[members])
    at = widest_gap(ordered)
    faster, slower = ordered[:at], ordered[at:]
    alike = len(faster) >= FEWEST_ALIKE and len(faster) <= len(slower) <= 3 * len(faster)
    if len(faster) != len(slower) and not alike:
        slow = members[above[members]]
        return members if 2 * len(slow) >= len(members) else members[:0]
    within = float(np.ptp(faster)) if alike else max(float(np.ptp(faster)), float(np.ptp(slower)))
    usual = float(np.median(noise[members]) if alike else noise[members].max())
    bound = max(LEAST_CHANGE, TIMES_HALVES * usual, 2 * within)
    return members if slower[0] - faster[-1] > bound else members[:0]


def widest_gap(ordered: Floats) -> int:
    """Return the index of the value, of two or more in their order, that is farthest above the one before it."""
    return int(np.argmax(np.diff(ordered))) + 1


def _excess(levels: Levels, level: Floats, above: Mask) -> Floats:
    """Return how far above the others of its duty each worker is, the slow ones left out of the others."""
    found = np.zeros(len(level))
    for duty in np.unique(levels.duty):
        members = (levels.duty == duty) & np.isfinite(levels.level)
        others = level[members & ~above]
        centre = float(np.median(others)) if len(others) else 0.0
        found[members] = level[members] - centre
    return found


def slow_replicas(table: OpTable, levels: Levels) -> Ints:
    """Return the workers of replicas of which all stages take longer than those of the others, by the same factor.

    A replica that gets longer sequences does so in some microbatches: its noise is as large as what its stages share.
    """
    shared = {worker.dp: float(levels.shared[number]) for number, worker in enumerate(table.workers) if worker.dp >= 0}
    if len(shared) < 2 or len({worker.pp for worker in table.workers}) < 2:
        return np.zeros(0, np.int64)
    ordered = np.sort(list(shared.values()))
    cut = widest_gap(ordered)
    within = max(float(np.ptp(ordered[:cut])), float(np.ptp(ordered[cut:])))
    if ordered[cut] - ordered[cut - 1] <= max(LEAST_CHANGE, TIMES_HALVES * float(np.median(levels.noise)), 2 * within):
        return np.zeros(0, np.int64)
    slow = {dp for dp, value in shared.items() if value >= ordered[cut]}
    return np.array([number for number, worker in enumerate(table.workers) if worker.dp in slow], np.int64)
