"""Workers that take longer for the same work than their peers, or than they themselves did before.

The centre is the median of the peers and never the fastest; how far from it is too far comes from how far the others are.
The bound is higher where few workers show that. With two peers and no past it does not show which is slow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.slow.levels import Levels, changes
from analyzers.diagnosis.slow.op_table import Floats, Ints, Mask, spread

LEAST = float(np.log(1.02))  # a smaller difference is no fault of a machine
LEAST_CHANGE = float(np.log(1.05))
TIMES, TIMES_ALONE = 5.0, 12.0  # so many times the spread; the second is divided by the workers that show it
TIMES_CHANGED = 8.0


@dataclass(frozen=True)
class Outliers:
    """``slow``: workers above their peers. ``open``: those of which one is, and the evidence does not decide which.

    ``excess``: the logarithm of how many times as long as the peers each worker takes. ``changed_at``: the index of the step
    since which a worker has been slower than before, -1 for none. ``margin``: how many times its bound the excess is.
    ``unlike``: the workers' levels are spread like those of unlike machines.
    """

    slow: Ints
    open: tuple[Ints, ...]
    excess: Floats
    changed_at: Ints
    margin: Floats
    spread: float


def find(levels: Levels, *, by_past_alone: bool = False) -> Outliers:
    """Return who stands out. ``by_past_alone``: peers may be unlike machines, and only a change counts."""
    size, at, times = changes(levels.by_step)
    changed = (size > LEAST_CHANGE) & (times > TIMES_CHANGED)
    changed_at = np.where(changed, at, -1)
    compared = levels.peers >= 3
    wide = spread(levels.level[compared])
    count = int(np.count_nonzero(compared & np.isfinite(levels.level)))
    bound = (TIMES + TIMES_ALONE / max(count - 1, 1)) * np.hypot(wide, levels.noise)
    bound = np.maximum(bound, LEAST)
    level = np.nan_to_num(levels.level)
    if by_past_alone:
        slow = changed & (2 * np.count_nonzero(changed) < len(level))
        return Outliers(np.flatnonzero(slow), (), np.where(changed, size, 0.0), changed_at, size / LEAST_CHANGE, wide)
    above = compared & (level > bound)
    above |= changed & (level > LEAST) & (size > LEAST_CHANGE)
    open_sets = []
    for duty in np.unique(levels.duty[above | (levels.peers == 2)]):
        members = np.flatnonzero((levels.duty == duty) & np.isfinite(levels.level))
        undecided = _undecided(members, level, above, changed, levels.noise, wide if count >= 6 else 0.0)
        if len(undecided):
            above[members] = False
            open_sets.append(undecided)
    excess = np.where(above, _excess(levels, level, above), 0.0)
    return Outliers(np.flatnonzero(above), tuple(open_sets), excess, changed_at, level / bound, wide)


def _undecided(members: Ints, level: Floats, above: Mask, changed: Mask, noise: Floats, wide: float) -> Ints:
    """Return the workers of a duty of which some are slow where it is not shown which: two, or half of them and more."""
    slow = members[above[members]]
    if len(members) == 2 and not changed[members].any():
        apart = float(np.ptp(level[members]))
        bound = max(TIMES + TIMES_ALONE, 1.0) * float(np.hypot(wide, noise[members].max()))
        return members if apart > max(bound, LEAST_CHANGE) else members[:0]
    if len(slow) and 2 * len(slow) >= len(members) and not changed[slow].all():
        return members
    return members[:0]


def _excess(levels: Levels, level: Floats, above: Mask) -> Floats:
    """Return how far above the others of its duty each worker is, the slow ones left out of the others."""
    found = np.zeros(len(level))
    for duty in np.unique(levels.duty):
        members = (levels.duty == duty) & np.isfinite(levels.level)
        others = level[members & ~above]
        centre = float(np.median(others)) if len(others) else 0.0
        found[members] = level[members] - centre
    return found
