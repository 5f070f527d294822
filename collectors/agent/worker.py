"""A collector in a process of its own: a call into a driver's library may never return, and must not stop the agent.

The agent writes to the child's stdin and reads its stdout, each message MessagePack behind its length:

    agent → child   [verb or nil, arguments, the collector's newest cursor]        a run
    child → agent   ["record", a block] ["readings", …] ["cursor", value]          then one of
                    ["end"] ["nothing", why] ["failed", error]

A run past its bound kills the child, and one that would run and gets no processor has longer (``collectors.files.patience``).
A new one is started for a later run, after a wait that doubles, and never while the killed one still exists: a process in an
uninterruptible call cannot die. The child dies with the agent. It is no sandbox run (``collectors.files.sandbox``): it answers
many requests, because loading a driver's library takes long.

    faulthound.child_command("collectors.agent.worker_child", MODULE, NAME, HOST)      (HOST: JSON)
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from collectors.agent.backoff import Backoff
from collectors.agent.runner import LimitExceeded
from collectors.agent.worker_child import HostForm
from collectors.files.framing import LENGTH, framed
from collectors.files.patience import BUSY_TIMES, RUNS, Busy, Hung, Patience
from collectors.live import Collector, Cursor, NothingToCollect, Readings, Request, Yielded
from collectors.live.sources.host import Host, Roots
from collectors.records import block
from faulthound import child_command, child_environment

MESSAGE_BYTES_MAX = 64 << 20
READ_BYTES = 1 << 16
DYING_SECONDS = 1.0
NOTHING_SECONDS = 300.0  # for so long an absent device is not searched again


class WorkerFailed(Exception):
    """The child's collector failed, or the child itself; the message says why."""


class Worker:
    """The agent's end, called like the collector itself."""

    def __init__(self, collector: Collector, host: Host) -> None:
        self._collector, self._host = collector, host
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = bytearray()
        self._waits = Backoff(1.0, 300.0, collector.name)
        self._killed = False
        self._has_yielded = False  # since the child's start
        self._nothing = ""  # why the child found nothing, until the next one is started
        self._not_before = 0.0  # time.monotonic()

    def __call__(self, request: Request | None) -> Iterator[Yielded]:
        """Yield what one run in the child yields; raise what it raised, or ``LimitExceeded`` after it was killed."""
        limit_seconds = self._collector.limit_seconds
        process = self._started()
        patience = Patience(process.pid, time.monotonic() + limit_seconds, limit_seconds, RUNS)
        ended = False
        try:
            self._send(process, request)
            while (message := self._message(process, patience))[0] in {"record", "readings", "cursor"}:
                self._has_yielded = True
                yield from _yielded(message)
            ended = True
        finally:
            if not ended:  # it hangs, it died, or its message is not understood: the pipes are out of step
                self.kill()
        if message[0] == "nothing":
            why = str(message[1])
            if not self._has_yielded:  # no process is kept for a device that this node does not have
                self.kill()
                self._waits.reset()
                self._nothing, self._not_before = why, time.monotonic() + NOTHING_SECONDS
            raise NothingToCollect(why)
        self._waits.reset()
        if message[0] == "failed":
            raise WorkerFailed(str(message[1]))

    def close(self) -> None:
        """End the child and close its pipes."""
        self.kill()
        self._forget()

    def kill(self) -> None:
        """End the child, if it can be ended."""
        if self._process is None:
            return
        self._process.kill()
        self._killed = True
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(DYING_SECONDS)
        self._not_before = time.monotonic() + self._waits.next()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            if self._killed:
                raise WorkerFailed(
                    f"process {self._process.pid} was killed and is still there: no second one beside it"
                )
            return self._process
        if (seconds := self._not_before - time.monotonic()) > 0:
            if self._nothing:
                raise NothingToCollect(self._nothing)
            tries = self._waits.tries
            raise WorkerFailed(f"its process ended {tries} times in a row: the next is started in {seconds:.0f} s")
        self._forget()
        self._killed = self._has_yielded = False
        self._nothing = ""
        self._process = _start(self._collector, self._host)
        return self._process

    def _forget(self) -> None:
        if self._process is not None:
            for pipe in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):  # unwritten bytes for a process that has ended
                    if pipe is not None:
                        pipe.close()
        self._process = None
        self._buffer.clear()

    def _send(self, process: subprocess.Popen[bytes], request: Request | None) -> None:
        verb, arguments = (request.verb, dict(request.arguments)) if request else (None, {})
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, which reading its answer will show
            process.stdin.write(framed([verb, arguments, self._host.cursor(self._collector.name)]))
            process.stdin.flush()

    def _message(self, process: subprocess.Popen[bytes], patience: Patience) -> list[Any]:
        assert process.stdout is not None
        seconds = self._collector.limit_seconds
        pipe = process.stdout.fileno()
        while (message := _whole(self._buffer)) is None:
            try:
                patience.wait(pipe, select.POLLIN)
            except Hung as hung:
                raise LimitExceeded(f"killed at its bound of {seconds:g} s") from hung
            except Busy as busy:
                raise LimitExceeded(f"killed after {BUSY_TIMES * seconds:g} s: {busy}") from busy
            data = os.read(pipe, READ_BYTES)
            if not data:
                raise WorkerFailed(f"its process ended by itself: {_ending(process)}")
            self._buffer += data
        return message


def _start(collector: Collector, host: Host) -> subprocess.Popen[bytes]:
    roots = {name: str(getattr(host.roots, name)) for name in Roots.__slots__}
    options = {collector.name: dict(host.options.get(collector.name, {}))}
    form = msgspec.json.encode(HostForm(host.node, roots, options, os.getpid())).decode()
    command = child_command("collectors.agent.worker_child", collector.make.__module__, collector.name, form)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment(), cwd="/")


def _ending(process: subprocess.Popen[bytes]) -> str:
    try:
        code = process.wait(DYING_SECONDS)
    except subprocess.TimeoutExpired:
        return "it closed its pipe"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"


def _yielded(message: list[Any]) -> Iterator[Yielded]:
    kind, payload = message[0], message[1]
    if kind == "record":
        yield from block.decode(payload)
    elif kind == "cursor":
        yield Cursor(payload)
    else:
        yield Readings(*payload)


def _whole(buffer: bytearray) -> list[Any] | None:
    if len(buffer) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack_from(buffer)
    if length > MESSAGE_BYTES_MAX:
        raise WorkerFailed(f"its process announces a message of {length:,} bytes, more than {MESSAGE_BYTES_MAX:,}")
    if len(buffer) < LENGTH.size + length:
        return None
    body = bytes(memoryview(buffer)[LENGTH.size : LENGTH.size + length])
    del buffer[: LENGTH.size + length]
    return msgspec.msgpack.decode(body, type=list[Any])
