"""The median of few values, for which ``numpy.median`` takes ten times as long: its cost is of its general case."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def median(values: NDArray[np.float64]) -> float:
    """Return the median of at least one finite value, in their unit; ``numpy.median`` returns the same."""
    ordered = np.sort(values)
    half = len(ordered) // 2
    if len(ordered) % 2:
        return float(ordered[half])
    return (float(ordered[half - 1]) + float(ordered[half])) / 2
