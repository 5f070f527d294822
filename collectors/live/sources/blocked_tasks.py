"""Tasks in uninterruptible sleep: what each waits for in the kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from collectors.live.sources.clock import Clock
from collectors.live.sources.proc_stat import TICKS_A_SECOND, stat_of
from collectors.live.sources.small_files import processes, text
from collectors.records import ProcessState


def blocked(proc: Path, clock: Clock) -> Iterator[ProcessState]:
    """Yield every process in state D."""
    for pid in processes(proc):
        stat = stat_of(str(proc), pid)
        if stat is None or stat.state != "D":
            continue
        elapsed = max(clock.monotonic() - stat.start_ticks / TICKS_A_SECOND, 0.0)
        waits_for = text(proc / str(pid) / "wchan")
        yield ProcessState(
            source="/proc",
            pid=pid,
            state="D",
            wait_channel=waits_for if waits_for not in ("", "0") else None,
            elapsed_seconds=round(elapsed, 2),
            started_at=round(clock.now() - elapsed, 2),
            command=stat.name,
            parent_pid=stat.parent_pid,
        )
