"""Tasks in uninterruptible sleep: what each waits for in the kernel.

Only files that never wait for the task itself are read: /proc/PID/cmdline of one that holds its memory map blocks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from collectors.live.clock import Clock
from collectors.live.files import processes, text
from collectors.records import ProcessState

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def blocked(proc: Path, clock: Clock) -> Iterator[ProcessState]:
    """Yield every process in state D."""
    for pid in processes(proc):
        name, _, rest = (text(proc / str(pid) / "stat") or "").rpartition(")")  # a name may hold spaces and brackets
        fields = rest.split()
        if fields[:1] != ["D"] or len(fields) < 20 or not fields[19].isdigit():
            continue
        elapsed = max(clock.monotonic() - int(fields[19]) / _TICKS_PER_SECOND, 0.0)
        waits_for = text(proc / str(pid) / "wchan")
        yield ProcessState(
            source="/proc",
            pid=pid,
            state="D",
            wait_channel=waits_for if waits_for not in ("", "0") else None,
            elapsed_seconds=round(elapsed, 2),
            started_at=round(clock.now() - elapsed, 2),
            command=name.partition("(")[2],
            parent_pid=int(fields[1]) if fields[1].isdigit() else None,
        )
