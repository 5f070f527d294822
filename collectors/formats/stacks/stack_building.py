"""Builds stack dumps thread by thread, within written limits, whatever tool printed the stacks.

Every reader of stacks normalises to innermost frame first and leaves to ``StackBuilder`` which thread is the main one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

from collectors.records import Frame, StackDump, Thread

THREADS_PER_PROCESS = 2_048
FRAMES_PER_THREAD = 512
NAME_CHARACTERS = 500
DISTINCT_FRAMES = 16_384
"""Frames that are kept to be shared: thousands of ranks stand in the same few hundred lines."""

# `RANK=3`, `--rank 3`, `--rank=3`; never LOCAL_RANK, NODE_RANK, GROUP_RANK, `--node-rank` or `--node_rank`.
_RANK = re.compile(r"(?:(?<![A-Za-z_])RANK=|(?<!\S)--rank[= ])(\d{1,7})(?!\S)")
_OUTERMOST = ("<module>", "_run_module_as_main", "_run_code")


def rank_in_command(command: str) -> int | None:
    """Return the global rank that a command line or its environment states, if it does."""
    found = _RANK.search(command)
    return int(found.group(1)) if found else None


@lru_cache(maxsize=DISTINCT_FRAMES)
def frame(function: str, file: str = "", line: int = 0) -> Frame:
    """Make a frame whose texts are within the limit; ranks that stand alike share it."""
    return Frame(function[:NAME_CHARACTERS], file[:NAME_CHARACTERS], line)


class StackReader(Protocol):
    """Takes lines without their prefixes; whole dumps wait in ``finished``."""

    finished: list[StackDump]

    @property
    def busy(self) -> bool:
        """True inside a stack, whose frames have no word of their own."""

    def feed(self, number: int, text: str) -> bool:
        """Take one line; True if it belongs to a stack."""

    def end(self) -> None:
        """Finish what is open."""


def dumps(reader: StackReader, lines: Iterable[tuple[int, str]]) -> Iterator[StackDump]:
    """Yield the stack dumps in numbered lines."""
    for number, text in lines:
        reader.feed(number, text)
        yield from reader.finished
        reader.finished.clear()
    reader.end()
    yield from reader.finished


@dataclass
class ThreadBuilder:
    """One thread under construction; ``add`` drops what exceeds the limit."""

    name: str | None = None
    os_thread_id: int | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    main: bool = False
    frames: list[Frame] = field(default_factory=list)

    def add(self, new: Frame) -> None:
        """Append the next frame outwards."""
        if len(self.frames) < FRAMES_PER_THREAD:
            self.frames.append(new)

    def build(self, *, main: bool) -> Thread:
        """Freeze it."""
        return Thread(
            frames=tuple(self.frames),
            name=self.name,
            os_thread_id=self.os_thread_id,
            active=self.active,
            owns_gil=self.owns_gil,
            main=main,
        )


@dataclass
class StackBuilder:
    """One process under construction: ``main_last`` where the tool prints the main thread last (faulthandler)."""

    tool: str
    source: str
    at: float | None = None
    node: str | None = None
    rank: int | None = None
    pid: int | None = None
    parent_pid: int | None = None
    command: str = ""
    main_last: bool = False
    threads: list[ThreadBuilder] = field(default_factory=list)

    def begin(self, thread: ThreadBuilder) -> ThreadBuilder:
        """Start the next thread; beyond the limit its frames go nowhere."""
        if len(self.threads) < THREADS_PER_PROCESS:
            self.threads.append(thread)
        return thread

    def build(self) -> StackDump:
        """Freeze the dump, with at most one main thread."""
        main = self._main()
        rank = self.rank if self.rank is not None else rank_in_command(self.command)
        return StackDump(
            source=self.source,
            at=self.at,
            node=self.node,
            rank=rank,
            tool=self.tool,
            pid=self.pid,
            parent_pid=self.parent_pid,
            command=self.command[:NAME_CHARACTERS],
            threads=tuple(thread.build(main=thread is main) for thread in self.threads),
        )

    def _main(self) -> ThreadBuilder | None:
        """Choose by thread id, then the tool's word, then the name, then the outermost frame, then the position."""
        tests = (
            lambda thread: self.pid is not None and thread.os_thread_id == self.pid,
            lambda thread: thread.main,
            lambda thread: thread.name == "MainThread",
            lambda thread: any(one.function in _OUTERMOST for one in thread.frames[-3:]),
        )
        for test in tests:
            found = [thread for thread in self.threads if test(thread)]
            if found:
                return found[-1 if self.main_last else 0]
        if self.main_last or len(self.threads) == 1:
            return self.threads[-1] if self.threads else None
        return None
