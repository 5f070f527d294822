"""The service's clock: the one place that reads the machine's clocks.

The wall clock may be set while the service runs: by a bad time server, by hand, after a virtual machine was paused. A service
that believed each step would delete its log, let holds and approvals expire, or take yesterday's records for news. So the
service and its engine *hold* their time: it goes on with CLOCK_BOOTTIME, which nothing sets, and follows the wall clock by at
most 2 %, and only while the two are less than two minutes apart. ``service.store.clock_watch`` decides when a larger difference
is adopted. Other processes (the command line, adapters) read the wall clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LEASH_SECONDS = 120.0  # a larger difference is a step of a clock and no drift
SLEW = 0.02  # a step of less than the leash is followed slowly: at once, every node would be silent for as long


def wall_seconds() -> float:
    """Return the wall clock's UTC seconds."""
    return time.time()


def boot_seconds() -> float:
    """Return seconds since the machine booted; they go on while it is suspended, and nothing sets them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class ProcessClock:
    """The clock of one process: the wall clock until ``hold``, and then the held one."""

    def __init__(self, wall: Callable[[], float] = wall_seconds, boot: Callable[[], float] = boot_seconds) -> None:
        self.wall, self.boot = wall, boot
        self.doubt = ""  # why the held time itself is not certain; empty: it is
        self._holds = False
        self._anchor = self._offset = self._read_at = 0.0  # held time less boot time: as it was decided, as it is now
        self._lock = threading.Lock()

    def now(self) -> float:
        """Return UTC seconds since 1970."""
        if not self._holds:
            return self.wall()
        with self._lock:
            boot = self.boot()
            if not self._is_strayed(boot):
                behind, most = self.wall() - boot - self._offset, SLEW * max(0.0, boot - self._read_at)
                self._offset += min(max(behind, -most), most)
            self._read_at = boot
            return boot + self._offset

    def hold(self, offset: float, doubt: str = "") -> None:
        """Go on from boot time + ``offset``, or on the wall clock where that is within the leash, without small steps."""
        with self._lock:
            boot = self.boot()
            goes_on = self._holds and abs(offset - self._offset) <= LEASH_SECONDS
            self._anchor, self.doubt = offset, doubt
            if not goes_on:
                self._offset, self._read_at = offset if self._is_strayed(boot) else self.wall() - boot, boot
            self._holds = True

    def release(self) -> None:
        """Read the wall clock again."""
        self._holds, self.doubt = False, ""

    def confirm(self) -> None:
        """Measure the leash from here on: other clocks agree with the held time."""
        with self._lock:
            if abs(self._anchor - self._offset) >= 1.0:
                self._anchor = self._offset

    @property
    def held_as(self) -> tuple[float, str] | None:
        """Return what ``hold`` or ``confirm`` took last; None: nothing is held."""
        return (self._anchor, self.doubt) if self._holds else None

    @property
    def ahead_seconds(self) -> float:
        """Return by how much the wall clock is ahead of the held time."""
        return self.wall() - self.now()

    @property
    def strayed(self) -> bool:
        """Whether the wall clock was set, or has drifted, by more than the leash."""
        return self._holds and self._is_strayed(self.boot())

    @property
    def is_sure(self) -> bool:
        """Whether anything may be deleted for its age."""
        return not self.doubt and not self.strayed

    def _is_strayed(self, boot: float) -> bool:
        return abs(self.wall() - boot - self._anchor) > LEASH_SECONDS


PROCESS = ProcessClock()


def now() -> float:
    """Return UTC seconds since 1970, by this process's clock."""
    return PROCESS.now()
