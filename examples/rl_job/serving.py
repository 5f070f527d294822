"""What the reward and the tool share: they count their requests, and end with the job."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import faulthound_roles
import faults

END_SECONDS = 0.2


class Serving:
    """One instance of a role that serves requests."""

    def __init__(self) -> None:
        self._me: faulthound_roles.Membership | None = None
        self._ended, self._lock = threading.Event(), threading.Lock()
        self._running, self._done = 0, 0
        signal.signal(signal.SIGTERM, self._end)

    def run(self, role: str, endpoints: dict[str, str]) -> None:
        """Register, and serve until the job ends or a fault is ordered."""
        self._me = faulthound_roles.join(role, "0", endpoints, phase="serve", lost=faulthound_roles.end_process)
        while not self._ended.wait(END_SECONDS):
            faults.end()
        self._me.leave()

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request for as long as it lasts."""
        self._count(running=1)
        try:
            with faults.work():
                faults.block("hung")
                faults.block_one("tail")
                yield
        finally:
            self._count(running=-1, done=1)

    def _count(self, running: int, done: int = 0) -> None:
        with self._lock:
            self._running, self._done = self._running + running, self._done + done
            if self._me is not None:
                self._me.progress(running=self._running, steps=self._done)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        self._ended.set()
