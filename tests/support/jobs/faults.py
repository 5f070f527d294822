"""What goes wrong, in which rank, at which step: read from the environment by the job, written there by the driver.

A fault sits in the function where it would happen in a real job, so that stacks show that function and not this file.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

_MARK = "fault_reached_rank"
STEPS_OF_NOTICE = 3  # for a fault that waits for the driver's word


class Faults:
    """The faults of one rank; ``due(kind)`` is true once the job has reached a fault of that kind."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.step = 0
        self.private = Path(os.environ["TRAIN_PRIVATE"])
        planned: list[dict[str, Any]] = json.loads(os.environ.get("TRAIN_FAULTS", "[]"))
        self.planned = [fault for fault in planned if fault["rank"] == rank]
        self._progress = os.open(self.private / f"progress_rank{rank}", os.O_RDWR | os.O_CREAT)
        (self.private / f"pid_rank{rank}").write_text(str(os.getpid()))

    def enter(self, step: int) -> None:
        """Note the step for the driver; a fault that the driver itself inflicts (a signal) is announced here."""
        self.step = step
        os.pwrite(self._progress, b"%08d" % step, 0)
        if self.planned and not self.planned[0]["step"] and (reported := _told(self.private)):
            self.planned = [fault | {"step": reported} for fault in self.planned]
        self.due("signal")

    def due(self, kind: str) -> dict[str, Any] | None:
        """Return this rank's fault of that kind at this step, after announcing it to the driver."""
        for fault in self.planned:
            if fault["kind"] == kind and fault["step"] == self.step:
                (self.private / f"{_MARK}{self.rank}").touch()
                return fault
        return None

    def lasts(self, kind: str, steps: int) -> bool:
        """Return whether a fault of that kind began at one of this many steps until now."""
        self.due(kind)
        return any(one["kind"] == kind and 0 < one["step"] <= self.step < one["step"] + steps for one in self.planned)


def strike(private: Path) -> None:
    """Let the faults that wait for a word strike, in all their ranks at one step that none has come to yet."""
    unfinished = private / "strike.part"
    unfinished.write_text(str(max(steps(private).values()) + STEPS_OF_NOTICE))
    unfinished.replace(private / "strike")


def _told(private: Path) -> int:
    try:
        return int((private / "strike").read_text())
    except FileNotFoundError:
        return 0


def struck_at(private: Path) -> float:
    """Return when the first rank reached its fault, UTC seconds."""
    return min(path.stat().st_mtime for path in private.glob(f"{_MARK}*"))


def reached(private: Path) -> set[int]:
    """Return the ranks that have reached their fault."""
    return {int(path.name.removeprefix(_MARK)) for path in private.glob(f"{_MARK}*")}


def steps(private: Path) -> dict[int, int]:
    """Return the step that each rank is in."""
    paths = private.glob("progress_rank*")
    return {int(path.name.removeprefix("progress_rank")): int(path.read_bytes() or b"0") for path in paths}


def pids(private: Path) -> dict[int, int]:
    """Return the process id of each rank."""
    paths = private.glob("pid_rank*")
    return {int(path.name.removeprefix("pid_rank")): int(path.read_text() or "0") for path in paths}


def die_with_driver(limit_seconds: int) -> None:
    """Make the kernel kill this process when its parent is gone, and after a time limit whatever it is stuck in."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: reaches a stopped process too
    # The default action of SIGALRM is death by the kernel: it needs neither the interpreter nor its lock.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(limit_seconds)


NEVER_SECONDS = 3600
HOLD_LOCK = ctypes.PyDLL(None).sleep  # PyDLL keeps the interpreter's lock during the call
BACKTRACKING = re.compile(r"(\w+\s?)+:$")  # exponential on a long line without a colon
LONG_LINE = "lorem ipsum " * 40
