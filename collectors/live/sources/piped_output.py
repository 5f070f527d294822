"""The files behind a pipe into which a job writes its output: those that the pipe's reader writes (``… | tee log``).

Any user can start a reader, and the agent may be root. Followed are only regular files of the user as whom the writing process
runs, behind the only reader of the pipe, which runs as the same user. They are opened as the reader's descriptors are: no name
is resolved. A reader is looked for once a pipe, and kept until it ends; a pipe without one is looked at ever more rarely.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from collectors.live.sources.host import Host
from collectors.live.sources.job_files import runs_as
from collectors.live.sources.system_files import process_ids, text
from collectors.live.sources.tailing import key_in

MOST_PROCESSES = 65_536
MOST_DESCRIPTORS = 256  # of one process
MOST_LINKS = 1 << 17  # read in one scan of all processes of a user
MOST_FILES = 2  # behind one pipe: what has more open is no copy of the output
MOST_HOPS = 3  # readers after one another, as in ``… | grep -v noise | tee log``
FIRST_WAIT_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 3600.0
_PIPE = re.compile(r"pipe:\[\d{1,20}\]")
_FLAGS = re.compile(r"^flags:\s+([0-7]{1,12})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Reader:
    """The descriptor through which a pipe is read. ``pid`` 0: none was found, and none is looked for before ``again_at``."""

    pid: int = 0
    number: int = 0
    again_at: float = 0.0  # monotonic seconds
    wait_seconds: float = FIRST_WAIT_SECONDS


class PipedOutput:
    """The readers of the pipes of one node's jobs; ``settle`` ends each run."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.scans = 0
        self._proc = str(host.roots.proc)
        self._readers: dict[tuple[str, int], _Reader] = {}  # by the pipe's name and the user
        self._asked: set[tuple[str, int]] = set()  # in this run
        self._open: dict[
            int, dict[str, list[tuple[int, int]]]
        ] = {}  # user → pipe → pid, descriptor: of this run's scan

    def files(self, pid: int, number: int, passing: Collection[int]) -> list[tuple[str, str, str]]:
        """Return key, name and path to open of the files behind a process's descriptor, none where it is no pipe.

        ``passing``: pids of ranks and launchers. What these read they pass on to their own output, and nowhere else.
        """
        pipes, found = [self._link(pid, number)], dict[str, tuple[str, str, str]]()
        user = runs_as(self.host, pid) if _is_pipe(pipes[0]) else None
        if user is None:
            return []
        for _ in range(MOST_HOPS):
            pipes = [further for pipe in dict.fromkeys(pipes) for further in self._behind(pipe, user, passing, found)]
        return list(found.values()) if len(found) <= MOST_FILES else []

    def settle(self) -> None:
        """Forget the pipes that no process of a job has any more."""
        self._readers = {pipe: reader for pipe, reader in self._readers.items() if pipe in self._asked}
        self._asked.clear()
        self._open.clear()

    def _behind(
        self, pipe: str, user: int, passing: Collection[int], found: dict[str, tuple[str, str, str]]
    ) -> list[str]:
        """Add the files that the pipe's reader writes to ``found``; return the pipes that its own output goes into."""
        pid = self._reader(pipe, user)
        if pid is None or runs_as(self.host, pid) != user:  # it may have executed a program of another user since
            return []
        further = []
        for number in (1, 2) if pid in passing else self._descriptors(pid):
            name, path = self._link(pid, number), f"{self._proc}/{pid}/fd/{number}"
            if _is_pipe(name):
                further += [name] if number in {1, 2} else []
            elif self._mode(pid, number) == os.O_WRONLY:
                with suppress(OSError):
                    status = os.stat(path)  # noqa: PTH116 (as key_of)
                    key = key_in(status)  # owner and key are of one file: what is opened later must have this key
                    if key is not None and status.st_uid == user:
                        found[key] = key, name, path
        return further

    def _reader(self, pipe: str, user: int) -> int | None:
        """Return the only process of the user that reads a pipe."""
        self._asked.add((pipe, user))
        kept = self._readers.get((pipe, user))
        now = self.host.clock.monotonic()
        if kept is not None and kept.pid and self._link(kept.pid, kept.number) == pipe:
            return kept.pid
        if kept is not None and not kept.pid and now < kept.again_at:
            return None
        ends = self._scan(user).get(pipe, ())
        readers = {pid: number for pid, number in ends if self._mode(pid, number) in {os.O_RDONLY, os.O_RDWR}}
        if len(readers) == 1:
            pid, number = readers.popitem()
            self._readers[pipe, user] = _Reader(pid, number)
            return pid
        wait = FIRST_WAIT_SECONDS if kept is None or kept.pid else min(2 * kept.wait_seconds, LONGEST_WAIT_SECONDS)
        self._readers[pipe, user] = _Reader(again_at=now + wait, wait_seconds=wait)
        return None

    def _scan(self, user: int) -> dict[str, list[tuple[int, int]]]:
        """Return the pipes that the processes of a user have open, as of this run; none where a bound is reached."""
        if user in self._open:
            return self._open[user]
        self.scans += 1
        found, left = defaultdict[str, list[tuple[int, int]]](list), MOST_LINKS
        with suppress(OSError):
            for pid in process_ids(self._proc)[:MOST_PROCESSES]:
                for number in self._descriptors(pid) if self._is_of(pid, user) else ():
                    left -= 1
                    if _is_pipe(name := self._link(pid, number)):
                        found[name].append((pid, number))
                if left <= 0:  # a second reader may be among the rest
                    found.clear()
                    break
        self._open[user] = dict(found)
        return self._open[user]

    def _is_of(self, pid: int, user: int) -> bool:
        with suppress(OSError):
            return os.stat(f"{self._proc}/{pid}").st_uid == user  # noqa: PTH116 (every process of the node)
        return False

    def _descriptors(self, pid: int) -> Iterable[int]:
        with suppress(OSError), os.scandir(f"{self._proc}/{pid}/fd") as entries:
            return [int(entry.name) for entry in islice(entries, MOST_DESCRIPTORS) if entry.name.isdecimal()]
        return []

    def _link(self, pid: int, number: int) -> str:
        with suppress(OSError):
            return os.readlink(f"{self._proc}/{pid}/fd/{number}")  # noqa: PTH115 (every descriptor of a user)
        return ""

    def _mode(self, pid: int, number: int) -> int | None:
        """Return how a descriptor was opened: O_RDONLY, O_WRONLY or O_RDWR; None where that is not shown."""
        flags = _FLAGS.search(text(f"{self._proc}/{pid}/fdinfo/{number}") or "")
        return int(flags[1], 8) & os.O_ACCMODE if flags else None


def _is_pipe(name: str) -> bool:
    """Whether a descriptor's link is of a pipe without a name; a file's begins with "/"."""
    return _PIPE.fullmatch(name) is not None
