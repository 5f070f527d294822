"""One run of py-spy: bounded in time and output, its CPU time counted, and not waited for when it does not end."""

from __future__ import annotations

import os
import selectors
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

MOST_OUTPUT_BYTES = 16 << 20
MOST_ERROR_BYTES = 64 << 10
END_SECONDS = 1.0
POLL_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class Ran:
    """How one run ended; ``code`` None: it did not end in time, or wrote too much."""

    output: bytes
    error: str
    code: int | None
    cpu_seconds: float
    stuck: subprocess.Popen[bytes] | None = None  # it was killed and still has not ended


def program() -> str | None:
    """Return py-spy's path: beside this interpreter, where an extra puts it, or on PATH."""
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def run(command: list[str], seconds: float) -> Ran:
    """Run a command to its end, its timeout or its bound of output; raise OSError where it cannot be started."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stderr is not None
    with child.stdout as stdout, child.stderr as stderr:
        output, error = bytearray(), bytearray()
        bounds = {stdout.fileno(): (output, MOST_OUTPUT_BYTES), stderr.fileno(): (error, MOST_ERROR_BYTES)}
        ended = _read(bounds, time.monotonic() + seconds)
        if not ended:
            child.kill()
        cpu_seconds = _reap(child)
    words = " ".join(bytes(error).decode("utf-8", "replace").split("Stack backtrace:", 1)[0].split())
    stuck = child if cpu_seconds is None else None
    return Ran(bytes(output), words, child.returncode if ended else None, cpu_seconds or 0.0, stuck)


def _read(bounds: dict[int, tuple[bytearray, int]], until: float) -> bool:
    """Read all descriptors to their ends; return False where the timeout or a bound was reached before."""
    with selectors.DefaultSelector() as selector:
        for descriptor in bounds:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            ready = selector.select(left) if left > 0 else []
            if not ready:
                return False
            for key, _ in ready:
                buffer, most = bounds[key.fd]
                data = os.read(key.fd, 1 << 16)
                buffer += data
                if len(buffer) > most:
                    return False
                if not data:
                    selector.unregister(key.fd)
    return True


def _reap(child: subprocess.Popen[bytes]) -> float | None:
    """Return the CPU seconds of a child, None where it does not end, even when killed."""
    until = time.monotonic() + END_SECONDS
    while time.monotonic() < until:
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = os.waitstatus_to_exitcode(status)  # else its Popen would wait for it again
            return usage.ru_utime + usage.ru_stime
        time.sleep(POLL_SECONDS)
    child.kill()
    return None
