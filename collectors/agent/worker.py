"""A collector in a process of its own: a call into a driver's library may never return, and must not stop the agent.

The agent writes to the child's stdin and reads its stdout, each message MessagePack behind its length:

    agent → child   [verb or nil, arguments, the collector's newest cursor]        a run
    child → agent   ["record", a block] ["readings", …] ["cursor", value]          then one of
                    ["end"] ["nothing", why] ["failed", error]

A run past its bound kills the child. A new one is started for a later run, after a wait that doubles, and never while the
killed one still exists: a process in an uninterruptible call cannot die. The child dies with the agent. It is no sandbox run
(``collectors.files.sandbox``): it answers many requests, because loading a driver's library takes long.

    faulthound.lean_child("collectors.agent.worker", MODULE, NAME, HOST)      (HOST: JSON)
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from collectors.agent.backoff import Backoff
from collectors.agent.runner import LimitExceeded
from collectors.live import Collector, Cursor, NothingToCollect, Readings, Request, Run, Yielded, registered
from collectors.live.sources.host import Host, Roots
from collectors.records import Record, block
from faulthound import lean_child

LENGTH = struct.Struct("<I")
MESSAGE_BYTES_MAX = 64 << 20
READ_BYTES = 1 << 16
DYING_SECONDS = 1.0
NOTHING_SECONDS = 300.0  # for so long an absent device is not searched again
PR_SET_PDEATHSIG = 1  # prctl(2)


class _HostForm(msgspec.Struct):
    """A host as the child receives it."""

    node: str
    roots: dict[str, str]
    options: dict[str, dict[str, Any]]
    agent_pid: int


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
        deadline = time.monotonic() + self._collector.limit_seconds
        process = self._started()
        ended = False
        try:
            self._send(process, request)
            while (message := self._message(process, deadline))[0] in {"record", "readings", "cursor"}:
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
            process.stdin.write(_framed([verb, arguments, self._host.cursor(self._collector.name)]))
            process.stdin.flush()

    def _message(self, process: subprocess.Popen[bytes], deadline: float) -> list[Any]:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        while (message := _whole(self._buffer)) is None:
            ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise LimitExceeded(f"killed at its bound of {self._collector.limit_seconds:g} s")
            data = os.read(pipe, READ_BYTES)
            if not data:
                raise WorkerFailed(f"its process ended by itself: {_ending(process)}")
            self._buffer += data
        return message


def _start(collector: Collector, host: Host) -> subprocess.Popen[bytes]:
    roots = {name: str(getattr(host.roots, name)) for name in Roots.__slots__}
    options = {collector.name: dict(host.options.get(collector.name, {}))}
    form = msgspec.json.encode(_HostForm(host.node, roots, options, os.getpid())).decode()
    command, environment = lean_child("collectors.agent.worker", collector.make.__module__, collector.name, form)
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd="/")


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


def _framed(message: Any) -> bytes:
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body


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


# The child's end


def main(module: str, name: str, form: str) -> None:
    """Run one collector for the agent that started this process, until the agent ends."""
    given = msgspec.json.decode(form, type=_HostForm)
    # A hung driver call must not outlive the agent.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != given.agent_pid:  # the agent died before that call
        return
    # A library that prints must not print into the pipe.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the agent's; it ends its children
    importlib.import_module(module)
    roots = Roots(**{root: Path(path) for root, path in given.roots.items()})
    host = Host(node=given.node, roots=roots, options=given.options)
    run: Run | None = None
    while (request := _request(sys.stdin.buffer)) is not None:
        verb, arguments, cursor = request
        host.cursors[name] = cursor
        try:
            run = run or registered(name).make(host)
            for yielded in run(Request(verb, arguments) if verb else None) or ():
                answers.write(_framed(_message_of(yielded)))
            answers.write(_framed(["end"]))
        except NothingToCollect as nothing:
            answers.write(_framed(["nothing", str(nothing)]))
        except Exception as error:  # noqa: BLE001 (the agent counts and reports it)
            answers.write(_framed(["failed", f"{type(error).__name__}: {error}"]))


def _request(pipe: BinaryIO) -> list[Any] | None:
    header = pipe.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    return msgspec.msgpack.decode(pipe.read(LENGTH.unpack(header)[0]), type=list[Any])


def _message_of(yielded: object) -> list[Any]:
    if isinstance(yielded, Record):
        return ["record", block.encode([yielded])]
    if isinstance(yielded, Cursor):
        return ["cursor", yielded.value]
    if isinstance(yielded, Readings):
        return ["readings", [getattr(yielded, name) for name in Readings.__slots__]]
    raise TypeError(f"yielded a {type(yielded).__name__}: a collector yields records, Readings and Cursors")


if __name__ == "__main__":
    main(*sys.argv[1:])
