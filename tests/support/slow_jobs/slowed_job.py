"""A job of ``slowed_training.py`` that runs, and what makes one rank of it slow for a while."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]

RANKS = {"ddp": 4, "pipeline": 8}
LOADING = {"ddp": frozenset(range(4)), "pipeline": frozenset({0, 1, 6, 7})}  # ranks that have a loader
OF_A_LOADER = frozenset({"loader", "disk"})
STEP = re.compile(rb"step (\d+) ")
PERIOD_SECONDS, STOPPED_SHARE = 0.05, 0.7
QUOTA_MICROSECONDS, PERIOD_MICROSECONDS = 2_000, 100_000
DISK_BYTES_PER_SECOND = 600_000  # a batch of 64 KiB takes a tenth of a second
CGROUPS = Path("/sys/fs/cgroup")


@dataclass
class Running:
    """A job that trains."""

    name: str
    layout: str
    folder: Path
    launcher: subprocess.Popen[bytes]
    pids: dict[int, int]

    def step(self) -> int:
        """Return its newest step."""
        with (self.folder / "log").open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - 4096))
            found = STEP.findall(log.read())
        return int(found[-1]) if found else 0

    def seconds_a_step(self, over: float) -> float:
        """Return how long its steps take, measured over a span by this very clock."""
        step, at = self.step(), time.monotonic()
        time.sleep(over)
        return (time.monotonic() - at) / max(self.step() - step, 1)

    def longest_span(self, seconds: float, span: float) -> float:
        """Watch it for a while; return by which share steps were longer in its slowest span than in its fastest."""
        began, seen = time.monotonic(), [(0.0, self.step())]
        while (now := time.monotonic() - began) < seconds:
            time.sleep(min(10.0, seconds - now))
            seen.append((time.monotonic() - began, self.step()))
        paces = list[float]()
        for at, step in seen:
            later = next(((then, there) for then, there in seen if then >= at + span), None)
            paces += [(later[0] - at) / max(later[1] - step, 1)] if later else []
        return max(paces) / min(paces) - 1


def start(stack: ExitStack, folder: Path, name: str, layout: str, *, probe: bool, **variables: str) -> Running:
    """Start a job by torchrun; its ranks are ended with the stack. Whose pids they are is not known yet."""
    folder.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("slowed_training.py"), folder)
    shutil.copy(REPOSITORY / "collectors" / "faulthound_probe.py", folder)
    labels = {"FAULTHOUND_JOB": name, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    own = {"WITH_PROBE": "1", "FAULTHOUND_PROBE_SERVER": "0"} if probe else {}
    launcher = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS[layout]}",
         str(folder / "slowed_training.py"), str(folder), layout],
        env=os.environ | labels | own | variables, stdin=subprocess.DEVNULL, stdout=(folder / "log").open("wb"),
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    stack.callback(_end, launcher)
    return Running(name, layout, folder, launcher, {})


def _end(launcher: subprocess.Popen[bytes]) -> None:
    """End a launcher and its ranks, which have sessions of their own; one of them may be stopped."""
    children = list[str]()
    with suppress(OSError):  # it ended by itself, and was waited for
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for pid in (launcher.pid, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    launcher.wait(30)


@contextmanager
def _flagged(kind: str, job: Running, culprit: int | str) -> Iterator[None]:
    flag = job.folder / f"{kind}-{culprit}"
    flag.touch()
    try:
        yield
    finally:
        flag.unlink()


@contextmanager
def _stopped_in_turns(job: Running, culprit: int) -> Iterator[None]:
    """Stop and continue one rank twenty times a second, as cpulimit does."""
    over, pid = threading.Event(), job.pids[culprit]

    def alternate() -> None:
        with suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                time.sleep(PERIOD_SECONDS * STOPPED_SHARE)
                os.kill(pid, signal.SIGCONT)
                time.sleep(PERIOD_SECONDS * (1 - STOPPED_SHARE))

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _grouped(controller: str, settings: dict[str, str], job: Running, culprit: int) -> Iterator[None]:
    """Put one rank into a control group of its own, and back afterwards."""
    group, pid = CGROUPS / controller / f"faulthound-{job.name}-{culprit}", str(job.pids[culprit])
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    home = next(path for _, controllers, path in lines if controller in controllers.split(","))
    group.mkdir()
    try:
        for name, value in settings.items():
            (group / name).write_text(value)
        (group / "cgroup.procs").write_text(pid)
        yield
    finally:
        with suppress(OSError):
            (CGROUPS / controller / home.lstrip("/") / "cgroup.procs").write_text(pid)
        time.sleep(0.5)
        with suppress(OSError):
            group.rmdir()


def _quota(job: Running, culprit: int) -> object:
    settings = {"cpu.cfs_period_us": str(PERIOD_MICROSECONDS), "cpu.cfs_quota_us": str(QUOTA_MICROSECONDS)}
    return _grouped("cpu", settings, job, culprit)


def _slow_disk(job: Running, culprit: int) -> object:
    disk = job.folder.stat().st_dev
    text = f"{os.major(disk)}:{os.minor(disk)} {DISK_BYTES_PER_SECOND}"
    return _grouped("blkio", {"blkio.throttle.read_bps_device": text}, job, culprit)


FAULTS: dict[str, Callable[[Running, int], object]] = {
    "compute": lambda job, culprit: _flagged("compute", job, culprit),
    "loader": lambda job, culprit: _flagged("loader", job, culprit),
    "threads": lambda job, culprit: _flagged("threads", job, culprit),
    "quota": _quota,
    "disk": _slow_disk,
    "stops": _stopped_in_turns,
    "loader of all": lambda job, _culprit: _flagged("loader", job, "all"),
}
"""What is done to a rank, or to all: a context in which it is slow."""


@contextmanager
def other_work() -> Iterator[None]:
    """Burn a processor for 25 seconds of every 90, beside the jobs."""
    program = "import time\nwhile True:\n e = time.time() + 25\n while time.time() < e: pass\n time.sleep(65)"
    other = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield
    finally:
        other.kill()
        other.wait()
