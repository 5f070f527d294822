"""Array functions by group or by row, in linear time or by sorts of short rows: traces of a large job have millions of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


def grouped_median(values: Floats, groups: Ints, count: int) -> Floats:
    """Return the median of the values of each group, NaN for a group without any.

    Groups of one size are sorted together, as the rows of a matrix: a sort of all values by group takes three times as long.
    """
    ranked = values if (np.diff(groups) >= 0).all() else values[np.argsort(groups, kind="stable")]
    sizes = np.bincount(groups, minlength=count)
    begins = np.cumsum(sizes) - sizes
    by_size = np.argsort(sizes, kind="stable")
    found = np.full(count, np.nan)
    for members in np.split(by_size, np.flatnonzero(np.diff(sizes[by_size])) + 1):
        if size := int(sizes[members[0]]) if len(members) else 0:
            rows = np.sort(ranked[begins[members][:, None] + np.arange(size)], axis=1)
            found[members] = (rows[:, (size - 1) // 2] + rows[:, size // 2]) / 2
    return found


def row_median(values: Floats, known: Mask) -> Floats:
    """Return the median of what is known of each row of a matrix, NaN where nothing is."""
    ordered = np.sort(np.where(known, values, np.inf), axis=1)
    count = known.sum(axis=1)
    row, half = np.arange(len(values)), count // 2
    middle = (ordered[row, np.maximum(count - 1, 0) // 2] + ordered[row, np.minimum(half, values.shape[1] - 1)]) / 2
    return np.where(count > 0, middle, np.nan)


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """Return the distinct values, sorted, and which of them each is: ``numpy.unique``, without a sort where they lie close."""
    least = int(values.min(initial=0))
    width = int(values.max(initial=least)) - least + 1
    if width > 4 * len(values) + 1_000:
        distinct, place = np.unique(values, return_inverse=True)
        return distinct, place
    present = np.zeros(width, np.bool_)
    present[values - least] = True
    return np.flatnonzero(present) + least, (np.cumsum(present) - 1)[values - least]


def runs(values: NDArray[Any]) -> tuple[Ints, Ints]:
    """Return where runs of equal values begin, and how long each is."""
    begins = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return begins, np.diff(np.append(begins, len(values)))


def combined(*columns: Ints) -> Ints:
    """Return which combination of values each row has, in the order of the first column, then the second, and so on."""
    found = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        distinct, place = numbered(column)
        found = numbered(found * len(distinct) + place)[1]
    return found
