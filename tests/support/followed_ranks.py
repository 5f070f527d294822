"""Ranks that the process collector follows."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from collectors.live import NothingToCollect, Yielded
from collectors.live.process import Processes
from collectors.live.sources.exits import ExitWatcher
from collectors.live.sources.host import Host
from collectors.live.sources.ranks import TrainingProcess
from collectors.records import ProcessState
from tests.support.process_rows import scanned

CODE = "import os, sys, time; print(flush=True); time.sleep(float(sys.argv[1])); os._exit(int(sys.argv[2]))"


class Ranks:
    """Real processes with ranks of one job."""

    def __init__(self) -> None:
        self.job = f"test-{os.getpid()}-{time.monotonic_ns()}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, seconds: float = 60.0, code: int = 0, program: str = CODE) -> subprocess.Popen[bytes]:
        """Start one rank, and return once it runs its program."""
        environment = {**os.environ, "RANK": str(rank), "FAULTHOUND_JOB": self.job}
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(seconds), str(code)], env=environment, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def end(self) -> None:
        """Leave nothing behind."""
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


class Only(Host):
    """This machine, with the training processes of one job: other tests may run beside this one."""

    job = ""

    def training(self) -> tuple[TrainingProcess, ...]:
        """Look now."""
        return tuple(one for one in scanned(self.process_table) if one.job == self.job)


def follower(ranks: Ranks, *, events: bool = True) -> Processes:
    """The collector on this machine."""
    host = Only("gpu-7")
    host.job = ranks.job
    made = Processes(host)
    if not events:
        made._exits = ExitWatcher(events=False)
    return made


def states(found: list[Yielded]) -> list[ProcessState]:
    """The records of a run."""
    return [one for one in found if isinstance(one, ProcessState)]


def ends(collect: Callable[[None], object], count: int) -> list[ProcessState]:
    """Run until so many ends have been reported."""
    reported: list[ProcessState] = []
    until = time.monotonic() + 60
    while len(reported) < count and time.monotonic() < until:
        try:
            reported += [one for one in states(list(collect(None))) if one.state == "X"]  # type: ignore[call-overload]
        except NothingToCollect:
            break
        time.sleep(0.02)
    return reported


needs_events = pytest.mark.skipif(
    not ExitWatcher().exact, reason="process events need CAP_NET_ADMIN in the first namespaces"
)
