"""Work in a process apart, bounded in time, memory and output: what foreign bytes do to their reader ends there.

``Pool`` forks children of the warmed parent, which a program with threads must not do. Each child works on one chunk of
files at a time and sends back blocks of bytes. A child that dies or takes too long costs the file at hand, which it had
named in memory shared with its parent; the chunk is then done again without that file. ``run`` starts a program anew.
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
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import msgspec

LENGTH = struct.Struct("<Q")
SHARED = struct.Struct("<ddI")  # since when, seconds allowed, length of the name
COUNT = struct.Struct("<Q")  # at the end of the shared memory: how many bytes of the chunk were read
SHARED_BYTES = 8192
MAX_DEATHS = 64  # in one call: a folder made of bombs is given up
PIPE_BYTES = 1 << 20
POLL_SECONDS = 0.2
MAX_OUTPUT_BYTES = 16 << 20
MAX_ERROR_BYTES = 64 << 10
DYING_SECONDS = 1.0
DYING_POLL_SECONDS = 0.002

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
class Ran:
    """What became of a program; ``code`` None: it did not end in time, or wrote more than it may."""

    output: bytes
    error: str
    code: int | None
    cpu_seconds: float
    stuck: subprocess.Popen[bytes] | None = None  # it was killed and still has not ended


def run(
    command: list[str],
    seconds: float,
    *,
    input: bytes = b"",
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    environment: Mapping[str, str] | None = None,
) -> Ran:
    """Run a program to its end, its time or its bound of output; raise OSError where it cannot be started."""
    stdin = subprocess.PIPE if input else subprocess.DEVNULL
    child = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert child.stdout is not None
    assert child.stderr is not None
    with child.stdout as stdout, child.stderr as stderr:
        output, error = bytearray(), bytearray()
        bounds = {stdout.fileno(): (output, max_output_bytes), stderr.fileno(): (error, MAX_ERROR_BYTES)}
        ended = _exchange(child, input, bounds, time.monotonic() + seconds)
        if not ended:
            child.kill()
        cpu_seconds = _reap(child)
    words = " ".join(bytes(error).decode("utf-8", "replace").split("Stack backtrace:", 1)[0].split())
    stuck = child if cpu_seconds is None else None
    return Ran(bytes(output), words, child.returncode if ended else None, cpu_seconds or 0.0, stuck)


def _exchange(
    child: subprocess.Popen[bytes], input: bytes, bounds: dict[int, tuple[bytearray, int]], until: float
) -> bool:
    """Write the input and read both outputs to their ends; return False where time or a bound was reached before."""
    left = memoryview(input)
    with selectors.DefaultSelector() as selector:
        for descriptor in bounds:
            selector.register(descriptor, selectors.EVENT_READ)
        if child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
            selector.register(child.stdin, selectors.EVENT_WRITE)
        while selector.get_map():
            seconds = until - time.monotonic()
            ready = selector.select(seconds) if seconds > 0 else []
            if not ready:
                return False
            for key, _ in ready:
                if key.fileobj is child.stdin:
                    left = _written(key.fd, left)
                    if not left:
                        selector.unregister(child.stdin)
                        child.stdin.close()
                    continue
                buffer, most = bounds[key.fd]
                data = os.read(key.fd, 1 << 16)
                buffer += data
                if len(buffer) > most:
                    return False
                if not data:
                    selector.unregister(key.fd)
    return True


def _written(descriptor: int, data: memoryview) -> memoryview:
    """Return what is left to write; nothing, where the other end is closed."""
    try:
        return data[os.write(descriptor, data) :]
    except BrokenPipeError:
        return data[:0]


def _reap(child: subprocess.Popen[bytes]) -> float | None:
    """Return the CPU seconds that a child has used, None where it does not end even when killed."""
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()
    until = time.monotonic() + DYING_SECONDS
    while time.monotonic() < until:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)  # else its Popen would wait for it again
            return usage.ru_utime + usage.ru_stime
        time.sleep(DYING_POLL_SECONDS)
    child.kill()
    return None


class Watch:
    """The file that a child has at hand, in memory that outlives the child."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, SHARED_BYTES)
        self._allowed = 0.0

    def begin(self, source: str, seconds_allowed: float) -> None:
        """Note which file is being read from now on, and how long that may take."""
        name = source.encode(errors="replace")[: SHARED_BYTES - SHARED.size - COUNT.size]
        self._allowed = seconds_allowed
        self._shared[SHARED.size : SHARED.size + len(name)] = name
        self._shared[: SHARED.size] = SHARED.pack(time.monotonic(), seconds_allowed, len(name))

    def moved(self, count: int) -> None:
        """Note how many bytes of the chunk were read so far."""
        COUNT.pack_into(self._shared, SHARED_BYTES - COUNT.size, count)

    def count(self) -> int:
        """Return how many bytes of the chunk were read so far."""
        return int(COUNT.unpack_from(self._shared, SHARED_BYTES - COUNT.size)[0])

    def alive(self) -> None:
        """Note that a block was sent: the deadline starts again."""
        self._shared[:8] = struct.pack("<d", time.monotonic())

    def end(self) -> None:
        """Note that no file is being read."""
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
        source, _, allowed = child.watch.at_hand()
        late = f"reading it took more than {allowed:.0f} s"
        reason = late if child.late else f"reading it ended its process with {how_ended(status)}"
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
