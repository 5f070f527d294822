"""How a GPU ran under load: now, over its newest readings, and before."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.gray.names import (
    CLOCK,
    CLOCK_SETTING,
    GENERATION,
    IDLE,
    LIMIT,
    LOWERED,
    MASK,
    MASK_BITS_END,
    MOST_OF,
    POWER,
    POWER_CAP,
    REASONS,
    TEMPERATURE,
    UTIL,
    WIDTH,
)
from analyzers.diagnosis.gray.readings import DeviceReadings, Floats

NOW_SECONDS = 600.0
DATED = 1e6  # earlier instants are numbers of files without a time
FEWEST = 3  # readings of which a single one is an accident
LOADED_PERCENT = 50.0  # an idle GPU lowers its clocks and its link by itself
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Level:
    """Readings under load; NaN: not read.

    ``lowered``: the share of those with a mask in which the clocks were lowered for heat or by the board; ``capped``: in
    which the power limit held them; ``set``: in which the clocks that an operator set did. ``clock_held``: at or below which
    the clock was in half of them, and in three.
    """

    readings: int = 0
    lowered: float = math.nan
    capped: float = math.nan
    set: float = math.nan
    reason: str = ""
    clock: float = math.nan
    clock_held: float = math.nan
    load: float = math.nan
    limit: float = math.nan
    power: float = math.nan
    temperature: float = math.nan
    link: tuple[float, float] = (math.nan, math.nan)  # width, generation
    lowered_at: float | None = None  # the first of these readings with lowered clocks
    at: float | None = None  # the newest of them


@dataclass(frozen=True, slots=True)
class Subject:
    """One device that is compared with its peers: its readings, and its levels now and before."""

    read: DeviceReadings
    now: Level
    past: Level
    most: tuple[float, float]  # width and generation that the GPU and its slot can do, where known


def measured(read: DeviceReadings) -> Subject:
    """Return a GPU with its levels."""
    loaded = loaded_in(read)
    places = np.flatnonzero(loaded)
    newest = loaded & (read.ticks > (read.ticks[-1] if len(read.ticks) else 0.0) - NOW_SECONDS)
    if newest.sum() < FEWEST:
        newest = np.zeros(len(loaded), np.bool_)
        newest[places[-FEWEST:]] = True
    most = (_most(read, WIDTH), _most(read, GENERATION))
    return Subject(read, _level(read, newest), _level(read, loaded & ~newest), most)


def loaded_in(read: DeviceReadings) -> Mask:
    """Mark the readings under load."""
    idle = np.nan_to_num(masks_of(read)).astype(np.int64) & IDLE > 0
    return (np.nan_to_num(read.column(UTIL), nan=-1.0) >= LOADED_PERCENT) & ~idle


def masks_of(read: DeviceReadings) -> Floats:
    """Return the reasons of lowered clocks at each reading, NaN where there are none."""
    mask = read.column(MASK)
    return np.where((mask >= 0) & (mask < MASK_BITS_END), mask, np.nan)


def _most(read: DeviceReadings, name: str) -> float:
    stated = _median(read.column(MOST_OF[name]))
    if math.isfinite(stated):
        return stated
    text = read.device.attributes.get(MOST_OF[name], "").removesuffix("x")
    return float(text) if text.isdecimal() and len(text) < 4 else math.nan


def _level(read: DeviceReadings, rows: Mask) -> Level:
    if not rows.any():
        return Level()
    masks, at = masks_of(read)[rows], read.ticks[rows]
    known = np.isfinite(masks)
    bits = masks[known].astype(np.int64)
    lowered = bits & LOWERED > 0
    return Level(
        readings=int(rows.sum()),
        lowered=float(lowered.mean()) if len(bits) else math.nan,
        capped=float((bits & POWER_CAP > 0).mean()) if len(bits) else math.nan,
        set=float((bits & CLOCK_SETTING > 0).mean()) if len(bits) else math.nan,
        reason=_reason(bits[lowered]),
        clock=_median(read.column(CLOCK)[rows]),
        clock_held=_held(read.column(CLOCK)[rows]),
        load=_median(read.column(UTIL)[rows]),
        limit=_median(read.column(LIMIT)[rows]),
        power=_median(read.column(POWER)[rows]),
        temperature=_median(read.column(TEMPERATURE)[rows]),
        link=(_median(read.column(WIDTH)[rows]), _median(read.column(GENERATION)[rows])),
        lowered_at=_instant(at[known][lowered], first=True),
        at=_instant(at, first=False),
    )


def _instant(at: NDArray[np.float64], *, first: bool) -> float | None:
    """Return the first or last instant; the number of a file without a time is none."""
    dated = at[at > DATED]
    return (float(dated[0]) if first else float(dated[-1])) if len(dated) else None


def _reason(bits: NDArray[np.int64]) -> str:
    return next((words for bit, words in REASONS.items() if len(bits) and 2 * (bits & bit > 0).sum() >= len(bits)), "")


def _median(values: NDArray[np.float64]) -> float:
    known = np.sort(values[np.isfinite(values)])  # a call of numpy's median costs five times as much
    middle = len(known) // 2
    if not len(known):
        return math.nan
    return float(known[middle]) if len(known) % 2 else float(known[middle - 1] + known[middle]) / 2


def _held(values: NDArray[np.float64]) -> float:
    known = np.sort(values[np.isfinite(values)])
    least = max(min(FEWEST, len(known)), (len(known) + 1) // 2)
    return float(known[least - 1]) if len(known) else math.nan
