"""A program that is run to its end, bounded in time and output, whose processor time is known."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

MAX_OUTPUT_BYTES = 16 << 20
MAX_ERROR_BYTES = 64 << 10
DYING_SECONDS = 1.0
DYING_POLL_SECONDS = 0.002


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
