"""A printed pace that is a mean since the start: its differences, each times its number of steps, are the steps' own.

Such a mean settles: from one row to the next it changes the less, the more steps it is of. And what it sums up to only grows.
"""

from __future__ import annotations

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats

FEWEST = 40
SETTLES = 1.5  # so many times more unevenly the first eighth goes on from row to row than the last half
GROWS = 0.98  # of the rows; a rounded mean may stand still for some


def clock_of(seconds: Floats, steps: Floats) -> tuple[Floats, float] | None:
    """Return what has elapsed at each row, and how exactly that is known; None where the seconds are no mean since the start.

    ``steps``: how many were taken until a row.
    """
    known = np.isfinite(seconds) & (seconds > 0) & (steps > 0)
    if np.count_nonzero(known) < FEWEST or not known[len(known) // 2 :].all():
        return None
    logs, elapsed = np.log(seconds[known]), (seconds * steps)[known]
    changes = np.abs(np.diff(logs, 2))  # after a slowdown it goes up, but evenly
    early, late = float(np.mean(changes[: len(changes) // 8])), float(np.mean(changes[len(changes) // 2 :]))
    unit = _unit(seconds[known]) * float(steps[known].max())
    if not late > 0 or early < SETTLES * late or np.mean(np.diff(elapsed) > -2 * unit) < GROWS:
        return None
    return np.where(known, seconds * steps, np.nan), unit


def _unit(values: Floats) -> float:
    """Return about how finely values are printed: the least difference between two of them."""
    differences = np.diff(np.unique(values))
    return float(np.min(differences, initial=np.inf)) if len(differences) else 0.0
