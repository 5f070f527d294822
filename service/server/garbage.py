"""When Python looks for cyclic garbage: rarely, and at a moment of its own.

A full collection walks every object, half a second with two thousand agents' polls waiting, and no batch is acknowledged
meanwhile. By CPython's own thresholds it comes every few seconds. The service makes few cycles: the young are still
collected as they come, and a full collection comes every ten minutes.
"""

from __future__ import annotations

import gc
import threading

FULL_SECONDS = 600.0
YOUNG, MIDDLE, NEVER = 20_000, 20, 1_000_000


class Collector:
    """A thread that collects in full every ten minutes, in place of CPython's own moments."""

    def __init__(self, every_seconds: float = FULL_SECONDS) -> None:
        self._every_seconds, self._closing = every_seconds, threading.Event()
        self._thresholds = gc.get_threshold()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    def __enter__(self) -> Collector:
        """Take over; what is there already, modules and routes, is never looked at again."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the moments back to CPython."""
        self._closing.set()
        self._thread.join()
        gc.unfreeze()
        gc.set_threshold(*self._thresholds)

    def _run(self) -> None:
        while not self._closing.wait(self._every_seconds):
            gc.collect()
