"""The values of samples as an array: a record whose columns are not as long as its names and ticks ask for has none."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.records import Samples


def sample_values(samples: Samples) -> tuple[NDArray[np.float64], NDArray[Any]] | None:
    """Return the ticks, in UTC seconds, and the values by device, metric and tick, of the record's type; None without any."""
    shape = (len(samples.devices), len(samples.metrics), len(samples.ticks) // 8)
    size = np.dtype(samples.type).itemsize
    if len(samples.ticks) % 8 or 0 in shape or len(samples.values) != size * shape[0] * shape[1] * shape[2]:
        return None
    return np.frombuffer(samples.ticks, "<f8"), np.frombuffer(samples.values, samples.type).reshape(shape)
