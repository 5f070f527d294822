"""Those who wait for a change of a directory: one query in half a second serves them all."""

from __future__ import annotations

import asyncio
from collections import Counter

from service.roles.repository import RoleDirectories
from service.store.shared_poll import SharedPoll

QUERY_SECONDS = 0.5
MOST_WAITING = 8_192


class TooManyWatchers(Exception):
    """No more can wait; the text has the bound."""


class RoleWatch(SharedPoll):
    """The waits, by job. All methods but ``wake`` are called in the event loop."""

    def __init__(self, directories: RoleDirectories) -> None:
        super().__init__(QUERY_SECONDS, "role directories")
        self._directories = directories
        self._waiting = Counter[str]()
        self._versions: dict[str, int] = {}

    async def wait(self, job: str, version: int, seconds: float) -> None:
        """Wait until a job's directory is past a version, or the service stops, or the time is over."""
        if self._waiting.total() >= MOST_WAITING:
            raise TooManyWatchers(f"{MOST_WAITING:,} requests wait for changes of role directories, the most")
        self._waiting[job] += 1
        try:
            await self._until(lambda: self._versions.get(job, 0) > version, seconds)
        finally:
            self._waiting[job] -= 1
            if not self._waiting[job]:
                del self._waiting[job]
                self._versions.pop(job, None)

    def wake(self, job: str, version: int) -> None:
        """Note a version that this process has written; called from any thread. One that is not newer wakes no one."""
        self._loop.call_soon_threadsafe(self._written, job, version)

    def _written(self, job: str, version: int) -> None:
        if job in self._waiting and version > self._versions.get(job, -1):
            self._versions[job] = version
            self._wake_all()

    def _is_waited(self) -> bool:
        return bool(self._waiting)

    async def _look(self) -> None:
        found = await asyncio.to_thread(self._directories.versions, frozenset(self._waiting))
        changed = {job: version for job, version in found.items() if self._versions.get(job) != version}
        if changed:
            self._versions |= {job: version for job, version in changed.items() if job in self._waiting}
            self._wake_all()
