"""How long to wait before the next try: twice as long each time, bounded, and spread over the agents (decision 0019)."""

from __future__ import annotations

import random
import zlib

UNREACHED_MOST_SECONDS = 5.0  # a longer wait relieves no service, and delays the report of what lasts


class Backoff:
    """Waits that double from ``first_seconds`` to ``most_seconds``; each is drawn from its upper half."""

    def __init__(self, first_seconds: float, most_seconds: float, name: str) -> None:
        self._first_seconds, self._most_seconds = first_seconds, most_seconds
        self._random = random.Random(zlib.crc32(name.encode()))  # noqa: S311 (spreads agents, guards nothing)
        self.tries = 0

    def next(self, *, unreached: bool = False) -> float:
        """Return the seconds to wait after one more failure. ``unreached``: no answer came at all."""
        # The exponent is bounded too: 2.0 ** 2000 overflows.
        most_seconds = min(self._most_seconds, UNREACHED_MOST_SECONDS) if unreached else self._most_seconds
        seconds = min(most_seconds, self._first_seconds * 2.0 ** min(self.tries, 30))
        self.tries += 1
        return seconds * (0.5 + self._random.random() / 2)

    def reset(self) -> None:
        """Start with the first wait again, after a success."""
        self.tries = 0
