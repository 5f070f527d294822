"""Start a real job, wait until its fault has struck and nothing moves, collect the files, and leave no process behind.

A hang is started rank by rank, as a launcher that does not kill on the first failure would; a crash by torchrun itself.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.jobs import collect, faults
from tests.jobs.collect import Evidence
from tests.jobs.scenarios import FAULTS, Scenario

HERE = Path(__file__).parent
START_SECONDS = 120.0  # eight imports of torch on two busy cores
STILL_SECONDS = 3.0  # a step takes 30 to 300 ms: nothing has moved for many of them
POLL_SECONDS = 0.05


class JobFailed(RuntimeError):
    """The job did not come as far as its fault; the message ends with its log."""


class Job:
    """One running job: its processes, its private folder (sockets, progress) and its logs."""

    def __init__(self, scenario: Scenario, private: Path, logs: Path, program: Path, python: str) -> None:
        self.scenario, self.private, self.logs = scenario, private, logs
        self.program, self.python = program, python
        self.processes: list[subprocess.Popen[bytes]] = []

    def environment(self, evidence: Evidence) -> dict[str, str]:
        """Return what the ranks are started with."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        added = {
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCH_FR_BUFFER_SIZE": "100",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TRAIN_PRIVATE": str(self.private),
            "TRAIN_FAULTS": json.dumps(self.scenario.planned()),
        }
        if evidence.dumps == "pickle":
            added["TRAIN_DUMP_PIPE"] = str(self.private / "nccl_trace_rank_")
        if self.scenario.seed % 2:
            added["TRAIN_RECORD"] = "1"
        return kept | added

    def start_ranks(self, evidence: Evidence) -> None:
        """Start one process a rank, each with its own log."""
        for rank in range(self.scenario.ranks):
            own = ["--rank", str(rank), "--world-size", str(self.scenario.ranks)]
            own += ["--rendezvous", f"file://{self.private}/rendezvous"]
            self._start([self.python, self.program.name, *self._job(), *own], f"rank{rank}.log", evidence)

    def start_torchrun(self) -> None:
        """Start the real launcher, everything interleaved in its one log."""
        launcher = [
            self.python,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={self.scenario.ranks}",
        ]
        self._start(
            [*launcher, *self.scenario.launcher_options(), self.program.name, *self._job()], "torchrun.log", Evidence()
        )

    def _job(self) -> list[str]:
        return ["--topology", self.scenario.topology]

    def _start(self, command: list[str], log: str, evidence: Evidence) -> None:
        with (self.logs / log).open("wb") as output:
            self.processes.append(
                subprocess.Popen(
                    command,
                    cwd=self.program.parent,
                    env=self.environment(evidence),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def alive(self) -> dict[int, int]:
        """Return rank → pid of the ranks that are not dead."""
        return {rank: pid for rank, pid in sorted(faults.pids(self.private).items()) if _is_alive(pid)}

    def launched(self) -> bool:
        """Say whether any process that we started is still running."""
        return any(process.poll() is None for process in self.processes)

    def log(self) -> str:
        """Return the end of all logs, for an error message."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in self.logs.glob("*.log")
        )

    def kill(self) -> None:
        """Kill every process of this job: ours, and the workers that torchrun put into sessions of their own."""
        pids = {process.pid for process in self.processes if process.poll() is None}
        for pid in pids | {pid for pid in faults.pids(self.private).values() if _belongs(pid, self.private)}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self.processes:
            process.wait(timeout=30)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _belongs(pid: int, private: Path) -> bool:
    """Guard against a recycled pid: only a process with our private folder in its environment is ours."""
    try:
        return str(private).encode() in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _wait(job: Job, what: str, limit_seconds: float, done: Iterator[bool]) -> None:
    deadline = time.monotonic() + limit_seconds
    for finished in done:
        if finished:
            return
        if time.monotonic() > deadline:
            raise JobFailed(f"{job.scenario.name}: no {what} within {limit_seconds:.0f} s\n{job.log()}")
        time.sleep(POLL_SECONDS)


def _struck(job: Job) -> Iterator[bool]:
    """True once all faults are reached; a job that ended before that has failed."""
    wanted = {fault["rank"] for fault in job.scenario.planned()}
    while True:
        reached = faults.reached(job.private) >= wanted
        if not reached and not job.launched():
            raise JobFailed(f"{job.scenario.name}: it ended before its fault\n{job.log()}")
        yield reached


def _still(job: Job, seconds: float) -> Iterator[bool]:
    """True once no rank has moved to another step for a while."""
    last, since = faults.steps(job.private), time.monotonic()
    while True:
        now = faults.steps(job.private)
        if now != last:
            last, since = now, time.monotonic()
        yield time.monotonic() - since >= seconds or not job.launched()


def _ended(job: Job) -> Iterator[bool]:
    while True:
        yield not job.launched()


@contextmanager
def _running(scenario: Scenario, logs: Path, workplace: Path | None, python: str) -> Iterator[Job]:
    """Give a job its folders and take everything away again; a UNIX socket's path has room for 107 characters."""
    private = Path(tempfile.mkdtemp(prefix="train-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    program = (workplace or private) / "train.py"
    program.parent.mkdir(parents=True, exist_ok=True)
    for name in ("train.py", "faults.py"):
        shutil.copy(HERE / name, program.parent / name)
    job = Job(scenario, private, logs, program, python)
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
    with _running(scenario, folder, workplace, python) as job:
        if FAULTS[scenario.fault].launcher == "torchrun":
            job.start_torchrun()
        else:
            job.start_ranks(evidence)
        _wait(job, "fault", START_SECONDS, _struck(job))
        _inflict(job)
        if FAULTS[scenario.fault].launcher == "torchrun":
            _wait(job, "end", START_SECONDS, _ended(job))
        elif scenario.fault == "healthy":
            collect.collect(job.private, job.alive(), folder / "first", evidence)
            time.sleep(STILL_SECONDS)
            collect.collect(job.private, job.alive(), folder / "second", evidence)
        else:
            _wait(job, "standstill", START_SECONDS + still_seconds, _still(job, still_seconds))
            collect.collect(job.private, job.alive(), folder, evidence)
    collect.write_hosts(folder, scenario.ranks)
    return folder


def _inflict(job: Job) -> None:
    number = FAULTS[job.scenario.fault].signal
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
