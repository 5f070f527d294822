"""Whether a rate of work that a job reports, tokens or samples a second, is that of its steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

FEWEST, LEAST_DIFFERENCE = 20, 0.004  # rows that show it; how unlike their steps must be


@np.errstate(invalid="ignore", divide="ignore")
def is_of_steps(rate: NDArray[np.float64], seconds: NDArray[np.float64]) -> bool:
    """Whether a rate goes down where a step is longer. A mean over many steps, or a rate of something else, does not.

    ``rate``: work a second, ``seconds`` of a step, one of each a row; NaN: not known. Where too few seconds are known, or they
    hardly differ, it is taken for the steps' own.
    """
    logs = np.log(seconds), np.log(rate)
    own, work = (np.abs(np.diff(one)) for one in (logs[0], logs[0] + logs[1]))
    own, work = own[np.isfinite(work)], work[np.isfinite(work)]
    if len(own) < FEWEST:
        return True
    differs = float(np.median(own))
    return differs < LEAST_DIFFERENCE or float(np.median(work)) < differs / 2
