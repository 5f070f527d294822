"""What a process waits for by the kernel's function that it sleeps in: dated data (``knowledge/wait_channels.toml``)."""

from __future__ import annotations

import re
from functools import lru_cache

from analyzers.knowledge import Knowledge
from collectors.records import ProcessState


class NetworkFileSystems:
    """The functions in which a client of a network file system waits for its server."""

    def __init__(self, knowledge: Knowledge) -> None:
        rows = knowledge.table("wait_channels").get("network_file_system", {})
        self._rules = tuple((str(row["words"]), _compiled(str(row["function"]))) for row in rows.values())

    def waited_for(self, row: ProcessState) -> str:
        """Return for which of them a process waits, uninterruptibly; empty where it is none."""
        if row.state != "D" or not row.wait_channel:
            return ""
        channel = row.wait_channel
        return next((words for words, function in self._rules if function.match(channel)), "")


@lru_cache(maxsize=64)
def _compiled(function: str) -> re.Pattern[str]:
    return re.compile(function)
