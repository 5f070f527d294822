"""How long a process may take for an answer, where the machine may be busy.

Past its bound a process has hung if it sleeps, or has used as many processor seconds as the bound allows. One that would run and
does not get its turn may take six times as long: another one would have to start first, and get no turn either.
"""

from __future__ import annotations

import select
import time
from pathlib import Path

from collectors.files.process_stat import TICKS_A_SECOND, parse

BUSY_TIMES = 6.0  # so many times its bound a process may wait for the processor
GLANCE_SECONDS = 0.25  # between two looks at a process that is late
RUNS, RUNS_OR_READS = frozenset({"R"}), frozenset({"R", "D"})  # states of a process that goes on by itself (proc(5))


class Hung(Exception):
    """The process does nothing, or has used its bound of processor time."""


class Busy(Exception):
    """The process did not get the processor; the message says how much of it."""


class Patience:
    """Until when a process may take for one question."""

    def __init__(self, pid: int, deadline: float, seconds: float, going_on: frozenset[str]) -> None:
        """``deadline``: by ``time.monotonic()``; ``going_on``: the states in which it would go on."""
        self._pid, self._deadline, self._seconds, self._going_on = pid, deadline, seconds, going_on
        self._latest = deadline + (BUSY_TIMES - 1) * seconds
        self._used_before = self._used = turn(pid)[1]
        self._slept = False  # when it was last looked at

    def wait(self, descriptor: int, event: int) -> None:
        """Wait until a pipe is ready; raise ``Hung`` or ``Busy`` past the bound."""
        while not _ready(descriptor, event, self._deadline):
            state, used = turn(self._pid)
            sleeps = state not in self._going_on
            still, self._slept, self._used = self._slept and used == self._used, sleeps, used
            if (still and sleeps) or used - self._used_before >= self._seconds:
                raise Hung
            if time.monotonic() >= self._latest:
                raise Busy(f"the node is busy, its process got {used - self._used_before:.1f} s of the processor")
            self._deadline = min(time.monotonic() + GLANCE_SECONDS, self._latest)


def turn(pid: int) -> tuple[str, float]:
    """Return a process's state, and the processor seconds that it has used."""
    try:
        stat = parse(Path(f"/proc/{pid}/stat").read_bytes())
    except (OSError, IndexError, ValueError):
        return "", 0.0
    return stat.state, stat.cpu_ticks / TICKS_A_SECOND


def _ready(descriptor: int, event: int, deadline: float) -> bool:
    poll = select.poll()  # select() takes no descriptor above 1,023
    poll.register(descriptor, event)
    return bool(poll.poll(max(0.0, deadline - time.monotonic()) * 1000))
