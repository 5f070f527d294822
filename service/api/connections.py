"""The open connections by address, and the bound of one address."""

from __future__ import annotations

import resource
from collections import Counter

SHARE_OF_FILES = 4  # by default an address may take a quarter of the files that the process may open


class Connections:
    """The open connections by address, and what was closed for which reason. Used in the event loop alone."""

    def __init__(self, address_connections: int = 0, head_seconds: float = 10.0) -> None:
        """``address_connections``: the most of one address; 0: a quarter of the files that may be open.

        ``head_seconds``: from a connection's beginning, or a request's first byte, to the end of the request's head.
        """
        self.head_seconds = head_seconds
        self._most = address_connections
        self._open: Counter[str] = Counter()
        self.closed: Counter[str] = Counter({"address": 0, "head": 0, "stalled": 0})  # reason → connections

    @property
    def open(self) -> int:
        """The connections that are open."""
        return self._open.total()

    @property
    def most_of_an_address(self) -> int:
        """The connections that one address may have."""
        return self._most or max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE_OF_FILES)

    def admit(self, address: str) -> bool:
        """Count a connection; False where its address has as many as it may."""
        self._open[address] += 1
        return self._open[address] <= self.most_of_an_address

    def leave(self, address: str) -> None:
        """Count a connection no more."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]
