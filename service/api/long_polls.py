"""The agents' long polls, which wait for a command: one query a second serves them all.

A command that this process has received wakes its agents at once; a command that another process has received is found by
the query. Without waiting polls there is no query.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from service.api.problems import Problem
from service.store.commands import Commands
from service.store.shared_poll import SharedPoll

QUERY_SECONDS = 1.0
MOST_WAITING = 20_000  # in all: an agent each of a fleet, and those that came back before their old poll had ended
MOST_OF_A_NODE = 4
RETRY_SECONDS = 5.0


class LongPolls(SharedPoll):
    """The polls that wait, by node. All methods but ``wake`` are called in the event loop."""

    def __init__(self, commands: Commands) -> None:
        super().__init__(QUERY_SECONDS, "commands")
        self._commands = commands
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.count = 0

    async def wait(self, node: str, seconds: float) -> bool:
        """Wait for a command of the node, or until the service stops; return whether a query is worth while."""
        if self.closed or seconds <= 0:
            return True
        mine = self._waiting.get(node, set())
        if self.count >= MOST_WAITING or len(mine) >= MOST_OF_A_NODE:
            raise Problem(
                "too-many-requests",
                f"{len(mine)} polls of {node} and {self.count:,} in all are waiting, the most: end one first",
                retry_after_seconds=RETRY_SECONDS,
            )
        event = asyncio.Event()
        self._waiting.setdefault(node, set()).add(event)
        self.count += 1
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return seconds < 2 * QUERY_SECONDS  # during a longer wait the query has run
        else:
            return True
        finally:
            self._leave(node, event)

    def wake(self, nodes: Iterable[str]) -> None:
        """Wake the polls of these nodes; called from any thread."""
        self._loop.call_soon_threadsafe(self._wake, frozenset(nodes))

    def _leave(self, node: str, event: asyncio.Event) -> None:
        self.count -= 1
        self._waiting[node].discard(event)
        if not self._waiting[node]:
            del self._waiting[node]

    def _wake(self, nodes: frozenset[str]) -> None:
        for node in nodes:
            for event in self._waiting.get(node, ()):
                event.set()

    def _wake_all(self) -> None:
        self._wake(frozenset(self._waiting))

    def _is_waited(self) -> bool:
        return bool(self._waiting)

    async def _look(self) -> None:
        self._wake(frozenset(await asyncio.to_thread(self._commands.waiting)))
