"""The last minutes of every node's samples, in memory, on one grid of ticks: what a window is assembled from.

The log has all that was acknowledged; this is a view of it, and is made again from it after a restart.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from collectors.records import Record, Samples
from service.store.window.grid import Grid, GridFull

TICK_SECONDS = 10.0
MOST_SCOPES = 24  # of one node: the collectors have a dozen
FUTURE_SECONDS = 120.0  # a node's clock may be ahead by so much; further on it would push the present out of the ring


@dataclass(frozen=True, slots=True)
class Cube:
    """Samples of many nodes: float32 values, shape (ticks, devices, metrics); ``ticks``: UTC seconds of each grid line.

    A counter is its growth since a reading of the window, for each device its own: rates need no more.
    """

    ticks: NDArray[np.float64]
    devices: tuple[tuple[str, str], ...]  # (node, device)
    metrics: tuple[str, ...]
    values: NDArray[np.float32]


class TooMany(ValueError):
    """More values are asked for than the caller has room for."""


class Tail:
    """What each node sampled in the last ``window_seconds``, by scope. One writer, any number of readers."""

    def __init__(self, window_seconds: float, tick_seconds: float = TICK_SECONDS) -> None:
        self.window_seconds, self.tick_seconds = window_seconds, tick_seconds
        self.slots = int(window_seconds / tick_seconds) + 2  # the tick that is arriving, and one that is late
        self.size = 0  # values that the grids have room for, of four bytes each
        self.left_out = 0  # ticks outside the window, and samples whose bytes do not have the shape that they name
        self._grids: dict[str, dict[str, Grid]] = {}  # scope → node → grid
        self._lock = threading.Lock()

    def add(self, node: str, received_at: float, records: Iterable[Record]) -> None:
        """Take up the samples among a batch's records; never raises for what they hold."""
        with self._lock:
            for record in records:
                if isinstance(record, Samples):
                    self._add(node, received_at, record)

    def _add(self, node: str, received_at: float, samples: Samples) -> None:
        grid = self._grid(samples.scope, node)
        if grid is None:
            self.left_out += 1
            return
        before = grid.size
        latest_at = received_at + FUTURE_SECONDS
        try:
            self.left_out += grid.add(samples, self.tick_seconds, latest_at)
        except GridFull:
            grid.forget(int(received_at // self.tick_seconds) - self.slots)
            try:
                self.left_out += grid.add(samples, self.tick_seconds, latest_at)
            except GridFull:
                self.left_out += 1
        except ValueError:
            self.left_out += 1
        self.size += grid.size - before

    def _grid(self, scope: str, node: str) -> Grid | None:
        """Return a node's grid, a new one where it had none; None where it has as many as a node may have."""
        nodes = self._grids.get(scope, {})
        if node in nodes:
            return nodes[node]
        if sum(node in others for others in self._grids.values()) >= MOST_SCOPES:
            return None
        return self._grids.setdefault(scope, {}).setdefault(node, Grid(self.slots))

    def assemble(
        self,
        scope: str,
        nodes: Sequence[str],
        metrics: Sequence[str] | None,
        since: float,
        until: float,
        most_values: int | None = None,
    ) -> Cube:
        """Return the ticks in [since, until) of these nodes; unknown nodes have no devices, unknown metrics are NaN.

        Raise ``TooMany`` where these would be more than ``most_values``.
        """
        first, last = int(since // self.tick_seconds), int(-(-until // self.tick_seconds))
        first = max(first, last - self.slots)
        numbers = np.arange(first, max(first, last))
        with self._lock:
            grids = [(node, grid) for node in nodes if (grid := self._grids.get(scope, {}).get(node)) is not None]
            names = tuple(metrics) if metrics is not None else _all_metrics(grids)
            devices = tuple((node, device) for node, grid in grids for device in grid.devices)
            shape = len(numbers), len(devices), len(names)
            if most_values is not None and math.prod(shape) > most_values:
                raise TooMany(f"{math.prod(shape):,} values, and {most_values:,} are the most")
            values = np.full(shape, np.nan, np.float32)
            start = 0
            for _, grid in grids:
                _copy(grid, numbers, names, values[:, start : start + len(grid.devices)])
                start += len(grid.devices)
        return Cube(numbers.astype(np.float64) * self.tick_seconds, devices, names, values)

    def drop(self, before_at: float) -> None:
        """Forget the nodes that have sent nothing since."""
        number = int(before_at // self.tick_seconds)
        with self._lock:
            for nodes in self._grids.values():
                for name in [name for name, grid in nodes.items() if grid.numbers.max() < number]:
                    self.size -= nodes.pop(name).size
            self._grids = {scope: nodes for scope, nodes in self._grids.items() if nodes}


def _all_metrics(grids: Sequence[tuple[str, Grid]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, grid in grids for metrics in grid.metrics.values() for name in metrics))


def _copy(grid: Grid, numbers: NDArray[np.int64], names: Sequence[str], into: NDArray[np.float32]) -> None:
    """Copy a node's rows; its devices are adjacent in ``into``, so that this is one assignment a node and type."""
    rows = numbers % len(grid.numbers)
    there = np.flatnonzero(grid.numbers[rows] == numbers)
    for type, metrics in grid.metrics.items():
        wanted = [(place, metrics[name]) for place, name in enumerate(names) if name in metrics]
        if not wanted or not len(there):
            continue
        target, source = [place for place, _ in wanted], [column for _, column in wanted]
        columns = slice(source[0], source[-1] + 1) if source == list(range(source[0], source[-1] + 1)) else source
        found = grid.values[type][rows[there]][:, :, columns]
        if len(there) == len(numbers) and len(wanted) == len(names):
            into[...] = found
        else:
            into[np.ix_(there, np.arange(len(grid.devices)), np.asarray(target))] = found
