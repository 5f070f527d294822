"""The logs that a training process opens itself, as by Python's FileHandler, beside its standard streams."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from collectors.live.sources.clock import Clock
from collectors.live.sources.tailing import key_of

LOOK_SECONDS = 30.0  # a job opens its logs once
MOST_HANDLES, MOST_LOGS = 1_024, 4  # of one process
_LOG = re.compile(r"\.(?:log|out|err|txt|jsonl)$")


class OpenedLogs:
    """The newest look at each process's handles."""

    def __init__(self, proc: Path, clock: Clock) -> None:
        self.proc, self.clock = proc, clock
        self._known: dict[int, tuple[float, list[tuple[str, str, str]]]] = {}

    def of(self, pid: int) -> list[tuple[str, str, str]]:
        """Return key, name and path of each file with a log's name that the process has opened to write."""
        now = self.clock.monotonic()
        looked_at, found = self._known.get(pid, (-LOOK_SECONDS, []))
        if now >= looked_at + LOOK_SECONDS:
            self._known = {one: known for one, known in self._known.items() if known[0] + 2 * LOOK_SECONDS > now}
            found = list(islice(self._opened(pid), MOST_LOGS))
            self._known[pid] = now, found
        return found

    def _opened(self, pid: int) -> Iterator[tuple[str, str, str]]:
        handles: list[int] = []
        with suppress(OSError):  # it has ended, or is another user's
            handles = sorted(int(name) for name in os.listdir(self.proc / str(pid) / "fd"))[:MOST_HANDLES]  # noqa: PTH208
        for number in handles:
            path = self.proc / str(pid) / "fd" / str(number)
            with suppress(OSError):
                is_log = number > 2 and _LOG.search(name := str(path.readlink())) is not None
                if is_log and self._is_written(pid, number) and (key := key_of(str(path))) is not None:
                    yield key, name, str(path)

    def _is_written(self, pid: int, number: int) -> bool:
        text = (self.proc / str(pid) / "fdinfo" / str(number)).read_text(encoding="ascii", errors="replace")
        flags = next((line.split()[1] for line in text.splitlines() if line.startswith("flags:")), "0")
        return int(flags, 8) & os.O_ACCMODE != os.O_RDONLY
