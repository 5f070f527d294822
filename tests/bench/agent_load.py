"""What an agent and its children cost: processor time and memory of a process tree; and the ranks that it watches."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

RANKS = 8
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
SAMPLING_SECONDS = 2.0
IDLE_RANK = "import time\nwhile True:\n    time.sleep(0.05)\n"


@contextmanager
def ranks() -> Iterator[None]:
    """Run eight Python processes whose environments say that they train."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("FAULTHOUND_")}
    processes = []
    for rank in range(RANKS):
        reported = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": RANKS, "TORCHELASTIC_RUN_ID": "bench"}
        environment = own | {name: str(value) for name, value in reported.items()}
        processes.append(subprocess.Popen([sys.executable, "-c", IDLE_RANK], env=environment))
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, of its living children, and of those it has reaped."""
    ticks = 0
    for process in _tree(pid):
        try:
            fields = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile: its parent has its time
            continue
        ticks += sum(map(int, fields[11:15]))  # utime stime cutime cstime [proc(5)]
    return ticks / TICKS_PER_SECOND


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@dataclass(slots=True)
class Memory:
    """Samples the memory of a process tree in a thread; peaks in bytes of sums over the tree."""

    pid: int
    rss_bytes: int = 0
    pss_bytes: int = 0  # shared pages count in parts: what would be free if the tree were gone
    processes: int = 0
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Memory:
        """Begin to sample."""
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the sampling."""
        self._over.set()
        assert self._thread is not None
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(SAMPLING_SECONDS):
            try:
                full = [process.memory_full_info() for process in _tree(self.pid)]
            except psutil.Error:  # one ended between two looks
                continue
            self.rss_bytes = max(self.rss_bytes, sum(one.rss for one in full))
            self.pss_bytes = max(self.pss_bytes, sum(one.pss for one in full))
            self.processes = max(self.processes, len(full))
