"""What a loss or gradient norm usually is, for a comparison in multiples of it.

The median alone is too low where values spread widely. In reinforcement learning a gradient is 0 when all answers to each
question are worth the same, and the norms of the other steps are then many times the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

HIGH, OF_HIGH = 0.9, 0.5  # of a wide spread, half of the value that a tenth of them exceed


def usual_value(values: Sequence[float]) -> float:
    """Return the median, or half of the 90th percentile where that is more; of at least one value."""
    ordered = sorted(values)
    middle = median(ordered)
    return max(middle, OF_HIGH * ordered[round(HIGH * (len(ordered) - 1))]) if middle > 0 else middle
