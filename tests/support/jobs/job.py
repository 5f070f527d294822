"""One running job: its processes, its private folder and its logs, and how to be rid of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

from tests.support.jobs import faults
from tests.support.jobs.collect import Evidence
from tests.support.jobs.scenarios import Scenario

REPOSITORY = Path(__file__).resolve().parents[3]

# A node has processors to spare beside its ranks; here one machine is all nodes, and two ranks that spin would take both
# processors from the agents and the service.
NICE = ["nice", "-n", "10"]


class Job:
    """One running job: its processes, its private folder (sockets, progress) with its logs."""

    def __init__(self, scenario: Scenario, private: Path, program: Path, python: str) -> None:
        self.scenario, self.private, self.logs = scenario, private, private / "logs"
        self.logs.mkdir()
        self.program, self.python = program, python
        self.labels: dict[str, str] = {}  # what a launcher would put into every rank's environment
        self.processes: list[subprocess.Popen[bytes]] = []

    def bring_probe(self) -> None:
        """Copy the probe beside the training program, as its users do."""
        shutil.copy(REPOSITORY / "collectors" / "faulthound_probe.py", self.program.parent)
        self.labels["TRAIN_PROBE"] = "1"

    def environment(self, evidence: Evidence) -> dict[str, str]:
        """Return what the ranks are started with."""
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        added = {
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCH_FR_BUFFER_SIZE": "100",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TRAIN_PRIVATE": str(self.private),
            "TRAIN_FAULT": self.scenario.fault,
            "TRAIN_SEED": str(self.scenario.seed),
            "TRAIN_FAULTS": json.dumps(self.scenario.planned()),
        }
        if evidence.dumps == "pickle":
            added["TRAIN_DUMP_PIPE"] = str(self.private / "nccl_trace_rank_")
        if self.scenario.seed % 2:
            added["TRAIN_RECORD"] = "1"
        return kept | added | self.labels

    def start_ranks(self, evidence: Evidence) -> None:
        """Start one process a rank, each with its own log."""
        for rank in range(self.scenario.ranks):
            own = ["--rank", str(rank), "--world-size", str(self.scenario.ranks)]
            own += ["--rendezvous", f"file://{self.private}/rendezvous"]
            numbered = {"RANK": str(rank), "WORLD_SIZE": str(self.scenario.ranks)}
            numbered["FAULTHOUND_WORKER_SERVER"] = str(self.private / f"{rank}.sock")
            self._start([self.python, self.program.name, *self._job(), *own], f"rank{rank}.log", evidence, numbered)

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

    def _start(self, command: list[str], log: str, evidence: Evidence, numbered: dict[str, str] | None = None) -> None:
        with (self.logs / log).open("wb") as output:
            self.processes.append(
                subprocess.Popen(
                    NICE + command,
                    cwd=self.program.parent,
                    env=self.environment(evidence) | (numbered or {}),
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

    def copy_logs(self, folder: Path) -> None:
        """Copy the logs as they are now, with their times."""
        for path in self.logs.glob("*.log"):
            shutil.copy2(path, folder / path.name)

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
