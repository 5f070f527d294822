"""Foreign files are read in forked children: what one of them does to its reader ends there.

Each child reads one chunk of files at a time and sends back blocks. A child that dies or takes too long costs the file it
was reading, which it had named in memory shared with its parent; the chunk is then read again without that file.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import mmap
import os
import selectors
import signal
import struct
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

LENGTH = struct.Struct("<Q")
SHARED = struct.Struct("<ddI")  # since when, seconds allowed, length of the name
SHARED_BYTES = 8192
MOST_DEATHS = 64  # in one call: a folder made of bombs is given up, not sat through
PIPE_BYTES = 1 << 20
POLL_SECONDS = 0.2

Skip = dict[str, str]
"""Sources to pass over, and why."""


class Watch:
    """What a child says about the file at hand, in memory that outlives it."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, SHARED_BYTES)
        self._allowed = 0.0

    def begin(self, source: str, seconds_allowed: float) -> None:
        """Say which file is being read from now on, and how long that may take."""
        name = source.encode(errors="replace")[: SHARED_BYTES - SHARED.size]
        self._allowed = seconds_allowed
        self._shared[SHARED.size : SHARED.size + len(name)] = name
        self._shared[: SHARED.size] = SHARED.pack(time.monotonic(), seconds_allowed, len(name))

    def alive(self) -> None:
        """Say that it gives records: its time starts again."""
        self._shared[:8] = struct.pack("<d", time.monotonic())

    def end(self) -> None:
        """Say that no file is being read."""
        self._shared[: SHARED.size] = SHARED.pack(0.0, 0.0, 0)

    def at_hand(self) -> tuple[str, float, float]:
        """Return the file at hand, since when nothing came of it, and the seconds it may take; 0: no file."""
        since, allowed, length = SHARED.unpack(self._shared[: SHARED.size])
        name = self._shared[SHARED.size : SHARED.size + length].decode(errors="replace")
        return name, since, allowed


Work = Callable[[int, Skip, Watch], Iterator[bytes]]
"""Read one chunk, by its number; yield blocks."""


@dataclass(slots=True)
class _Child:
    pid: int
    commands: int
    results: int
    watch: Watch
    buffer: bytearray = field(default_factory=bytearray)
    chunk: int | None = None
    since: float = 0.0
    waited_seconds: float = 0.0
    late: bool = False

    def wait(self, seconds: float) -> None:
        """Count the time that this child gave nothing, and end it once that is more than its file may take."""
        _, since, allowed = self.watch.at_hand()
        self.waited_seconds = self.waited_seconds + seconds if since == self.since else 0.0
        self.since = since
        if allowed and self.waited_seconds > allowed and not self.late:
            self.late = True
            os.kill(self.pid, signal.SIGKILL)

    def give(self, chunk: int, skip: Skip) -> None:
        self.chunk = chunk
        command = msgspec.msgpack.encode((chunk, skip))
        with contextlib.suppress(BrokenPipeError):  # it has died, which its results will say
            _write(self.commands, LENGTH.pack(len(command)) + command)

    def take(self) -> Iterator[bytes]:
        """Yield the whole messages that have come; an empty one ends a chunk."""
        at = 0
        while len(self.buffer) >= at + 8:
            (length,) = LENGTH.unpack_from(self.buffer, at)
            if len(self.buffer) < at + 8 + length:
                break
            yield bytes(memoryview(self.buffer)[at + 8 : at + 8 + length])
            at += 8 + length
        del self.buffer[:at]


