"""The example's job with its processes on pretended nodes, without the launcher that would restart them."""

from __future__ import annotations

import argparse
import json
import os
import signal
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

    def __init__(self, name: str, folder: Path, site: Site, tool_seconds: float, secret: Path | None = None) -> None:
        """Start it. ``secret``: of the signed webhook by which Faulthound restarts its roles; else nothing does."""
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
        )
        self.job = launch.planned(options)
        self.port = 0
        if secret is not None:
            receiver: Any = import_module("receiver")
            own = receiver.Receiver(site.url, "", name, secret, self.job.restart_fenced, self.job.restart_all)
            self.job.receiver, self.port = own, own.listen(0)
        self.job.start(self.job.members)

    def settle(self) -> None:
        """Let processes, and what descends from them, appear on their nodes, and the gone disappear. Restarts are done."""
        if self.job.receiver is not None:
            self.job.receiver.turn()
        for member in self.job.members:
            with suppress(psutil.Error):
                process = psutil.Process(member.process.pid)
                for one in (process, *process.children(recursive=True)):
                    link = self._site.farm.proc(node_of(member.role, member.instance)) / str(one.pid)
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
        member = next(one for one in self.job.members if (one.role, one.instance) == (fault.role, fault.instance))
        os.killpg(member.process.pid, fault.how)

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
        for member in self.job.members:
            if member.role in ("trainer", "rollout"):
                with suppress(psutil.Error):
                    times = psutil.Process(member.process.pid).cpu_times()
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
