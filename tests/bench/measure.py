"""Run a command and say how long it took and how much memory it and its children held; say on what machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLING_SECONDS = 0.05
MEGABYTE = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One finished command. ``peak_mb``: the largest sum of resident sets of the process and its children, in 10⁶ bytes."""

    seconds: float
    peak_mb: float
    exit_code: int
    output: str
    errors: str


def run(command: list[str]) -> Run:
    """Run a command to its end in the checkout's root, and measure it from before its start to after its exit."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        started_at = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors, stdin=subprocess.DEVNULL, cwd=REPOSITORY)
        peak = _Peak(process.pid)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started_at
        process.returncode = os.waitstatus_to_exitcode(status)
        # The kernel's own peak of the largest process catches what lies between two samples. [getrusage(2): kibibytes]
        peak_bytes = max(peak.stop(), usage.ru_maxrss * 1024)
        output.seek(0)
        errors.seek(0)
        return Run(
            seconds=seconds,
            peak_mb=peak_bytes / MEGABYTE,
            exit_code=process.returncode,
            output=output.read(),
            errors=errors.read(),
        )


class _Peak:
    """Samples the resident sets of a process tree in a thread. Pages shared by a fork count once for each process."""

    def __init__(self, pid: int) -> None:
        self._bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, args=(pid,), daemon=True)
        self._thread.start()

    def _sample(self, pid: int) -> None:
        while not self._over.wait(SAMPLING_SECONDS):
            try:
                root = psutil.Process(pid)
                tree = [root, *root.children(recursive=True)]
                self._bytes = max(self._bytes, sum(process.memory_info().rss for process in tree))
            except psutil.Error:  # it, or a child of it, ended between two looks
                continue

    def stop(self) -> int:
        """End the sampling and return the peak in bytes."""
        self._over.set()
        self._thread.join()
        return self._bytes


def provenance(command: str) -> dict[str, object]:
    """Return what a measured number must come with: the command, the commit, the machine, the versions, the day.

    Figures that a run keeps as it goes on are no change of what it measures.
    """
    return {
        "command": command,
        "commit": _git("rev-parse", "HEAD")
        + ("+changes" if _git("status", "--porcelain", "-uno", "--", ".", ":!docs/measured") else ""),
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "processor": _processor(),
            "system": f"{platform.system()} {platform.release()}",
            "gpus": gpus(),
        },
        "versions": {"python": platform.python_version(), "numpy": version("numpy"), "torch": version("torch")},
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown" * (arguments[0] == "rev-parse")


def gpus() -> int:
    """Return how many GPUs nvidia-smi lists here, 0 without it."""
    if shutil.which("nvidia-smi") is None:
        return 0
    return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=False).stdout.splitlines())


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def beside_python(script: str) -> str:
    """Return the path of a console script of the environment that runs this."""
    return str(Path(sys.executable).parent / script)
