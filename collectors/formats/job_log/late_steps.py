"""Lines that report steps wait unread: a log of millions has only its newest steps kept, and most lines need no reading.

What waits is bounded for each process and in all. A line with a loss that is no number never waits, and those before it of
the same process are read first: the order within a process is that of the log.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

MOST_OF_PROCESS = 4096  # as of a series of steps
MOST_OF_UNKNOWN = 65_536  # where a line's beginning names no process, its lines may be of many
MOST_KEYS, MOST_LINES = 20_000, 200_000

_OF_PROCESS = re.compile(r"\[(?:rank|[a-z]{1,20})\d{1,7}[|\]]|\[\d+,\d+\]<|\([^)]{1,120}pid=\d|\d{1,7}:$")
_NO_NUMBER = re.compile(r"(?i)(?<![\w/.-])(?:nan|inf|infinity)\b(?! iterations)")

_SHAPE = str.maketrans("123456789", "000000000")

Take = Callable[[int, str], None]


class LateSteps:
    """Holds numbered lines until ``flush``; ``take`` reads one."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._waiting: dict[str, deque[tuple[int, str]]] = {}
        self._count = 0
        self._read_all: set[str] = set()  # keys of which a NaN was read: whether it passed, a dropped line may show

    def add(self, number: int, text: str, *, is_number: bool = True, key: str = "") -> None:
        """Hold a line that reports a step and no trouble, or read it at once where it cannot wait. ``key``: whose it is."""
        key = key or _key(text)
        if not is_number:
            if _OF_PROCESS.match(key):
                self._flush_key(key)
            else:
                self.flush()  # its beginning does not show whose it is
            self._read_all.add(key)
            self._take(number, text)
            return
        waiting = self._waiting.get(key)
        if waiting is None:
            if len(self._waiting) >= MOST_KEYS:
                self.flush()
            waiting = self._waiting[key] = deque()
        most = MOST_OF_PROCESS if _OF_PROCESS.match(key) else MOST_OF_UNKNOWN
        waiting.append((number, text))
        self._count += 1
        if len(waiting) > most:
            self._count -= 1
            dropped = waiting.popleft()
            if key in self._read_all:
                self._take(*dropped)
        elif self._count > MOST_LINES:
            self.flush()

    def flush(self) -> None:
        """Read all that waits, in the order of the lines."""
        lines = sorted(line for waiting in self._waiting.values() for line in waiting)
        self._waiting.clear()
        self._count = 0
        for number, text in lines:
            self._take(number, text)

    def flush_of(self, text: str) -> None:
        """Read what waits of the process whose line this is."""
        self._flush_key(_key(text))

    def _flush_key(self, key: str) -> None:
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self._count -= len(waiting)
            for number, text in waiting:
                self._take(number, text)


def has_no_number(text: str) -> bool:
    """Whether a line gives a value that is no number."""
    return _NO_NUMBER.search(text) is not None


def _key(text: str) -> str:
    """What the lines of one process begin with, as far as one look shows; of another beginning, as a stamp is, the shape."""
    end = text.find(")") + 1 if text[:1] == "(" else text.find(" ")
    begin = text[: end if 0 < end <= 160 else 16]
    return begin if _OF_PROCESS.match(begin) else begin.translate(_SHAPE)
