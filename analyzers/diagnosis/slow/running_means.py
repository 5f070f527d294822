"""A printed pace that is a mean since the start: its differences, each times its number of steps, are the steps' own.

Such a mean settles all along: from one row to the next it changes the less, the more steps it is of. And what it sums up to only
grows. A pace of single steps changes as much at the end as soon after the first, slow ones.
"""

from __future__ import annotations

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats

FEWEST = 40
SETTLES = 2.5  # so many times more unevenly it goes on from row to row before the first quarter than in the last half: a mean 5


def clock_of(seconds: Floats, steps: Floats) -> tuple[Floats, float] | None:
    """Return what has elapsed at each row, and how exactly that is known; None where the seconds are no mean since the start.

    ``steps``: how many were taken until a row.
    """
    known = np.isfinite(seconds) & (seconds > 0) & (steps > 0)
    if np.count_nonzero(known) < FEWEST or not known[len(known) // 2 :].all():
        return None
    logs, elapsed = np.log(seconds[known]), (seconds * steps)[known]
    changes = np.abs(np.diff(logs, 2))  # after a slowdown it goes up, but evenly
    count = len(changes)
    early, late = float(np.mean(changes[max(count // 16, 5) : count // 4])), float(np.mean(changes[count // 2 :]))
    unit = _unit(seconds[known]) * float(steps[known].max())
    if not late > 0 or early < SETTLES * late or np.any(np.diff(elapsed) < -2 * unit):
        return None
    return np.where(known, seconds * steps, np.nan), unit


def _unit(values: Floats) -> float:
    """Return about how finely values are printed: the least difference between two of them."""
    differences = np.diff(np.unique(values))
    return float(np.min(differences, initial=np.inf)) if len(differences) else 0.0
