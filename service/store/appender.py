"""The one writer of the log: it commits the batches of many senders together, and acknowledges none before that.

After a commit that failed it keeps one batch of it and tries that again by itself: senders that are led elsewhere while the
service is not ready would not find out that the database takes batches again. By its id the batch is stored once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from sqlalchemy.exc import SQLAlchemyError

from service.clock import now
from service.settings import Settings
from service.store.log import Appended, Incoming, Log

COMMIT_BATCHES = 500
COMMIT_BYTES = 32 << 20  # of one commit, or a single larger batch
BUSY_SECONDS = 2.0  # for a sender to wait: a full queue of ordinary batches is stored within them
DOWN_SECONDS = 5.0  # and when the database fails
RETRY_SECONDS = 2.0  # between two tries of what failed, where no sender tries

_log = logging.getLogger(__name__)


class QueueFull(Exception):
    """The queue is full; the sender keeps its batch and comes again."""

    def __init__(self, reason: str, retry_after_seconds: float = BUSY_SECONDS) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(Exception):
    """The batch may or may not be stored; the sender keeps it and sends it again under the same id."""

    def __init__(self, reason: str, retry_after_seconds: float = DOWN_SECONDS) -> None:
        super().__init__(reason)
        self.retry_after_seconds = retry_after_seconds


class QueueBounds(Protocol):
    """The settings that bound the queue and the commits."""

    queue_batches: int
    queue_bytes: int
    commit_seconds: float


@dataclass(slots=True)
class AppenderCounts:
    """What the appender has done since it began, for the metrics."""

    batches: int = 0
    bytes: int = 0
    commits: int = 0
    commit_seconds: float = 0.0  # of all commits together
    failed_commits: int = 0
    refused: int = 0  # because the queue was full


@dataclass(frozen=True, slots=True)
class _Waiting:
    batch: Incoming
    future: Future[Appended]
    since: float  # monotonic


class Appender:
    """A queue and the thread that empties it into the log."""

    def __init__(
        self, log: Log, settings: Settings | QueueBounds, committed: Callable[[], None] = lambda: None
    ) -> None:
        """``committed`` is called after each commit, in the appender's thread: it wakes the log's reader."""
        self.counts = AppenderCounts()
        self._log, self._bounds, self._committed = log, settings, committed
        self._changed = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._bytes = 0
        self._closing = False
        self._failed: Incoming | None = None  # the smallest of the last commit that failed
        self._began_at: float | None = None  # monotonic, of the present commit
        self.trouble = ""  # why the last commit failed; empty: it did not
        self._thread = threading.Thread(target=self._run, name="appender", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Store the waiting batches, end the thread, and refuse new ones."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> tuple[int, int]:
        """The batches and bytes that are not yet durable."""
        return len(self._queue), self._bytes

    @property
    def commit_age_seconds(self) -> float:
        """For how long the present commit has lasted; 0 where none is under way."""
        began_at = self._began_at
        return 0.0 if began_at is None else time.monotonic() - began_at

    def submit(self, batch: Incoming) -> Future[Appended]:
        """Queue a batch. The future's result is the promise: it comes after the commit, or ``Unavailable`` does."""
        future: Future[Appended] = Future()
        with self._changed:
            if self._closing:
                raise QueueFull("the service is stopping")
            self._check_room(len(batch.block))
            self._queue.append(_Waiting(batch, future, time.monotonic()))
            self._bytes += len(batch.block)
            # The thread needs to know of the first batch, and of the one that makes the commit full.
            if len(self._queue) == 1 or self._full():
                self._changed.notify()
        return future

    def _check_room(self, size_bytes: int) -> None:
        bounds = self._bounds
        if len(self._queue) >= bounds.queue_batches:
            self.counts.refused += 1
            raise QueueFull(f"{len(self._queue):,} batches wait for the log, as many as queue_batches allows")
        if self._queue and self._bytes + size_bytes > bounds.queue_bytes:
            self.counts.refused += 1
            raise QueueFull(f"{self._bytes:,} bytes wait for the log; with this batch more than queue_bytes allows")

    def _full(self) -> bool:
        return len(self._queue) >= COMMIT_BATCHES or self._bytes >= COMMIT_BYTES

    def _run(self) -> None:
        while together := self._gather():
            self._store(together)

    def _gather(self) -> list[_Waiting]:
        """Wait for a first batch, then for its companions; an empty list means that it is time to end."""
        with self._changed:
            again_after = RETRY_SECONDS if self._failed is not None else None
            self._changed.wait_for(lambda: self._queue or self._closing, again_after)
            if not self._queue:
                if self._closing or self._failed is None:
                    return []
                return [_Waiting(replace(self._failed, received_at=now()), Future(), time.monotonic())]
            left = self._queue[0].since + self._bounds.commit_seconds - time.monotonic()
            self._changed.wait_for(lambda: self._full() or self._closing, timeout=max(0.0, left))
            together: list[_Waiting] = []
            size_bytes = 0
            while self._queue and len(together) < COMMIT_BATCHES:
                size_bytes += len(self._queue[0].batch.block)
                if together and size_bytes > COMMIT_BYTES:
                    break
                together.append(self._queue.popleft())
            self._bytes -= sum(len(waiting.batch.block) for waiting in together)
            return together

    def _store(self, together: list[_Waiting]) -> None:
        # A sender that has disconnected has cancelled its future. Its batch is stored all the same: it is sent again.
        waited_for = [waiting.future.set_running_or_notify_cancel() for waiting in together]
        began = self._began_at = time.monotonic()
        try:
            places = self._log.append([waiting.batch for waiting in together])
        except Exception as error:  # noqa: BLE001 - whatever fails, the waiting senders need an answer
            self.counts.failed_commits += 1
            reason = self.trouble = _reason(error)
            self._failed = min((waiting.batch for waiting in together), key=lambda batch: len(batch.block))
            _log.warning("commit_failed batches=%d reason=%s", len(together), reason)
            for waiting, waited in zip(together, waited_for, strict=True):
                if waited:
                    waiting.future.set_exception(Unavailable(reason))
            return
        finally:
            self._began_at = None
        self.trouble, self._failed = "", None
        self._count(together, places, time.monotonic() - began)
        for waiting, waited, place in zip(together, waited_for, places, strict=True):
            if waited:
                waiting.future.set_result(place)
        self._committed()

    def _count(self, together: list[_Waiting], places: list[Appended], seconds: float) -> None:
        self.counts.commits += 1
        self.counts.commit_seconds += seconds
        self.counts.batches += sum(not place.duplicate for place in places)
        self.counts.bytes += sum(len(waiting.batch.block) for waiting in together)


def _reason(error: Exception) -> str:
    """Say in one line why the database would not; without the statement's values, which are the senders'."""
    cause = getattr(error, "orig", None) if isinstance(error, SQLAlchemyError) else None
    lines = str(cause or error).splitlines()
    return f"the log could not be written: {lines[0] if lines else type(error).__name__}"
