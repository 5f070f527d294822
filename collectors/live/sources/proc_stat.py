"""/proc/PID/stat: the one file of a process that can be read without waiting for it, stuck or not.

``environ``, ``cmdline`` and ``maps`` take the process's memory lock, which a thread in an uninterruptible page fault holds
for as long as that takes: a reader would hang with it. ``stat`` and ``wchan`` take none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Stat:
    """One line of /proc/PID/stat. ``image`` changes where the process has executed another program."""

    pid: int
    name: str
    state: str
    parent_pid: int
    cpu_ticks: int  # user and system, of all its threads
    start_ticks: int  # since boot; with the pid it is the process's identity
    resident_pages: int
    threads: int
    major_faults: int
    image: tuple[str, str]  # name, and where the environment lies
    exit_status: int  # as wait(2) gives it; 0 where we may not know

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state in {"Z", "X", "x"}

    @property
    def has_memory(self) -> bool:
        """Whether the kernel says where its environment lies: not of one that is about to end, nor of what we may not see."""
        return self.image[1] != "0"


def read(path: str, most_bytes: int = 4096) -> bytes:
    """Return the beginning of a file of /proc or /sys; raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, most_bytes)
        while data and len(data) < most_bytes and (more := os.read(descriptor, most_bytes - len(data))):
            data += more
        return data
    finally:
        os.close(descriptor)


def stat_of(proc: str, pid: int) -> Stat | None:
    """Return what the kernel says of a process, None where there is none (or its line cannot be understood)."""
    try:
        return parse(read(f"{proc}/{pid}/stat"))
    except (OSError, ValueError, IndexError):
        return None


def parse(line: bytes) -> Stat:
    """Parse one line. The name stands in parentheses and may itself hold parentheses and spaces."""
    head, _, tail = line.rpartition(b") ")
    pid, _, name = head.partition(b" (")
    fields = tail.split()
    text = name.decode("utf-8", "replace")
    return Stat(
        pid=int(pid),
        name=text,
        state=fields[0].decode("ascii", "replace"),
        parent_pid=int(fields[1]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        resident_pages=int(fields[21]),
        threads=int(fields[17]),
        major_faults=int(fields[9]),
        image=(text, fields[47].decode("ascii", "replace") if len(fields) > 47 else ""),
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
    )


def own_pid(proc: Path) -> int:
    """Return this program's own number below that root, 0 where it is not in it."""
    try:
        name = (proc / "self").readlink().name
    except OSError:
        return 0
    return int(name) if name.isdigit() else 0


def callable_by_number(proc: Path, pid: int) -> bool:
    """Whether that number means the same process to a system call: not in a test's tree, nor another namespace's /proc."""
    return own_pid(proc) == os.getpid() or (proc / str(pid)).resolve() == Path("/proc") / str(pid)


def booted_at(proc: Path) -> float | None:
    """Return the UTC second of the boot, None where /proc/stat does not say."""
    try:
        lines = (proc / "stat").read_bytes().splitlines()
    except OSError:
        return None
    told = next((line.split() for line in lines if line.startswith(b"btime ")), [])
    return float(told[1]) if len(told) == 2 and told[1].isdigit() else None
