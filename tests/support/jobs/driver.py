"""Start a real job, wait until its fault has struck and nothing moves, collect the files, and leave no process behind.

A hang is started rank by rank, as a launcher that does not kill on the first failure would; a crash by torchrun itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.support.jobs import collect, faults
from tests.support.jobs.collect import Evidence
from tests.support.jobs.job import Job
from tests.support.jobs.scenarios import FAULTS, Scenario

HERE = Path(__file__).parent
START_SECONDS = 120.0  # eight imports of torch on two busy cores
STILL_SECONDS = 7.0  # a pause of 5 s is nobody's hang yet: taking dumps and stacks alone can take seconds
STILL_PAUSES = 4.0  # and for this many of the longest pause that the job had before, on a busy machine
FIRST_STEADY_STEP = 6
NUMBERS_SHARD_SECONDS = 0.15  # so that what goes wrong still does so when the files are collected
POLL_SECONDS = 0.05


class JobFailed(RuntimeError):
    """The job did not come as far as its fault; the message ends with its log."""


def wait(job: Job, what: str, limit_seconds: float, done: Iterator[bool]) -> None:
    """Poll until something is done; raise ``JobFailed`` where it takes longer than it may."""
    deadline = time.monotonic() + limit_seconds
    for finished in done:
        if finished:
            return
        if time.monotonic() > deadline:
            raise JobFailed(f"{job.scenario.name}: no {what} within {limit_seconds:.0f} s\n{job.log()}")
        time.sleep(POLL_SECONDS)


class Watch:
    """How long no rank has come to another step, and the longest that this took while the job still ran."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.steps: dict[int, int] = {}
        self.moved_at = time.monotonic()
        self.longest_pause_seconds = 0.0

    def still_seconds(self) -> float:
        """Look once, and return for how long nothing has moved."""
        steps, now = faults.steps(self.job.private), time.monotonic()
        if steps != self.steps:
            if min(self.steps.values(), default=0) >= FIRST_STEADY_STEP:
                self.longest_pause_seconds = max(self.longest_pause_seconds, now - self.moved_at)
            self.steps, self.moved_at = steps, now
        return now - self.moved_at

    def struck(self) -> Iterator[bool]:
        """Yield true once all faults are reached; a job that ended before that has failed."""
        wanted = {fault["rank"] for fault in self.job.scenario.planned()}
        while True:
            self.still_seconds()
            reached = faults.reached(self.job.private) >= wanted
            if not reached and not self.job.launched():
                raise JobFailed(f"{self.job.scenario.name}: it ended before its fault\n{self.job.log()}")
            yield reached

    def stuck(self, seconds: float) -> Iterator[bool]:
        """Yield true once nothing has moved for these seconds, and for several of the job's own pauses."""
        while True:
            still = self.still_seconds()
            yield still >= max(seconds, STILL_PAUSES * self.longest_pause_seconds) or not self.job.launched()


def ended(job: Job) -> Iterator[bool]:
    """Yield true once every process of the job is gone."""
    while True:
        yield not job.launched()


@contextmanager
def running(scenario: Scenario, workplace: Path | None = None, python: str = sys.executable) -> Iterator[Job]:
    """Give a job its folders and take everything away again; a UNIX socket's path has room for 107 characters."""
    private = Path(tempfile.mkdtemp(prefix="train-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    program = (workplace or private) / "train.py"
    program.parent.mkdir(parents=True, exist_ok=True)
    for name in ("train.py", "faults.py"):
        shutil.copy(HERE / name, program.parent / name)
    job = Job(scenario, private, program, python)
    try:
        yield job
    finally:
        job.kill()
        shutil.rmtree(private, ignore_errors=True)


def run(
    scenario: Scenario,
    folder: Path,
    evidence: Evidence | None = None,
    workplace: Path | None = None,
    python: str = sys.executable,
    still_seconds: float = STILL_SECONDS,
) -> Path:
    """Run one scenario and return ``folder``, which then holds what was left of the job."""
    evidence = evidence or scenario.evidence()
    folder.mkdir(parents=True, exist_ok=True)
    with running(scenario, workplace, python) as job:
        job.labels = {"TRAIN_SHARD_SECONDS": str(NUMBERS_SHARD_SECONDS)} if scenario.topology == "numbers" else {}
        watch, launcher = Watch(job), scenario.truth.launcher
        if launcher == "torchrun":
            job.start_torchrun()
        else:
            job.start_ranks(evidence)
        wait(job, "fault", START_SECONDS, watch.struck())
        inflict(job)
        if launcher == "torchrun":
            wait(job, "end", START_SECONDS, ended(job))
        elif scenario.truth.symptom in ("healthy", "numeric"):
            collect.collect(job.private, job.alive(), folder / "first", evidence)
            time.sleep(STILL_SECONDS)
            collect.collect(job.private, job.alive(), folder / "second", evidence)
        else:
            wait(job, "standstill", START_SECONDS + still_seconds, watch.stuck(still_seconds))
            collect.collect(job.private, job.alive(), folder, evidence)
        job.copy_logs(folder)  # before the ranks are killed, which some of them would write about
    collect.write_hosts(folder, scenario.ranks)
    return folder


def inflict(job: Job) -> None:
    """Send the culprits the signal of a fault that comes from outside."""
    number = job.scenario.truth.signal
    for rank in job.scenario.culprits if number else ():
        os.kill(faults.pids(job.private)[rank], number)


def main() -> None:
    """Run one scenario from the command line."""
    parser = argparse.ArgumentParser(description="Start a real job, break it, collect its files.")
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--fault", choices=sorted(FAULTS), default="spin")
    parser.add_argument("--topology", choices=["ddp", "pipeline"], default="ddp")
    parser.add_argument("--seed", type=int, default=0, help="chooses culprits, step and variant")
    parser.add_argument("--workplace", type=Path, help="the folder that the job runs in (default: a temporary one)")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that runs the ranks")
    parser.add_argument("--still-seconds", type=float, default=STILL_SECONDS, help="how long nothing has moved")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit that still kills the ranks
    scenario = Scenario.draw(options.fault, options.topology, options.seed)
    started_at = time.monotonic()
    elsewhere = {"workplace": options.workplace, "python": options.python, "still_seconds": options.still_seconds}
    run(scenario, options.folder, **elsewhere)
    print(json.dumps(asdict(scenario) | {"seconds": round(time.monotonic() - started_at, 1)}))


if __name__ == "__main__":
    main()
