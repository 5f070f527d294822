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
_Names = tuple[tuple[str, ...], tuple[str, ...]]  # devices, metrics
_KEPT_AS: dict[str, type[np.floating[Any]]] = {"<f4": np.float32, "<i8": np.float64}


class Full(ValueError):
    """A sender names more devices or metrics than a node can have."""


class Grid:
    """Rows of ``slots`` ticks; a tick's row is its number modulo ``slots``, and ``numbers`` says which tick stands there.

    Gauges are kept as float32, as they came, counters as float64: bytes keep their units up to 2^53. Both have the shape
    (slots, devices, metrics of that type); what was not read is NaN.
    """

    def __init__(self, slots: int) -> None:
        self.numbers = np.full(slots, -1, np.int64)
        self.devices: dict[str, int] = {}
        self.metrics: dict[str, dict[str, int]] = {type: {} for type in _KEPT_AS}
        self.values = {type: np.full((slots, 0, 0), np.nan, kept) for type, kept in _KEPT_AS.items()}
        self._newest = -1
        self._placed: dict[str, tuple[_Names, Any]] = {}  # type → the names of the newest record and where they stand

    def add(self, samples: Samples, tick_seconds: float, latest_at: float) -> int:
        """Place the ticks of one record; return how many were outside the window and were left out.

        Raise ``ValueError`` where its bytes are not what its names say, ``Full`` where it names too much.
        """
        check(samples)
        at, cube = unpacked(samples)
        place = self._place(samples)
        left_out = 0
        for tick, instant in enumerate(at.tolist()):
            row = self._row(int(instant // tick_seconds) if 0 <= instant <= latest_at else -1)
            if row is None:
                left_out += 1
            else:
                self.values[samples.type][row][place] = cube[:, :, tick]
        return left_out

    def _place(self, samples: Samples) -> Any:
        """Return where a record's devices and metrics stand; an agent sends the same ones again and again."""
        names = samples.devices, samples.metrics
        if (known := self._placed.get(samples.type)) and known[0] == names:
            return known[1]
        rows = _places(self.devices, samples.devices, MOST_DEVICES)
        columns = _places(self.metrics[samples.type], samples.metrics, MOST_METRICS)
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
            self._newest = max(self._newest, number)
            for values in self.values.values():
                values[row] = np.nan
        return row

    def forget(self, before_number: int) -> None:
        """Drop the devices that have no reading since a tick: edges between sockets come and go."""
        recent = self.numbers >= before_number
        alive = np.zeros(len(self.devices), bool)
        for values in self.values.values():
            alive |= ~np.isnan(values[recent]).all(axis=(0, 2)) if values.shape[2] else False
        kept = [(name, place) for name, place in self.devices.items() if alive[place]]
        places = [place for _, place in kept]
        self.values = {type: np.ascontiguousarray(values[:, places]) for type, values in self.values.items()}
        self.devices = {name: place for place, (name, _) in enumerate(kept)}
        self._placed.clear()

    def _grow(self) -> None:
        for type, values in self.values.items():
            wanted = (len(self.numbers), len(self.devices), len(self.metrics[type]))
            if wanted != values.shape:
                grown = np.full(wanted, np.nan, values.dtype)
                grown[:, : values.shape[1], : values.shape[2]] = values
                self.values[type] = grown


def _run(places: list[int]) -> slice | None:
    """Return the slice that these places are, where they are one: it is assigned many times as fast."""
    if places and places == list(range(places[0], places[-1] + 1)):
        return slice(places[0], places[-1] + 1)
    return None


def _places(known: dict[str, int], names: Sequence[str], most: int) -> list[int]:
    new = [name for name in dict.fromkeys(names) if name not in known]
    if len(known) + len(new) > most:
        raise Full(f"{len(known) + len(new):,} names of one node and scope: the window holds {most:,}")
    for name in new:
        known[name] = len(known)
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
