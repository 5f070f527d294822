"""Those who wait for a change of a directory: one query in half a second serves them all."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from time import monotonic

from sqlalchemy.exc import SQLAlchemyError

from service.roles.repository import RoleDirectories

QUERY_SECONDS = 0.5
MOST_WAITING = 8_192

_log = logging.getLogger(__name__)


class TooManyWatchers(Exception):
    """No more can wait; the text has the bound."""


class RoleWatch:
    """The waits, by job. All methods but ``wake`` are called in the event loop."""

    def __init__(self, directories: RoleDirectories) -> None:
        self._directories = directories
        self._waiting = Counter[str]()
        self._versions: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._task = asyncio.create_task(self._query())
        self.closed = False

    async def wait(self, job: str, version: int, seconds: float) -> None:
        """Wait until a job's directory is past a version, or the service stops, or the time is over."""
        if self._waiting.total() >= MOST_WAITING:
            raise TooManyWatchers(f"{MOST_WAITING:,} requests wait for changes of role directories, the most")
        deadline = monotonic() + seconds
        self._waiting[job] += 1
        try:
            while self._versions.get(job, 0) <= version and not self.closed and (left := deadline - monotonic()) > 0:
                async with asyncio.timeout(left):
                    await self._changed.wait()
        except TimeoutError:
            return
        finally:
            self._waiting[job] -= 1
            if not self._waiting[job]:
                del self._waiting[job]
                self._versions.pop(job, None)

    def wake(self, job: str, version: int) -> None:
        """Note a version that this process has written; called from any thread."""
        self._loop.call_soon_threadsafe(self._note, {job: version})

    def end_waits(self) -> None:
        """End all waits: the service is stopping."""
        self.closed = True
        self._note({})

    async def close(self) -> None:
        """End all waits and the query."""
        self.end_waits()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def _note(self, versions: dict[str, int]) -> None:
        self._versions.update({job: version for job, version in versions.items() if job in self._waiting})
        self._changed.set()
        self._changed = asyncio.Event()

    async def _query(self) -> None:
        while not self.closed:
            await asyncio.sleep(QUERY_SECONDS)
            if not self._waiting:
                continue
            try:
                found = await asyncio.to_thread(self._directories.versions, frozenset(self._waiting))
            except SQLAlchemyError as error:  # the waits go on; they end by their own time
                _log.warning("role directories were not read: %s", type(error).__name__)
                continue
            if any(self._versions.get(job) != version for job, version in found.items()):
                self._note(found)
