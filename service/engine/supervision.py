"""The service's side of the engine: its process is started, started again when it ends, and ended with the service."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Mapping

import msgspec

from faulthound import child_command
from service.engine.numbers import Numbers
from service.settings import Settings

LEAST_AGAIN_SECONDS, MOST_AGAIN_SECONDS = 1.0, 30.0  # before it is started again: twice as long each time
STEADY_SECONDS = 60.0  # after which an end is the first one again
CLOSING_SECONDS = 5.0
SILENT_SECONDS = 30.0  # without the report that comes every second: the process hangs, or a tick takes long
LONGEST_LINE_BYTES = 1 << 16

_log = logging.getLogger(__name__)


class EngineProcess:
    """One engine process, and a thread that reads its reports and restarts it."""

    def __init__(self, settings: Settings) -> None:
        self.numbers = Numbers()
        self.starts = 0
        self._environment = os.environ | _variables(settings)
        # The same for each start: a lease that an earlier process of this service held, the next may take at once.
        self._owner = f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._process: subprocess.Popen[bytes] | None = None
        self._reported_at = 0.0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread, and with it the engine."""
        self._thread.start()

    def close(self) -> None:
        """End the engine after its turn, or kill it if that takes too long."""
        self._closing.set()
        process = self._process
        if process is not None and process.stdin is not None:
            process.stdin.close()  # which ends the engine
        self._thread.join(CLOSING_SECONDS)
        if process is not None and process.poll() is None:
            process.kill()
        self._thread.join(CLOSING_SECONDS)

    @property
    def pid(self) -> int | None:
        """Return the engine's process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def standing(self) -> str:
        """Return ``working``, ``standby`` (another engine works, or no engine can), ``silent`` or ``down``."""
        if self.pid is None:
            return "down"
        if time.monotonic() - self._reported_at > SILENT_SECONDS:
            return "silent"
        return "working" if self.numbers.working else "standby"

    def _run(self) -> None:
        pause = LEAST_AGAIN_SECONDS
        while not self._closing.is_set():
            began = time.monotonic()
            self._one()
            if self._closing.is_set():
                return
            pause = LEAST_AGAIN_SECONDS if time.monotonic() - began > STEADY_SECONDS else pause
            self._closing.wait(pause)
            pause = min(2 * pause, MOST_AGAIN_SECONDS)

    def _one(self) -> None:
        """Run one process to its end."""
        try:
            self._process = process = subprocess.Popen(
                child_command("service.engine", self._owner),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment,
            )  # fmt: skip
        except OSError as error:
            _log.error("engine_not_started reason=%s", error)
            return
        self.starts += 1
        self._reported_at = time.monotonic()
        if self._closing.is_set() and process.stdin is not None:  # closed while it was being started
            process.stdin.close()
        assert process.stdout is not None
        while line := process.stdout.readline(LONGEST_LINE_BYTES):
            self._read_report(line)
        code = process.wait()
        process.stdout.close()
        self.numbers.working = False
        if not self._closing.is_set():
            _log.error("engine_ended code=%d starts=%d", code, self.starts)

    def _read_report(self, line: bytes) -> None:
        try:
            self.numbers = msgspec.json.decode(line, type=Numbers)
        except msgspec.MsgspecError:
            return
        self._reported_at = time.monotonic()


def _variables(settings: Settings) -> Mapping[str, str]:
    """Return the settings as environment variables."""
    values = settings.model_dump(mode="json", exclude_none=True)
    # Analyzers run one at a time, and threads of numpy's library would hinder the fork. glibc raises its threshold with what
    # is freed: the texts of some large batches left hundreds of megabytes that were free and that the process kept.
    own = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "131072"}
    return {f"FAULTHOUND_{name.upper()}": str(value) for name, value in values.items()} | own
