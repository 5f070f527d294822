"""One job under torchrun: its launchers, where its ranks are, and what can be done to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.jobs.farm import descends, parents_of_processes
from tests.support.jobs.job import NICE
from tests.support.soak.schedule import Plan
from tests.support.soak.site import Site, free_port

PROGRAM, SCRIPT = Path(__file__).with_name("plain_job.py"), "train.py"
STEPS_OF_NOTICE = 3


class RunningJob:
    """A plan that runs. Nothing in its environment or program is there for the sake of who watches it."""

    def __init__(self, plan: Plan, site: Site, folder: Path) -> None:
        self.plan, self.site, self.state = plan, site, folder
        self.launchers: dict[str, subprocess.Popen[bytes]] = {}  # by node
        self.readers: list[subprocess.Popen[bytes]] = []
        self.orders = 0

    def start(self) -> None:
        """Start a launcher a node."""
        self.state.mkdir(parents=True)
        shutil.copy(PROGRAM, self.state / SCRIPT)
        port = free_port()
        for node in self.plan.nodes:
            self.launchers[node] = self._launch(port, node)

    def _launch(self, port: int, node: str) -> subprocess.Popen[bytes]:
        plan, pipe = self.plan, self.plan.output == "pipe"
        rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", plan.name]
        command = [
            *NICE, sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(plan.nodes)), *rendezvous,
            "--nproc-per-node", str(plan.ranks_a_node), "--max-restarts", str(plan.story.restarts), SCRIPT,
            *self._arguments(),
        ]  # fmt: skip
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        with (self.state / f"{node}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.state, env=kept | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if pipe else log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            if pipe:
                self.readers.append(subprocess.Popen(["cat"], stdin=process.stdout, stdout=log))
                process.stdout.close()  # type: ignore[union-attr]
        return process

    def _arguments(self) -> list[str]:
        plan, story = self.plan, self.plan.story
        found = ["--state", str(self.state), "--step-seconds", str(plan.step_seconds)]
        if story.save:
            every, seconds, by = story.save
            found += [
                "--save-every",
                str(round(every / plan.step_seconds)),
                "--save-seconds",
                str(seconds),
                "--save-by",
                by,
            ]
        if story.evaluate:
            every, seconds = story.evaluate
            found += ["--evaluate-every", str(round(every / plan.step_seconds)), "--evaluate-seconds", str(seconds)]
        return found + ["--quiet"] * (plan.output == "nothing")

    def pids(self) -> dict[int, int]:
        """Return rank → process id, as the ranks noted them."""
        found = {}
        for path in self.state.glob("pid_*"):
            if path.suffix != ".part":
                found[int(path.name.removeprefix("pid_"))] = int(path.read_text())
        return found

    def node_of(self, rank: int) -> str:
        """Return the node whose launcher started a rank."""
        pid = self.pids().get(rank)
        with suppress(psutil.Error):
            parent = psutil.Process(pid).ppid()
            return next((node for node, one in self.launchers.items() if one.pid == parent), "")
        return ""

    def step(self) -> int:
        """Return the newest step of any rank; 0 where not every rank has come to the first."""
        steps = [int(path.read_text()) for path in self.state.glob("step_*") if path.suffix != ".part"]
        return max(steps, default=0) if len(steps) == self.plan.ranks else 0

    def alive(self) -> bool:
        """Return whether a launcher runs."""
        return any(process.poll() is None for process in self.launchers.values())

    def processes(self) -> list[psutil.Process]:
        """Return the launchers and all that descends from them, and ranks that have lost theirs."""
        found: dict[int, psutil.Process] = {}
        for pid in (*(one.pid for one in self.launchers.values()), *self.pids().values()):
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.cwd() == str(self.state):  # not one that has its number now
                    found |= {one.pid: one for one in (process, *process.children(recursive=True))}
        return list(found.values())

    def order(self, kind: str, ranks: Sequence[int], **more: Any) -> int:
        """Order something of ranks, a few steps from now; return the order's number."""
        unfinished, number = self.state / "order.part", self.orders
        unfinished.write_text(
            json.dumps({"kind": kind, "ranks": list(ranks), "step": self.step() + STEPS_OF_NOTICE, **more})
        )
        unfinished.replace(self.state / f"order_{number}")
        self.orders += 1
        return number

    def reached_at(self, number: int) -> float | None:
        """Return when the first rank came to an order."""
        return min((path.stat().st_mtime for path in self.state.glob(f"reached_{number}_*")), default=None)

    def signal_ranks(self, ranks: Sequence[int], number: int) -> None:
        """Send ranks a signal."""
        pids = self.pids()
        for rank in ranks:
            with suppress(ProcessLookupError, KeyError):
                os.kill(pids[rank], number)

    def signal_launchers(self, number: int, *, group: bool = False) -> None:
        """Send the launchers a signal, or their process groups, as a terminal does."""
        for process in self.launchers.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number) if group else process.send_signal(number)

    def signal_all(self, number: int) -> None:
        """Send every process a signal."""
        for process in self.processes():
            with suppress(psutil.Error):
                process.send_signal(number)

    def type_in(self, rank: int, line: bytes) -> None:
        """Type a line at the terminal that a rank's debugger reads."""
        launcher = self.launchers.get(self.node_of(rank))
        if launcher is not None and launcher.stdin is not None:
            with suppress(BrokenPipeError):
                launcher.stdin.write(line)
                launcher.stdin.flush()

    def close(self) -> None:
        """Leave no process behind."""
        self.signal_all(signal.SIGKILL)
        for process in (*self.launchers.values(), *self.readers):
            if process.stdin is not None:
                with suppress(BrokenPipeError):
                    process.stdin.close()
            process.wait(timeout=30)

    def pauses(self, ended_at: float) -> list[dict[str, Any]]:
        """Return the pauses that the program made by itself; one that it did not finish lasted to its end."""
        path = self.state / "pauses"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        known = {row["at"]: row for row in rows}  # the second row of a pause has its end
        return [row | {"until": row["until"] or ended_at} for row in known.values()]


def settle(site: Site, jobs: Iterable[RunningJob]) -> None:
    """Let the processes of each launcher appear on its node; those that are gone disappear."""
    parents = parents_of_processes()
    for job in jobs:
        for node, launcher in job.launchers.items():
            for pid in parents:
                link = site.farm.proc(node) / str(pid)
                if (pid == launcher.pid or descends(pid, launcher.pid, parents)) and not link.is_symlink():
                    link.symlink_to(f"/proc/{pid}")
    for node in site.farm.nodes:
        for link in site.farm.proc(node).iterdir():
            if link.name.isdigit() and not Path(f"/proc/{link.name}").exists():
                link.unlink(missing_ok=True)
