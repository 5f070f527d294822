"""Levels of a series of logarithms, and since which of them it is slower than before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from analyzers.diagnosis.slow.claim import WORTH
from analyzers.diagnosis.slow.grouping import Floats
from analyzers.diagnosis.slow.levels import rise, turn

LEAST = float(np.log(WORTH))
LEAST_BLOCKS = 4  # of a level
TIMES_NOISE = 4.0
AT_ONCE = 0.6  # of a change: at least this the blocks right before and after it show
DRIFT = 0.25  # of a change: at most this a level may grow from its first half to its second


def level_starts(logs: Floats, noise: float) -> list[int]:
    """Return where levels begin, 0 first: each differs from its neighbours by LEAST and more, and from one block to the next.

    Too many are found by halving; then the least of those that are none goes, until all are. ``noise``: of a block, at least.
    """
    logs = _without_spikes(logs, noise)
    starts = [0, *_halved(logs, 0, len(logs)), len(logs)]
    while len(starts) > 2:
        strength = [
            _strength(logs[low:high], at - low, noise)
            for low, at, high in zip(starts, starts[1:], starts[2:], strict=False)
        ]
        weakest = int(np.argmin(strength)) + 1
        if strength[weakest - 1] > 1:
            break
        del starts[weakest]
        for index in (weakest - 1, weakest):
            if 0 < index < len(starts) - 1:
                low, high = starts[index - 1], starts[index + 1]
                starts[index] = low + _turn(logs[low:high])
    return starts[:-1]


def slower_since(levels: Sequence[float]) -> int | None:
    """Return the first level that is LEAST above the one before it, as all later ones are; None: none is.

    A series that began at its newest level, or twice was there and went back, has phases.
    """
    for index in range(1, len(levels)):
        if min(levels[index:]) - levels[index - 1] >= LEAST:
            alike = [abs(level - levels[-1]) < LEAST for level in levels[:index]]
            return None if alike[0] or sum(alike) > 1 else index
    return None


def _without_spikes(logs: Floats, noise: float) -> Floats:
    """Put the median of its neighbours and itself in the place of one block that is far from both: an evaluation, a pause."""
    if len(logs) < LEAST_BLOCKS:
        return logs
    padded = np.concatenate([logs[1:2], logs, logs[-2:-1]])
    middle = np.median(np.stack([padded[:-2], logs, padded[2:]]), axis=0)
    return np.where(np.abs(logs - middle) > max(TIMES_NOISE * noise, LEAST), middle, logs)


def _halved(logs: Floats, low: int, high: int) -> list[int]:
    if high - low < 2 * LEAST_BLOCKS:
        return []
    at = low + _turn(logs[low:high])
    return [*_halved(logs, low, at), at, *_halved(logs, at, high)]


def _turn(part: Floats) -> int:
    """Return where a part most likely rises or falls."""
    count = len(part)
    places = np.clip([turn(part[None])[0], turn(-part[None])[0]], LEAST_BLOCKS, count - LEAST_BLOCKS)
    weight = [abs(part[:at].mean() - part[at:].mean()) * (at * (count - at)) ** 0.5 for at in places]
    return int(places[int(np.argmax(weight))])


def _strength(part: Floats, at: int, noise: float) -> float:
    """Return how many times what is required a change is."""
    size, spread = rise(part, at)
    if not size:
        return 0.0
    edge = part[max(at - 1 - LEAST_BLOCKS, 0) : at - 1], part[at + 1 : at + 1 + LEAST_BLOCKS]
    whole = part[1 : at - 1], part[at + 1 : -1]  # a block at an edge may have rows of both levels
    drift = max(_share(level[: len(level) // 2], level[len(level) // 2 :], size) for level in whole)
    least = max(LEAST, TIMES_NOISE * max(spread, noise))
    return min(abs(size) / least, _share(*edge, size) / AT_ONCE, DRIFT / max(drift, 1e-9))


def _share(before: Floats, after: Floats, size: float) -> float:
    """Return which part of a change lies between two parts of a series."""
    return float(np.median(after) - np.median(before)) / size
