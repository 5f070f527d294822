"""Means by the minute, of many subjects, over the newest quarter of an hour."""

from __future__ import annotations

from array import array
from collections.abc import Sequence, Sized

import numpy as np
from numpy.typing import NDArray

MINUTES = 16
MINUTE_SECONDS = 60.0


class Minutes:
    """One measure of many subjects: sums and what they are divided by, of each of the newest minutes."""

    __slots__ = ("_minutes", "_sums", "_weights", "subjects")

    def __init__(self, subjects: Sized) -> None:
        """``subjects``: as many as there are rows; measures of the same subjects share them."""
        self.subjects = subjects
        self._sums, self._weights, self._minutes = array("f"), array("f"), array("q")

    def add(self, row: int, at: float, value: float, weight: float) -> None:
        """Add a reading to a row."""
        minute = int(at // MINUTE_SECONDS)
        place = row * MINUTES + minute % MINUTES
        if place >= len(self._minutes):
            more = (row + 1) * MINUTES - len(self._minutes)
            self._minutes.extend([-1] * more)
            self._sums.extend([0.0] * more)
            self._weights.extend([0.0] * more)
        known = self._minutes[place]
        if known == minute:
            self._sums[place] += value
            self._weights[place] += weight
        elif known < minute:
            self._minutes[place], self._sums[place], self._weights[place] = minute, value, weight

    def means(self, begin: float, end: float, without: Sequence[tuple[float, float]] = ()) -> NDArray[np.float64]:
        """Return each subject's mean over the whole minutes of a span; NaN: not read. ``without``: spans that do not count."""
        sums, weights = self.totals(begin, end, without)
        return np.where(weights > 0, sums / np.where(weights > 0, weights, 1.0), np.nan)

    def totals(
        self, begin: float, end: float, without: Sequence[tuple[float, float]] = ()
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return each subject's sum and weight over the same minutes, 0 where nothing was read."""
        first, last = -int(-begin // MINUTE_SECONDS), int(end // MINUTE_SECONDS)
        minutes = np.array(self._minutes).reshape(-1, MINUTES)
        chosen = (minutes >= first) & (minutes < last)
        for since, until in without:
            chosen &= (minutes + 1 <= since // MINUTE_SECONDS) | (minutes > until // MINUTE_SECONDS)
        found = np.zeros((2, len(self.subjects)))
        for row, one in zip(found, (self._sums, self._weights), strict=True):
            row[: len(chosen)] = np.where(chosen, np.array(one, np.float64).reshape(-1, MINUTES), 0.0).sum(axis=1)
        return found[0], found[1]
