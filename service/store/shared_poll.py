"""One query of the database in a while serves all who wait for a change of it; without a wait there is none."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

_log = logging.getLogger(__name__)


class SharedPoll(ABC):
    """The query and its waits, all in the event loop. A subclass says whether anything waits, and how to look."""

    def __init__(self, every_seconds: float, not_read: str) -> None:
        self.closed = False
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._poll(every_seconds, not_read))

    @abstractmethod
    def _is_waited(self) -> bool: ...

    @abstractmethod
    async def _look(self) -> None:
        """Ask the database in a thread, and wake those for whom the answer is a change."""

    def _wake_all(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _until(self, is_due: Callable[[], bool], seconds: float) -> None:
        """Wait until something is due, or the service stops, or the time is over."""
        deadline = monotonic() + seconds
        while not is_due() and not self.closed and (left := deadline - monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return

    def end_waits(self) -> None:
        """End all waits: the service is stopping."""
        self.closed = True
        self._wake_all()

    async def close(self) -> None:
        """End all waits and the query."""
        self.end_waits()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _poll(self, every_seconds: float, not_read: str) -> None:
        while not self.closed:
            await asyncio.sleep(every_seconds)
            if self._is_waited():
                try:
                    await self._look()
                except SQLAlchemyError as error:  # the waits go on; they end by their own time
                    _log.warning("%s were not read: %s", not_read, type(error).__name__)
