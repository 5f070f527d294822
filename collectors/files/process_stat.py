"""One line of /proc/PID/stat: what a process is, how it goes on, and what it has used (proc(5))."""

from __future__ import annotations

import os
from dataclasses import dataclass

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


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
    image: tuple[str, str]  # name, and the address of the environment
    exit_status: int  # as wait(2) gives it; 0 where we may not know
    has_terminal: bool = False  # a person started it there, and may have stopped it

    @property
    def ended(self) -> bool:
        """Whether no thread of it runs any more."""
        return self.state in {"Z", "X", "x"}

    @property
    def has_memory(self) -> bool:
        """Whether the kernel shows where its environment is: not for a process that is ending or not ours to read."""
        return self.image[1] != "0"


def parse(line: bytes) -> Stat:
    """Parse one line. The name is in parentheses and may itself hold parentheses and spaces."""
    head, _, tail = line.rpartition(b") ")
    pid, _, name = head.partition(b" (")
    fields = tail.split()
    command = name.decode("utf-8", "replace")
    return Stat(
        pid=int(pid),
        name=command,
        state=fields[0].decode("ascii", "replace"),
        parent_pid=int(fields[1]),
        cpu_ticks=int(fields[11]) + int(fields[12]),
        start_ticks=int(fields[19]),
        resident_pages=int(fields[21]),
        threads=int(fields[17]),
        major_faults=int(fields[9]),
        image=(command, fields[47].decode("ascii", "replace") if len(fields) > 47 else ""),
        exit_status=int(fields[49]) if len(fields) > 49 else 0,
        has_terminal=fields[4] != b"0",
    )