@dataclass(slots=True)
class Pool:
    """Runs chunks in children; ``results`` gives each chunk's blocks, in the order of the chunks."""

    work: Work
    chunks: int
    workers: int
    lost: Callable[[int, str, str], bytes]  # a block that says that this chunk, or this file of it, is given up
    finished: Callable[[int], None]
    children: list[_Child] = field(default_factory=list)
    skips: dict[int, Skip] = field(default_factory=dict)
    deaths: int = 0
    polled_at: float = 0.0
    selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def results(self) -> Iterator[list[bytes]]:
        """Yield the blocks of chunk 0, of chunk 1 and so on."""
        blocks: dict[int, list[bytes]] = {}
        done: set[int] = set()
        waiting = list(range(self.chunks - 1, -1, -1))
        following = 0
        try:
            while following < self.chunks:
                while waiting and len(self.children) < self.workers:
                    self._start(waiting.pop())
                for child in self._ready():
                    self._receive(child, blocks, done, waiting)
                while following in done:
                    self.finished(following)
                    yield blocks.pop(following, [])
                    following += 1
        finally:
            for child in self.children:
                self._bury(child, kill=True)
            self.selector.close()

    def _ready(self) -> list[_Child]:
        events = self.selector.select(POLL_SECONDS)
        # Time in which nobody took records, or this whole job was stopped, is not the children's.
        now = time.monotonic()
        seconds, self.polled_at = min(now - self.polled_at, 2 * POLL_SECONDS), now
        for child in self.children:
            child.wait(seconds)
        return [key.data for key, _ in events]

    def _receive(self, child: _Child, blocks: dict[int, list[bytes]], done: set[int], waiting: list[int]) -> None:
        data = os.read(child.results, PIPE_BYTES)
        if not data:
            self.children.remove(child)
            status = self._bury(child, kill=False)
            if child.chunk is not None:
                blocks.pop(child.chunk, None)
                self._died(child, child.chunk, status, blocks, done, waiting)
            return
        child.buffer += data
        for message in child.take():
            chunk = child.chunk if child.chunk is not None else -1
            if message:
                blocks.setdefault(chunk, []).append(message)
                continue
            done.add(chunk)
            child.chunk = None
            if waiting:
                following = waiting.pop()
                child.give(following, self.skips.get(following, {}))

    def _died(
        self, child: _Child, chunk: int, status: int, blocks: dict[int, list[bytes]], done: set[int], waiting: list[int]
    ) -> None:
        """Read the chunk again without the file that was at hand, unless there is none to blame or there are too many."""
        source, _, allowed = child.watch.at_hand()
        reason = f"reading it took more than {allowed:.0f} s" if child.late else f"reading it {_ended(status)}"
        self.deaths += 1
        skip = self.skips.setdefault(chunk, {})
        if not source or source in skip or self.deaths > MOST_DEATHS:
            blocks[chunk] = [self.lost(chunk, source, reason)]
            done.add(chunk)
        else:
            skip[source] = reason
            waiting.append(chunk)

    def _start(self, chunk: int) -> None:
        command_out, command_in = os.pipe()
        result_out, result_in = os.pipe()
        _widen(result_in)
        watch = Watch()
        with warnings.catch_warnings():
            # The child reads files and writes to its pipe, and takes no lock that another thread can hold.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if not pid:
            inherited = [fd for other in self.children for fd in (other.commands, other.results)]
            _serve(self.work, command_out, result_in, watch, [*inherited, command_in, result_out])
        os.close(command_out)
        os.close(result_in)
        child = _Child(pid, command_in, result_out, watch)
        self.children.append(child)
        self.selector.register(result_out, selectors.EVENT_READ, child)
        child.give(chunk, self.skips.get(chunk, {}))

    def _bury(self, child: _Child, *, kill: bool) -> int:
        self.selector.unregister(child.results)
        os.close(child.commands)
        os.close(child.results)
        if kill:
            os.kill(child.pid, signal.SIGKILL)
        return os.waitpid(child.pid, 0)[1]


def _ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in signal.Signals.__members__.values() else str(number)
        return f"ended its process with {name}" + (" (out of memory?)" if number == signal.SIGKILL else "")
    return f"ended its process with exit code {os.WEXITSTATUS(status)}"


def _widen(pipe: int) -> None:
    """Let a child write a whole block without waiting for the parent, where the system allows it."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _serve(work: Work, commands: int, results: int, watch: Watch, inherited: list[int]) -> NoReturn:
    """Do as the parent says until it closes the pipe; nothing of the parent's runs here, not even its exit."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers the keyboard, and ends its children
        for descriptor in inherited:
            os.close(descriptor)
        gc.disable()  # documents are trees; a cycle can only come from a hostile one, and the memory limit bounds it
        while header := _read(commands, LENGTH.size):
            chunk, skip = msgspec.msgpack.decode(_read(commands, *LENGTH.unpack(header)), type=tuple[int, Skip])
            for block in work(chunk, skip, watch):
                watch.alive()
                _write(results, LENGTH.pack(len(block)))
                _write(results, block)
            watch.end()
            _write(results, LENGTH.pack(0))
        code = 0
    finally:
        os._exit(code)


def _read(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(pipe, size - len(data))):
        data += more
    return data if len(data) == size else b""


def _write(pipe: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(pipe, view) :]
