"""What a process waits for by the kernel's function that it sleeps in: dated data (``knowledge/wait_channels.toml``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from analyzers.knowledge import Knowledge


class NetworkFileSystems:
    """The functions in which a client of a network file system waits for its server."""

    def __init__(self, knowledge: Knowledge) -> None:
        rows = knowledge.table("wait_channels").get("network_file_system", {})
        self._rules = tuple((str(row["words"]), _compiled(str(row["function"]))) for row in rows.values())

    def waited_for(self, channel: str | None) -> str:
        """Return the words for what a thread waits for that sleeps in this function; empty where it is none of these."""
        return next((words for words, function in self._rules if function.match(channel)), "") if channel else ""


def problems(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a site's document: the entry, its value, and what it must be."""
    rows = document.get("network_file_system", {})
    if not isinstance(rows, Mapping):
        yield f"network_file_system = {rows!r}: must be a table of rows"
        return
    for name, row in rows.items():
        at = f"network_file_system.{name}"
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
