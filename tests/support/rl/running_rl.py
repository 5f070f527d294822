"""The example's job with its processes on pretended nodes, without the launcher that would restart them."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import subprocess
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil

from tests.support.rl.rl_faults import RlFault
from tests.support.soak.site import REPOSITORY, Site

NODES = ("n0", "n1", "n2", "n3")
PLACES = {"controller-0": "n0", "trainer-0": "n0", "trainer-1": "n1", "tool-0": "n1", "reward-0": "n3"}
EXAMPLE = REPOSITORY / "examples" / "rl_job"


def node_of(role: str, instance: str) -> str:
    """Return on which node an instance is."""
    return PLACES.get(f"{role}-{instance}") or NODES[2 + int(instance) % 2]


class RunningRl:
    """One job of two trainers, four rollouts, a reward, a tool and a controller."""

    def __init__(
        self, name: str, folder: Path, site: Site, tool_seconds: float, secret: Path | None = None, *,
        lease_seconds: float = 20.0,
    ) -> None:  # fmt: skip
        """Start it. ``secret``: of the signed webhook by which Faulthound restarts its roles; else nothing does.

        ``lease_seconds``: after which another rollout gets a question: beyond it no step waits for a long call.
        """
        self.name, self.folder, self._site = name, folder, site
        self.orders = folder / "orders"
        self.orders.mkdir(parents=True)
        os.environ |= {"FAULTHOUND_SERVICE": site.url, "RL_JOB_FAULTS": str(self.orders), "OMP_NUM_THREADS": "1"}
        sys.path.insert(0, str(EXAMPLE))
        launch: Any = import_module("launch")
        options = argparse.Namespace(
            folder=folder,
            job=name,
            steps=1_000_000,
            trainers=2,
            rollouts=4,
            off_policy=False,
            tool_seconds=tool_seconds,
            lease_seconds=lease_seconds,
        )
        self.job = launch.planned(options)
        self.port = 0
        if secret is not None:
            receiver: Any = import_module("receiver")
            own = receiver.Receiver(site.url, "", name, secret, self.job.restart_fenced, self.job.restart_all)
            self.job.receiver, self.port = own, own.listen(0)
        self.job.start(self.job.members)
        self.members = len(self.job.members)

    def settle(self) -> None:
        """Let processes, and what descends from them, appear on their nodes, and the gone disappear. Restarts are done."""
        if self.job.receiver is not None:
            self.job.receiver.turn()
        self._settle()

    def _settle(self) -> None:
        for (role, instance), pid in self.pids().items():
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                for one in (process, *process.children(recursive=True)):
                    link = self._site.farm.proc(node_of(role, instance)) / str(one.pid)
                    if not link.is_symlink():
                        link.symlink_to(f"/proc/{one.pid}")
        for node in NODES:
            for link in self._site.farm.proc(node).iterdir():
                if link.name.isdigit() and not Path(f"/proc/{link.name}").exists():
                    link.unlink(missing_ok=True)

    def begin(self, fault: RlFault) -> None:
        """Let a fault happen."""
        if isinstance(fault.how, str):
            (self.orders / f"{fault.role}-{fault.instance}.{fault.how}").touch()
            return
        os.killpg(self.pids()[fault.role, fault.instance], fault.how)

    def pids(self) -> dict[tuple[str, str], int]:
        """Return the process of each instance."""
        return {(one.role, one.instance): one.process.pid for one in self.job.members if one.process is not None}

    def end(self, fault: RlFault) -> None:
        """Let it be over, as far as that is possible."""
        (self.orders / f"{fault.role}-{fault.instance}.{fault.how}").unlink(missing_ok=True)

    @property
    def steps(self) -> int:
        """Return how many steps are committed."""
        journal = self.folder / "journal.jsonl"
        return journal.read_bytes().count(b'{"commit"') if journal.exists() else 0

    def activity(self) -> tuple[float, int]:
        """Return what has moved so far: CPU time of trainers and rollouts in tenths of a second, bytes of the journal."""
        seconds = 0.0
        for (role, _), pid in self.pids().items():
            if role in ("trainer", "rollout"):
                with suppress(psutil.Error):
                    times = psutil.Process(pid).cpu_times()
                    seconds += times.user + times.system
        journal = self.folder / "journal.jsonl"
        return round(seconds, 1), journal.stat().st_size if journal.exists() else 0

    def close(self) -> None:
        """Leave no process behind."""
        for member in self.job.members:
            with suppress(ProcessLookupError):
                os.killpg(member.process.pid, signal.SIGKILL)
            member.process.wait(30)
        sys.path.remove(str(EXAMPLE))
        for name in ("launch", "receiver", "faulthound_roles"):
            sys.modules.pop(name, None)
        sys.path[:] = [one for one in sys.path if one != str(self.folder)]


def logs(folder: Path) -> str:
    """Return the end of each process's log, for a run that did not begin."""
    return json.dumps({path.name: path.read_text()[-500:] for path in sorted(folder.glob("*.log"))}, indent=1)


class RayRl(RunningRl):
    """The same job as actors of a Ray of its own. ``python``: one that has Ray; Ray restarts a process that fails."""

    def __init__(self, name: str, folder: Path, site: Site, tool_seconds: float, python: str) -> None:
        self.name, self.folder, self._site = name, folder, site
        self.orders = folder / "orders"
        self.orders.mkdir(parents=True)
        own = {
            "FAULTHOUND_SERVICE": site.url, "RL_JOB_FAULTS": str(self.orders), "OMP_NUM_THREADS": "1",
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
        }  # fmt: skip
        self.environment = os.environ | own
        command = [python, str(EXAMPLE / "launch_ray.py"), "--folder", str(folder), "--python", sys.executable]
        command += ["--job", name, "--steps", "1000000", "--tool-seconds", str(tool_seconds)]
        with (folder / "driver.log").open("w") as log:
            self._driver = subprocess.Popen(
                command, cwd=REPOSITORY, env=self.environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        assert self._driver.stdout is not None
        self.address = str(json.loads(self._driver.stdout.readline())["address"])
        self.members = 9

    def pids(self) -> dict[tuple[str, str], int]:
        """Return the process of each instance, by its environment."""
        found = {}
        for process in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if len(command := process.cmdline()) > 2 and str(EXAMPLE) in command[2]:
                    variables = process.environ()
                    if variables.get("FAULTHOUND_JOB") == self.name:
                        found[variables["FAULTHOUND_ROLE"], variables["RANK"]] = process.pid
        return found

    def settle(self) -> None:
        """Let processes appear on their nodes."""
        self._settle()

    def close(self) -> None:
        """End Ray, and with it every process."""
        self._driver.terminate()
        self._driver.wait(60)
