"""Real jobs of two trainers and four rollouts, each role counting from 0: their processes, and what the service says of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.support.jobs.live import Cluster

Variant = Literal["variables", "titles"]
SEATS = (("trainer", 0), ("trainer", 1), *(("rollout", rank) for rank in range(4)))
SIZES = {"trainer": 2, "rollout": 4}
NODE = {("trainer", 0): "n0", ("trainer", 1): "n1"} | {("rollout", rank): f"n{rank % 2}" for rank in range(4)}
START_SECONDS, VERDICT_SECONDS, CLOSE_SECONDS = 300.0, 300.0, 300.0
STEADY_STEPS = 25
SECOND_ROUND_SECONDS = 12.0  # in which the second round of evidence may change the verdict


@dataclass
class RoleJob:
    """One running job. ``titles``: its processes have no RANK and no role, but titles as Ray's actors have."""

    name: str
    variant: Variant
    folder: Path
    nodes: Cluster
    processes: dict[tuple[str, int], subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self) -> None:
        """Start the six processes, each placed on its node."""
        for role, rank in SEATS:
            command = [
                sys.executable,
                str(Path(__file__).with_name("role_worker.py")),
                role,
                str(rank),
                str(SIZES[role]),
            ]
            own = {"FAULTHOUND_JOB": self.name, "FAULTHOUND_ATTEMPT": "0", "OMP_NUM_THREADS": "1"}
            title = None
            if self.variant == "variables":
                own |= {"FAULTHOUND_ROLE": role, "RANK": str(rank), "WORLD_SIZE": str(SIZES[role])}
            else:
                title = f"ray::{role.capitalize()}-{rank}"
                own["PYTHONPATH"] = sysconfig.get_path("purelib")  # a program of another name finds no environment
            log = (self.folder / f"{role}{rank}.log").open("wb")
            self.processes[role, rank] = subprocess.Popen(
                [title or sys.executable, *command[1:], str(self.folder)], executable=sys.executable, env=os.environ | own,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        for seat, process in self.processes.items():
            (self.nodes.farm.proc(NODE[seat]) / str(process.pid)).symlink_to(f"/proc/{process.pid}")
        self.until(START_SECONDS, lambda: self.steps() >= STEADY_STEPS, "the job did not train")

    def steps(self) -> int:
        """Return the step that trainer 0 has done."""
        path = self.folder / "trainer0"
        return int(path.read_text() or 0) if path.exists() else 0

    def listed(self) -> list[tuple[str, int]]:
        """Return the processes that the service lists."""
        try:
            found = self.nodes.get(f"/v1/jobs/{self.name}/ranks")["items"]
        except Exception:
            return []
        return sorted((row["role"] or "", row["rank"]) for row in found)

    def incidents(self) -> list[dict[str, Any]]:
        """Return the job's incidents, open and closed."""
        found: list[dict[str, Any]] = self.nodes.get(f"/v1/incidents?job={self.name}")["items"]
        return found

    def stop_and_hear(self, seat: tuple[str, int]) -> dict[str, Any]:
        """Stop one process until a verdict names somebody; return what all verdicts on it named."""
        pid, began, known = self.processes[seat].pid, time.monotonic(), {one["id"] for one in self.incidents()}
        os.kill(pid, signal.SIGSTOP)
        try:
            while time.monotonic() < began + VERDICT_SECONDS and not self._versions(known):
                time.sleep(1.0)
            seconds = time.monotonic() - began
            time.sleep(SECOND_ROUND_SECONDS)
        finally:
            os.kill(pid, signal.SIGCONT)
        step = self.steps()
        self.until(CLOSE_SECONDS, lambda: not self._open() and self.steps() > step + STEADY_STEPS, "it did not go on")
        said = self._versions(known)  # of all that the stop has opened, and of its end
        culprits = [one for version in said for one in version["culprits"]]
        named = sorted({(one.get("role") or "", rank) for one in culprits for rank in one["ranks"]})
        nodes = sorted({one["id"] for one in culprits if one["kind"] == "node"})
        right = named == [seat] and nodes == [NODE[seat]]
        return {
            "stopped": list(seat), "named": [list(one) for one in named], "nodes": nodes, "right": right,
            "versions": len(said), "seconds": round(seconds, 1),
        }  # fmt: skip

    def _open(self) -> list[dict[str, Any]]:
        return [one for one in self.incidents() if one["status"] == "open"]

    def _versions(self, known: Collection[str]) -> list[dict[str, Any]]:
        """Return every version that names somebody, of the incidents that were not known before."""
        new = [one["id"] for one in self.incidents() if one["id"] not in known]
        found = [version for id in new for version in self.nodes.get(f"/v1/incidents/{id}")["versions"]]
        return [version for version in found if version["culprits"]]

    def until(self, seconds: float, so: Callable[[], bool], otherwise: str) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + seconds
        while not so():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: {otherwise} within {seconds:.0f} s\n{self.nodes.log()}")
            time.sleep(0.5)


@contextmanager
def role_job(name: str, variant: Variant, folder: Path, nodes: Cluster) -> Iterator[RoleJob]:
    """Run a job; end it."""
    folder.mkdir(parents=True)
    job = RoleJob(name, variant, folder, nodes)
    try:
        job.start()
        yield job
    finally:
        (folder / "stop").touch()
        for process in job.processes.values():
            process.kill()
            process.wait()


def stops(seed: int, count: int) -> Sequence[tuple[str, int]]:
    """Return whom to stop, each of the six in turn."""
    return [SEATS[(seed + number) % len(SEATS)] for number in range(count)]
