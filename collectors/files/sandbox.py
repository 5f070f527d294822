"""Work in a process apart, bounded in time, memory and output: what foreign bytes do to their reader ends there.

``Pool`` forks children of the warmed parent, which a program with threads must not do. Each child works on one chunk of
files at a time and sends back blocks of bytes. A child that dies or takes too long costs the file at hand, which it had
named in memory shared with its parent; the chunk is then done again without that file. What counts is the processor's time,
for a busy machine is no fault of a file; one that sleeps is given much longer.
Nothing that a child sends is unpickled (docs/decisions/0022).
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

from collectors.files.patience import RUNS, turn

LENGTH = struct.Struct("<Q")
SHARED = struct.Struct("<dddI")  # since when, processor seconds used then, seconds allowed, length of the name
SINCE = struct.Struct("<dd")
COUNT = struct.Struct("<Q")  # at the end of the shared memory: how many bytes of the chunk were read
SHARED_BYTES = 8192
MAX_DEATHS = 64  # in one call: a folder made of bombs is given up
PIPE_BYTES = 1 << 20
POLL_SECONDS = 0.2
SLEEPING_TIMES = 6.0  # so many times its bound of processor time a child may wait, as for a slow file system

Skip = dict[str, str]
"""Sources to pass over, and why."""


def how_ended(status: int) -> str:
    """Return what a process ended with, by its wait status: "exit code 1", "SIGSEGV"."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in signal.Signals.__members__.values() else str(-code)
    return name + (" (out of memory?)" if name == "SIGKILL" else "")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data to a pipe."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


@dataclass(frozen=True, slots=True)
class AtHand:
    """A file: since when nothing came of it, what its process had used of the processor by then, and may use; 0: no file."""

    source: str
    since: float
    used_seconds: float
    allowed_seconds: float


class Watch:
    """The file that a child has at hand, in memory that outlives the child."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, SHARED_BYTES)

    def begin(self, source: str, seconds_allowed: float) -> None:
        """Note which file is being read from now on, and how much of the processor's time that may take."""
        name = source.encode(errors="replace")[: SHARED_BYTES - SHARED.size - COUNT.size]
        self._shared[SHARED.size : SHARED.size + len(name)] = name
        self._shared[: SHARED.size] = SHARED.pack(time.monotonic(), time.process_time(), seconds_allowed, len(name))

    def moved(self, count: int) -> None:
        """Note how many bytes of the chunk were read so far."""
        COUNT.pack_into(self._shared, SHARED_BYTES - COUNT.size, count)

    def count(self) -> int:
        """Return how many bytes of the chunk were read so far."""
        return int(COUNT.unpack_from(self._shared, SHARED_BYTES - COUNT.size)[0])

    def alive(self) -> None:
        """Note that a block was sent: the deadline starts again."""
        self._shared[: SINCE.size] = SINCE.pack(time.monotonic(), time.process_time())

    def end(self) -> None:
        """Note that no file is being read."""
        self._shared[: SHARED.size] = SHARED.pack(0.0, 0.0, 0.0, 0)

    def at_hand(self) -> AtHand:
        """Return the file at hand."""
        since, used, allowed, length = SHARED.unpack(self._shared[: SHARED.size])
        name = self._shared[SHARED.size : SHARED.size + length].decode(errors="replace")
        return AtHand(name, since, used, allowed)


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
    used_seconds: float = 0.0  # when it was looked at last
    late: str = ""  # why it was ended

    def wait(self, seconds: float) -> None:
        """Count the time that this child gave nothing, and end it once its file has had more than it may take."""
        at_hand = self.watch.at_hand()
        self.waited_seconds = self.waited_seconds + seconds if at_hand.since == self.since else 0.0
        self.since = at_hand.since
        if not at_hand.allowed_seconds or self.waited_seconds <= at_hand.allowed_seconds or self.late:
            return
        if late := self._late(at_hand):
            self.late = late
            os.kill(self.pid, signal.SIGKILL)

    def _late(self, at_hand: AtHand) -> str:
        state, used = turn(self.pid)
        still, self.used_seconds = used == self.used_seconds, used
        if used - at_hand.used_seconds > at_hand.allowed_seconds:
            return f"reading it took more than {at_hand.allowed_seconds:.0f} s of the processor"
        sleeping_seconds = SLEEPING_TIMES * at_hand.allowed_seconds
        if still and state not in RUNS and self.waited_seconds > sleeping_seconds:
            return f"reading it took more than {sleeping_seconds:.0f} s, and did nothing"
        return ""

    def give(self, chunk: int, skip: Skip) -> None:
        self.chunk = chunk
        command = msgspec.msgpack.encode((chunk, skip))
        with contextlib.suppress(BrokenPipeError):  # it has died, which its results will show
            write_all(self.commands, LENGTH.pack(len(command)) + command)

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
    lost: Callable[[int, str, str], bytes]  # a block that reports that this chunk, or this file of it, is given up
    finished: Callable[[int], None]
    moved: Callable[[int], None]  # called often, with the bytes read of chunks that are not finished
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
                self.moved(sum(child.watch.count() for child in self.children if child.chunk is not None))
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
        # Time in which the caller took no records, or this process was stopped, is not the children's.
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
        source = child.watch.at_hand().source
        reason = child.late or f"reading it ended its process with {how_ended(status)}"
        self.deaths += 1
        skip = self.skips.setdefault(chunk, {})
        if not source or source in skip or self.deaths > MAX_DEATHS:
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


def _widen(pipe: int) -> None:
    """Let a child write a whole block without waiting for the parent, where the system allows it."""
    with contextlib.suppress(OSError, AttributeError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


def _serve(work: Work, commands: int, results: int, watch: Watch, inherited: list[int]) -> NoReturn:
    """Work on chunks until the parent closes the pipe; no code of the parent's exit runs here."""
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers the keyboard, and ends its children
        for descriptor in inherited:
            os.close(descriptor)
        gc.disable()  # documents are trees; a cycle can only come from a hostile one, and the memory limit bounds it
        while header := _read(commands, LENGTH.size):
            watch.moved(0)
            chunk, skip = msgspec.msgpack.decode(_read(commands, *LENGTH.unpack(header)), type=tuple[int, Skip])
            for block in work(chunk, skip, watch):
                watch.alive()
                write_all(results, LENGTH.pack(len(block)))
                write_all(results, block)
            watch.end()
            write_all(results, LENGTH.pack(0))
        code = 0
    finally:
        os._exit(code)


def _read(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(pipe, size - len(data))):
        data += more
    return data if len(data) == size else b""
