"""The two clocks of a node; no other module of the agent reads the wall clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """The two clocks of a node."""

    def now(self) -> float:
        """Return UTC seconds since 1970."""

    def monotonic(self) -> float:
        """Return seconds since boot."""


class NodeClock:
    """The node's own clocks."""

    def now(self) -> float:
        """Return UTC seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since boot, time asleep included, which is what the kernel's log counts in."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)
