"""Losses that are no number: the first of those that lasted until a stream's end is an event, those that passed are none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from collectors.records import LogEvent

MAX_STREAMS = 20_000  # of one file


@dataclass(slots=True)
class _Lost:
    """The lines of a stream whose loss is not a number, since the last one that is, and how many there were before it."""

    first: LogEvent | None = None
    count: int = 0
    passed: int = 0

    def take(self, found: LogEvent) -> None:
        self.first = self.first or found
        self.count += 1

    def end(self) -> None:
        self.passed = max(self.passed, self.count)
        self.first, self.count = None, 0


class LostLosses:
    """The streams of one log."""

    def __init__(self) -> None:
        self.streams: set[str] = set()  # whose newest loss is not a number
        self._lost: dict[str, _Lost] = {}

    def take(self, name: str, found: LogEvent) -> None:
        """Take a line of a stream whose loss is not a number."""
        if name in self._lost or len(self._lost) < MAX_STREAMS:
            self._lost.setdefault(name, _Lost()).take(found)
            self.streams.add(name)

    def end(self, name: str) -> None:
        """A stream's newest loss is a number again."""
        self._lost[name].end()
        self.streams.discard(name)

    def lasting(self) -> Iterator[tuple[str, LogEvent]]:
        """Yield where each stream's loss was lost that is lost to the end, and for longer than ever before."""
        for name, lost in self._lost.items():
            if lost.first and lost.count > lost.passed:
                yield name, lost.first
