"""What a process waits for by the kernel's function that it sleeps in: dated data (``knowledge/wait_channels.toml``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from analyzers.knowledge import Knowledge

UNREADABLE = "what the table of processes does not show"
_TABLES = ("network_file_system", "undecided")


@dataclass(frozen=True, slots=True)
class _Row:
    words: str
    function: re.Pattern[str]
    in_sleep: bool
    passes: bool


class _Channels:
    def __init__(self, knowledge: Knowledge, table: str) -> None:
        rows = knowledge.table("wait_channels").get(table, {}).values()
        self._rows = tuple(
            _Row(str(row["words"]), _compiled(str(row["function"])), bool(row.get("in_sleep")), bool(row.get("passes")))
            for row in rows
        )

    def row(self, channel: str | None) -> _Row | None:
        """Return the row of a function, None where it has none or cannot be read."""
        return next((row for row in self._rows if row.function.match(channel)), None) if channel else None


class NetworkFileSystems(_Channels):
    """The functions in which a client of a network file system waits for its server."""

    def __init__(self, knowledge: Knowledge) -> None:
        super().__init__(knowledge, "network_file_system")

    def waited_for(self, channel: str | None) -> str:
        """Return the words for what a thread waits for that sleeps in this function; empty where it is none of these."""
        row = self.row(channel)
        return row.words if row else ""

    def in_sleep(self, channel: str | None) -> bool:
        """Whether a thread waits for the server there in state S, which any thread has that waits for what it likes."""
        row = self.row(channel)
        return row is not None and row.in_sleep


class Undecided(_Channels):
    """The functions that do not show what a thread waits for: a disk of its machine, a file server, or neither."""

    def __init__(self, knowledge: Knowledge) -> None:
        super().__init__(knowledge, "undecided")

    def waited_for(self, channel: str | None) -> str:
        """Return the words for what a thread waits for in this function, an unreadable one too; empty where it is decided."""
        row = self.row(channel)
        return row.words if row else "" if channel else UNREADABLE

    def passes(self, channel: str | None) -> bool:
        """Whether a sound process waits there for moments, so that one look says nothing."""
        row = self.row(channel)
        return row is not None and row.passes


def problems(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a site's document: the entry, its value, and what it must be."""
    for table in _TABLES:
        yield from _problems(table, document.get(table, {}))


def _problems(table: str, rows: Any) -> Iterator[str]:
    if not isinstance(rows, Mapping):
        yield f"{table} = {rows!r}: must be a table of rows"
        return
    for name, row in rows.items():
        at = f"{table}.{name}"
        if not isinstance(row, Mapping) or not {"words", "function"} <= row.keys():
            yield f"{at}: must have `words` and `function`"
            continue
        try:
            _compiled(str(row["function"]))
        except re.error as problem:
            yield f"{at}.function = {row['function']!r}: must be a regular expression ({problem})"


@lru_cache(maxsize=64)
def _compiled(function: str) -> re.Pattern[str]:
    return re.compile(function)
