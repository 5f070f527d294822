"""The open connections: the bounds of one address and of all, who leaves where there is no room, and whose request is next.

Until a request has arrived whole, its connection waits for its peer. Where all places are taken, the one that has waited longest
leaves: a half-open one before an idle one, which its client opens again. One that is served stays.
"""

from __future__ import annotations

import asyncio
import resource
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from typing import Literal, Protocol

SHARE_OF_FILES = 4  # by default an address may take a quarter of the files that the process may open
MOST_OPEN = 1 << 16  # of all addresses together: two of each agent of the largest fleet
OWN_FILES = 64  # or an eighth of all: of the database, the logs and the engine
STARTS_A_TURN = 8  # requests: some milliseconds

REASONS = ("address", "room", "head", "large", "pipelined", "invalid", "stalled")
Standing = Literal["half-open", "idle", "served"]


class Leaves(Protocol):
    """A connection that can be ended."""

    def end(self, reason: str) -> None:
        """Close it, and count it under a reason."""


class Connections:
    """The open connections by address, and what was closed for which reason. Used in the event loop alone."""

    def __init__(self, address_connections: int = 0, head_seconds: float = 10.0) -> None:
        """``address_connections``: the most of one address; 0: a quarter of the files that may be open.

        ``head_seconds``: from a connection's beginning, or a request's first byte, to the end of the request's head.
        """
        self.head_seconds = head_seconds
        self.turns = Turns()
        self.open = 0
        self._most_of_an_address = address_connections
        self._of_addresses: Counter[str] = Counter()
        self._waiting: dict[str, OrderedDict[Leaves, None]] = {"half-open": OrderedDict(), "idle": OrderedDict()}
        self.closed: Counter[str] = Counter(dict.fromkeys(REASONS, 0))  # reason → connections

    @property
    def most_of_an_address(self) -> int:
        """The connections that one address may have."""
        return self._most_of_an_address or max(16, _files() // SHARE_OF_FILES)

    @property
    def most(self) -> int:
        """The connections that all addresses together may have."""
        return min(MOST_OPEN, _files() - max(OWN_FILES, _files() // 8))

    def admit(self, address: str) -> str:
        """Count a connection; return why it is one too many, empty where there is room, or where another has left for it."""
        self.open += 1
        self._of_addresses[address] += 1
        if self._of_addresses[address] > self.most_of_an_address:
            return "address"
        if self.open <= self.most:
            return ""
        longest = next((one for waiting in self._waiting.values() for one in waiting), None)
        if longest is None:
            return "room"
        self.stand(longest, "served")
        longest.end("room")
        return ""

    def stand(self, one: Leaves, standing: Standing) -> None:
        """Note what a connection does since now."""
        for waiting in self._waiting.values():
            waiting.pop(one, None)
        if standing in self._waiting:
            self._waiting[standing][one] = None

    def leave(self, address: str, one: Leaves) -> None:
        """Count a connection no more."""
        self.stand(one, "served")
        self.open -= 1
        self._of_addresses[address] -= 1
        if self._of_addresses[address] <= 0:
            del self._of_addresses[address]


class Turns:
    """Requests that are to be started: in each turn of the event loop a few, of one address after the other."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Callable[[], None]]] = OrderedDict()  # address → starts
        self._is_due = False

    def add(self, address: str, start: Callable[[], None]) -> None:
        """Start a request in its address's turn."""
        self._waiting.setdefault(address, deque()).append(start)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        for _ in range(STARTS_A_TURN):
            if not self._waiting:
                return
            address, starts = self._waiting.popitem(last=False)
            starts.popleft()()
            if starts:
                self._waiting[address] = starts
        if self._waiting and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn)


def _files() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
