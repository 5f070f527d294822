"""One node's samples of one scope on a grid of ticks: a ring of rows (devices × metrics) that is overwritten in place."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collectors.records import NOT_READ, Samples

Floats = NDArray[np.floating[Any]]
MOST_DEVICES = 1_024  # of one node and scope in the window: GPUs are 8 or 16, edges between sockets some hundreds
MOST_METRICS = 512
MOST_CELLS = 16_384  # devices × metrics of one type: 4 MB in a window of ten minutes
_Names = tuple[tuple[str, ...], tuple[str, ...]]  # devices, metrics
TYPES = ("<f4", "<i8")


class GridFull(ValueError):
    """A sender names more devices or metrics than a node can have."""


class Grid:
    """Rows of ``slots`` ticks; a tick's row is its number modulo ``slots``, and ``numbers`` has the tick of each row.

    Values are float32 of shape (slots, devices, metrics of that type), NaN where nothing was read. A gauge is as it
    came. A counter is its growth since the reading in ``first``: a float32 has no room for the bytes of a month,
    and for those of some minutes it has. The first readings move up as the window does.
    """

    def __init__(self, slots: int) -> None:
        self.numbers = np.full(slots, -1, np.int64)
        self.devices: dict[str, int] = {}
        self.metrics: dict[str, dict[str, int]] = {type: {} for type in TYPES}
        self.values = {type: np.full((slots, 0, 0), np.nan, np.float32) for type in TYPES}
        self.first = np.full((0, 0), np.nan)  # (devices, counters)
        self._newest = -1
        self._placed: dict[str, tuple[_Names, Any]] = {}  # type → the names of the newest record and where they stand

    @property
    def size(self) -> int:
        """How many values it has room for."""
        return sum(values.size for values in self.values.values())

    def add(self, samples: Samples, tick_seconds: float, latest_at: float) -> int:
        """Place the ticks of one record; return how many were outside the window and were left out.

        Raise ``ValueError`` where its bytes do not have the shape of its names, ``GridFull`` where it names too much.
        """
        check(samples)
        at, cube = unpacked(samples)
        if (
            self._newest > latest_at // tick_seconds
        ):  # a clock was ahead: its ticks would keep the present out of the ring
            self.numbers[:] = self._newest = -1
            self.first[:] = np.nan
        place = self._place(samples)
        left_out = 0
        for tick, instant in enumerate(at.tolist()):
            row = self._row(int(instant // tick_seconds) if 0 <= instant <= latest_at else -1)
            if row is None:
                left_out += 1
            else:
                read = cube[:, :, tick]
                self.values[samples.type][row][place] = read if samples.type == "<f4" else self._growth(place, read)
        return left_out

    def _growth(self, place: Any, read: Floats) -> Floats:
        first: Floats = self.first[place]
        if np.isnan(first).any():
            first = np.where(np.isnan(first), read, first)
            self.first[place] = first
        growth: Floats = read - first
        return growth

    def _place(self, samples: Samples) -> Any:
        """Return where a record's devices and metrics stand; an agent sends the same ones again and again."""
        names = samples.devices, samples.metrics
        if (known := self._placed.get(samples.type)) and known[0] == names:
            return known[1]
        devices, metrics = self.devices, self.metrics[samples.type]
        wide = _wider(devices, samples.devices, MOST_DEVICES)
        high = _wider(metrics, samples.metrics, MOST_METRICS)
        if wide * max(high, *(len(known) for known in self.metrics.values())) > MOST_CELLS:
            raise GridFull(
                f"{wide:,} devices with {high:,} metrics of one node and scope: the window holds {MOST_CELLS:,}"
            )
        rows, columns = _places(devices, samples.devices), _places(metrics, samples.metrics)
        self._grow()
        place: Any = _run(rows), _run(columns)
        if None in place:
            place = np.ix_(rows, columns)
        self._placed[samples.type] = names, place
        return place

    def _row(self, number: int) -> int | None:
        """Return the row of a tick, emptied if an older one stood there; None where it is older than the window."""
        slots = len(self.numbers)
        row = number % slots
        if number < 0 or number <= self._newest - slots:
            return None
        if self.numbers[row] != number:
            self.numbers[row] = number
            for values in self.values.values():
                values[row] = np.nan
            if self._newest // slots < number // slots and self._newest >= 0:
                self._move_up(self._newest % slots)
            self._newest = max(self._newest, number)
        return row

    def _move_up(self, row: int) -> None:
        """Count from the readings of this row: once in a window's length."""
        growth = self.values["<i8"][row].astype(np.float64)
        growth[np.isnan(growth)] = 0.0
        self.first += growth
        self.values["<i8"] -= growth.astype(np.float32)

    def forget(self, before_number: int) -> None:
        """Drop the devices that have no reading since a tick: edges between sockets come and go."""
        recent = self.numbers >= before_number
        alive = np.zeros(len(self.devices), bool)
        for values in self.values.values():
            alive |= ~np.isnan(values[recent]).all(axis=(0, 2)) if values.shape[2] else False
        kept = [(name, place) for name, place in self.devices.items() if alive[place]]
        places = [place for _, place in kept]
        self.values = {type: np.ascontiguousarray(values[:, places]) for type, values in self.values.items()}
        self.first = self.first[places]
        self.devices = {name: place for place, (name, _) in enumerate(kept)}
        self._placed.clear()

    def _grow(self) -> None:
        for type, values in self.values.items():
            wanted = (len(self.numbers), len(self.devices), len(self.metrics[type]))
            if wanted != values.shape:
                grown = np.full(wanted, np.nan, values.dtype)
                grown[:, : values.shape[1], : values.shape[2]] = values
                self.values[type] = grown
        first = np.full((len(self.devices), len(self.metrics["<i8"])), np.nan)
        first[: self.first.shape[0], : self.first.shape[1]] = self.first
        self.first = first


def _run(places: list[int]) -> slice | None:
    """Return the slice that these places are, where they are one: it is assigned many times as fast."""
    if places and places == list(range(places[0], places[-1] + 1)):
        return slice(places[0], places[-1] + 1)
    return None


def _wider(known: dict[str, int], names: Sequence[str], most: int) -> int:
    """Return how many names there would be with these, before any of them is taken up."""
    count = len(known.keys() | set(names))
    if count > most:
        raise GridFull(f"{count:,} names of one node and scope: the window holds {most:,}")
    return count


def _places(known: dict[str, int], names: Sequence[str]) -> list[int]:
    for name in names:
        known.setdefault(name, len(known))
    return [known[name] for name in names]


def check(samples: Samples) -> None:
    """Raise ``ValueError`` where a record's bytes do not have the shape that its names promise."""
    ticks = len(samples.ticks) // 8
    shape = len(samples.devices), len(samples.metrics), ticks
    expected = math.prod(shape) * (4 if samples.type == "<f4" else 8)
    if len(samples.ticks) % 8 or len(samples.values) != expected:
        raise ValueError(f"samples of {samples.scope!r}: {len(samples.values):,} bytes for {shape}, not {expected:,}")


def unpacked(samples: Samples) -> tuple[Floats, Floats]:
    """Return a checked record's instants, shape (ticks,), and values, (devices, metrics, ticks), NaN where not read."""
    at = np.frombuffer(samples.ticks, "<f8")
    shape = len(samples.devices), len(samples.metrics), len(at)
    values = np.frombuffer(samples.values, samples.type).reshape(shape)
    if samples.type == "<f4":
        return at, values
    return at, np.where(values == NOT_READ, np.nan, values)
