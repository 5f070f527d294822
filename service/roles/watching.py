"""Those who wait for a change of a directory: one query in half a second serves them all.

Each who is woken reads the directory. Where thousands wait and thousands register, all of them would read it after every change
and leave no time for heartbeats; so those who wait are woken less often the more there are, with all that changed since.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from service.roles.repository import RoleDirectories
from service.store.shared_poll import SharedPoll

QUERY_SECONDS = 0.5
MOST_WAITING = 8_192
READS_A_SECOND = 500.0  # of those who are woken


class TooManyWatchers(Exception):
    """No more can wait; the text has the bound."""


class RoleWatch(SharedPoll):
    """The waits, by job. All methods but ``wake`` are called in the event loop."""

    def __init__(self, directories: RoleDirectories) -> None:
        super().__init__(QUERY_SECONDS, "role directories")
        self._directories = directories
        self._waiting = Counter[str]()
        self._versions: dict[str, int] = {}
        self._changed_to: dict[str, int] = {}  # of which no one was woken yet
        self._woken_at = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

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
                self._changed_to.pop(job, None)

    def wake(self, job: str, version: int) -> None:
        """Note a version that this process has written; called from any thread. One that is not newer wakes no one."""
        self._loop.call_soon_threadsafe(self._written, job, version)

    def _written(self, job: str, version: int) -> None:
        known = self._changed_to.get(job, self._versions.get(job, -1))
        if job in self._waiting and version > known:
            self._note({job: version})

    def _note(self, changed: Mapping[str, int]) -> None:
        """Wake those who wait, now or when the last ones have had time to read."""
        self._changed_to |= changed
        left = self._woken_at + self._waiting.total() / READS_A_SECOND - self._loop.time()
        if left <= 0:
            self._wake_noted()
        elif self._timer is None:
            self._timer = self._loop.call_later(left, self._wake_noted)

    def _wake_noted(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._woken_at = None, self._loop.time()
        self._versions |= {job: version for job, version in self._changed_to.items() if job in self._waiting}
        self._changed_to.clear()
        self._wake_all()

    def _is_waited(self) -> bool:
        return bool(self._waiting)

    async def _look(self) -> None:
        found = await asyncio.to_thread(self._directories.versions, frozenset(self._waiting))
        known = self._versions | self._changed_to
        changed = {job: version for job, version in found.items() if known.get(job) != version and job in self._waiting}
        if changed:
            self._note(changed)
