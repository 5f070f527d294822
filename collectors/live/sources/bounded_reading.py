"""Reads of /proc that may never return: each has a timeout, after which its thread is given up.

``environ`` and ``cmdline`` wait for the process's memory lock. A thread that is stuck in a page fault holds that lock, and a
reader is stuck with it. No signal ends such a read; only a thread made for it can be given up.
"""

from __future__ import annotations

import queue
import threading

from collectors.live.sources.system_files import read

WAIT_SECONDS = 0.5
MOST_STUCK = 8  # threads given up, after which no file is read

_Task = tuple[str, int, "queue.SimpleQueue[bytes | OSError]"]


class ReadRefused(TimeoutError):
    """So many reads have not returned that no other is begun."""


class BoundedReader:
    """Reads files in a thread, which it replaces when a read does not return in time. For one caller at a time."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[_Task] | None = None
        self._stuck: list[threading.Thread] = []
        self._thread: threading.Thread | None = None

    @property
    def stuck(self) -> int:
        """Return how many reads that were given up have not returned yet."""
        self._stuck = [thread for thread in self._stuck if thread.is_alive()]
        return len(self._stuck)

    def read(self, path: str, most_bytes: int) -> bytes:
        """Return the beginning of a file; raise OSError, of which TimeoutError is one."""
        if self._tasks is None or self._thread is None:
            if self.stuck >= MOST_STUCK:
                raise ReadRefused(f"{path} is not read: {MOST_STUCK} reads of such files have not returned")
            self._tasks = queue.SimpleQueue()
            # A daemon: the agent's exit does not wait for it either.
            self._thread = threading.Thread(target=_serve, args=(self._tasks,), name="reading", daemon=True)
            self._thread.start()
        answer: queue.SimpleQueue[bytes | OSError] = queue.SimpleQueue()
        self._tasks.put((path, most_bytes, answer))
        try:
            found = answer.get(timeout=WAIT_SECONDS)
        except queue.Empty:
            self._stuck.append(self._thread)
            self.close()
            raise TimeoutError(f"{path} could not be read within {WAIT_SECONDS} s: its process is stuck") from None
        if isinstance(found, OSError):
            raise found
        return found

    def close(self) -> None:
        """Let the thread end as soon as it can."""
        if self._tasks is not None:
            self._tasks.put(("", 0, queue.SimpleQueue()))
        self._tasks = self._thread = None

    def __del__(self) -> None:
        self.close()


def _serve(tasks: queue.SimpleQueue[_Task]) -> None:
    while True:
        path, most_bytes, answer = tasks.get()
        if not path:
            return
        try:
            answer.put(read(path, most_bytes))
        except OSError as error:
            answer.put(error)
