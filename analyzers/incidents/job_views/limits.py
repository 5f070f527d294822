"""How much the limits of control groups took from each rank of a node.

A process is in its own group and in those above it, and each may have a limit: the one that took most counts. From a rank none
of whose groups counts throttling nothing was taken, so that a limit that is set later is seen to begin.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from analyzers.model.sample_values import sample_values
from collectors.records import NOT_READ, Device, Samples

CONTROL_GROUPS, METRIC, UNIT_SECONDS = "cgroup", "throttled_us_total", 1e-6
MOST_GROUPS = 128  # of one node
APART_SECONDS = 45.0  # between two readings of a counter; over a longer span nothing is known of it


class Taken(NamedTuple):
    """What was taken from a rank between two readings."""

    rank: int
    tick: float  # UTC seconds by the node's clock
    seconds: float
    of_seconds: float


class Limits:
    """The control groups of one node, and what was read of them."""

    def __init__(self) -> None:
        self._ranks: dict[str, frozenset[int]] = {}  # group → the ranks in it
        self._counters: dict[str, tuple[float, float]] = {}  # group → when it was read, seconds taken so far
        self._read_at = float("-inf")

    def device(self, device: Device) -> None:
        """Note which ranks are in a control group; the one that was known longest makes room."""
        words = device.attributes.get("ranks", "").split()
        self._ranks.pop(device.id, None)
        self._ranks[device.id] = frozenset(int(word) for word in words if word.isdecimal())
        if len(self._ranks) > MOST_GROUPS:
            oldest = next(iter(self._ranks))
            del self._ranks[oldest]
            self._counters.pop(oldest, None)

    def take(self, samples: Samples, ranks: Mapping[int, int]) -> Iterator[Taken]:
        """Yield what was taken from each of these ranks since the reading before."""
        read = sample_values(samples)
        if read is None:
            return
        ticks, values = read
        counted = values[:, samples.metrics.index(METRIC), :].tolist() if METRIC in samples.metrics else []
        for place, tick in enumerate(ticks.tolist()):
            of_seconds, self._read_at = (
                tick - self._read_at,
                tick,
            )  # a clock that jumped ahead is believed no longer than it runs so
            now = {group: row[place] for group, row in zip(samples.devices, counted, strict=False)}
            gained = self._gained(tick, now)
            if not 0 < of_seconds <= APART_SECONDS:
                continue
            for rank in ranks:
                mine = [taken for group, taken in gained.items() if rank in self._ranks[group]]
                if None not in mine:
                    yield Taken(rank, tick, max(filter(None, mine), default=0.0), of_seconds)

    def _gained(self, tick: float, now: Mapping[str, float]) -> dict[str, float | None]:
        """Return by group what it took since its reading before; None: not known."""
        found: dict[str, float | None] = {}
        for group, value in now.items():
            if group not in self._ranks or value == NOT_READ or math.isnan(value):
                continue
            at, before = self._counters.get(group, (float("-inf"), 0.0))
            seconds = value * UNIT_SECONDS
            self._counters[group] = (tick, seconds)
            found[group] = seconds - before if 0 < tick - at <= APART_SECONDS and seconds >= before else None
        return found
