"""/proc/PID/stat: the one file of a process that can be read without waiting for the process, stuck or not.

``environ``, ``cmdline`` and ``maps`` take the process's memory lock. A thread in an uninterruptible page fault holds that
lock, and a reader hangs with it. ``stat``, ``status`` and ``wchan`` take no such lock.
"""

from __future__ import annotations

import os
from pathlib import Path

from collectors.files.process_stat import Stat, parse
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.system_files import integer, pairs, read, text

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def stat_of(proc: str, pid: int) -> Stat | None:
    """Return a process's line, None where there is no such process or its line cannot be parsed."""
    try:
        return parse(read(f"{proc}/{pid}/stat", 4096))
    except (OSError, ValueError, IndexError):
        return None


def still_runs(proc: str, process: TrainingProcess) -> bool:
    """Return whether this very process still runs; a zombie does not."""
    stat = stat_of(proc, process.pid)
    return stat is not None and stat.start_ticks == process.start_ticks and not stat.ended


def wait_channel(proc: str, pid: int) -> str | None:
    """Return the kernel function that a process waits in, None where it waits in none or may not be read."""
    found = text(f"{proc}/{pid}/wchan")
    return found if found not in {None, "", "0"} else None


def voluntary_switches(proc: str, pid: int) -> int | None:
    """Return how often a process's main thread has waited for something; None where that is not shown."""
    return pairs(text(f"{proc}/{pid}/status")).get("voluntary_ctxt_switches")


def own_pid(proc: Path) -> int:
    """Return this program's own id below that root, 0 where it is not in it."""
    try:
        name = (proc / "self").readlink().name
    except OSError:
        return 0
    return int(name) if name.isdigit() else 0


def callable_by_number(proc: Path, pid: int) -> bool:
    """Whether that id means the same process to a system call: not in a test's tree, nor another namespace's /proc."""
    return own_pid(proc) == os.getpid() or (proc / str(pid)).resolve() == Path("/proc") / str(pid)


def booted_at(proc: Path) -> float | None:
    """Return the UTC second of the boot, None where /proc/stat does not state it."""
    lines = (text(proc / "stat") or "").splitlines()
    value = integer(next((line.partition(" ")[2] for line in lines if line.startswith("btime ")), None))
    return None if value is None else float(value)
