"""A fault of a role, and what Faulthound makes of it alone: verdict, proposal, policy, webhook, receiver, directory, outcome.

Nobody asks for anything in between. Seconds count from the fault, and are seen by a look a second.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from analyzers.remediation.policy import approver
from analyzers.remediation.types import Remediation
from tests.support.remediation_rows import write_shadow_cases
from tests.support.rl.rl_faults import RlFault
from tests.support.rl.running_rl import RayRl, RunningRl
from tests.support.soak.site import REPOSITORY, Site

RULE = "roles"
POLICY = f"""\
[[rules]]
name = "{RULE}"
kind = "restart_role"
mode = "automatic"
least_probability = 0.5
least_precision = 0.8
"""
GOOD_STEPS = 5  # that the job does after its role is back
LOOK_SECONDS = 1.0
RECOVERY_SECONDS = 900.0
GROUPED = ("trainer",)

Row = dict[str, Any]


def allowed(site_folder: Path) -> dict[str, str]:
    """Write a policy that restarts roles by itself, and the cases of shadow mode that open it; return its variable."""
    policy = site_folder / "policy.toml"
    site_folder.mkdir(parents=True, exist_ok=True)
    policy.write_text(POLICY)
    example = Remediation(
        id="", incident="", verdict_version=1, job="before", attempt=0, kind="restart_role", nodes=(), role="rollout",
        fault_class="role_lost", symptom="hang", probability=0.95, why="", proposed_at=0.0, mode="shadow", rule=RULE,
    )  # fmt: skip
    write_shadow_cases(site_folder / "data", example)
    return {"FAULTHOUND_POLICY": str(policy)}


Started = Callable[[str, Path], AbstractContextManager[RunningRl]]


def recovering(form: str, site: Site, tool_seconds: float, ray_python: str | None) -> Started:
    """Return what runs the job, of a name and in a folder, with the adapter that restarts its roles."""

    @contextmanager
    def processes(name: str, folder: Path) -> Iterator[RunningRl]:
        secret = folder / "hook.secret"
        secret.write_text(f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}\n")
        with closing(RunningRl(name, folder, site, tool_seconds, secret)) as job:
            options = ["webhook", "--to", f"http://127.0.0.1:{job.port}/", "--secret-file", str(secret)]
            with _adapter(folder, site, [*options, "--state", str(folder / "hook.json")], dict(os.environ)):
                yield job

    @contextmanager
    def actors(name: str, folder: Path) -> Iterator[RunningRl]:
        assert ray_python is not None
        with closing(RayRl(name, folder, site, tool_seconds, ray_python)) as job:
            options = ["ray", "--job", name, "--namespace", "rl", "--address", job.address, "--ray-python", ray_python]
            with _adapter(folder, site, options, job.environment):
                yield job

    return {"processes": processes, "ray": actors}[form]


@contextmanager
def _adapter(folder: Path, site: Site, options: list[str], environment: dict[str, str]) -> Iterator[None]:
    program = str(Path(sys.executable).with_name("faulthound"))
    command = [program, "adapter", *options, "--service", site.url]
    with (folder / "adapter.log").open("w") as log:
        adapter = subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        adapter.terminate()
        adapter.wait(60)


class Recovery:
    """What is seen of one fault and its recovery."""

    def __init__(self, job: RunningRl, fault: RlFault, client: httpx.Client) -> None:
        self._job, self._fault, self._client = job, fault, client
        self._before = self._epochs()
        self._first: dict[tuple[str, int], int] = {}  # instance and epoch → the first total that it stated
        self._steps = job.steps
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()
        job.begin(fault)

    def follow(self) -> Row:
        """Look until the job goes on with the role that is back, or for too long; return a row."""
        back_at: int | None = None
        while time.monotonic() < self._began + RECOVERY_SECONDS:
            self._job.settle()
            one = self._remediation()
            self._note(one)
            if one is not None and one["completed_at"]:
                self._job.end(self._fault)
            if one is not None and one["status"] in ("done", "failed"):
                back_at = self._job.steps if back_at is None else back_at
                if self._job.steps >= back_at + GOOD_STEPS:
                    break
            time.sleep(LOOK_SECONDS)
        return self._row()

    def _note(self, one: Row | None) -> None:
        """Note what is so for the first time."""
        incidents = self._client.get("/v1/incidents", params={"job": self._job.name}).json()["items"]
        self._mark("opened", lambda: bool(incidents))
        self._mark("verdict", lambda: any((row["verdict"] or {}).get("culprits") for row in incidents))
        items = self._items()
        self._mark("registered", lambda: self._wanted() <= self._replaced(items))
        self._mark("worked", lambda: self._wanted() <= self._at_work(items))
        if one is not None:
            for name, field in (("proposed", "proposed_at"), ("approved", "approved_at"), ("begun", "began_at")):
                self._mark(name, lambda field=field: bool(one[field]))  # type: ignore[misc]
            self._mark("completed", lambda: bool(one["completed_at"]))
            self._mark("cured", lambda: one["outcome"] == "cured")

    def _mark(self, name: str, holds: Callable[[], bool]) -> None:
        if name not in self.seconds and holds():
            self.seconds[name] = round(time.monotonic() - self._began, 1)

    def _remediation(self) -> Row | None:
        items = self._client.get("/v1/remediations", params={"job": self._job.name}).json()["items"]
        return max(items, key=lambda one: one["proposed_at"], default=None)

    def _items(self) -> list[Row]:
        found: list[Row] = self._client.get(f"/v1/jobs/{self._job.name}/roles").json()["items"]
        return found

    def _epochs(self) -> dict[str, int]:
        return {f"{one['role']} {one['instance']}": one["epoch"] for one in self._items()}

    def _wanted(self) -> set[str]:
        role, instance = self._fault.role, self._fault.instance
        return (
            {name for name in self._before if name.startswith(f"{role} ")}
            if role in GROUPED
            else {f"{role} {instance}"}
        )

    def _replaced(self, items: list[Row]) -> set[str]:
        found = {f"{one['role']} {one['instance']}": one["epoch"] for one in items if one["state"] == "serving"}
        return {name for name, epoch in found.items() if epoch > self._before.get(name, 0)}

    def _at_work(self, items: list[Row]) -> set[str]:
        """Return the new instances that have finished something, seen from outside.

        Totals begin at zero; a trainer's begin with its checkpoint's step, and so have to grow between two looks.
        """
        found = set()
        for one in items:
            name, does = f"{one['role']} {one['instance']}", one["activity"]
            total = does["tokens_total"] if does["tokens_total"] is not None else does["steps_total"]
            if total is None or one["epoch"] <= self._before.get(name, 0):
                continue
            least = self._first.setdefault((name, one["epoch"]), total) if one["role"] in GROUPED else 0
            if total > least:
                found.add(name)
        return found

    def _row(self) -> Row:
        one, items = self._remediation() or {}, self._items()
        wanted, replaced = sorted(self._wanted()), sorted(self._replaced(items))
        lost = _lost(self._job.folder)
        cured, worked = self.seconds.get("cured"), self.seconds.get("worked")
        right = {
            "role": one.get("role") == self._fault.role, "approved": one.get("approved_by") == approver(RULE),
            "outcome": one.get("outcome") == "cured", "only_it": replaced == wanted,
            "work_before_cured": None not in (cured, worked) and worked <= cured + LOOK_SECONDS,  # type: ignore[operator]
            "goes_on": self._job.steps >= self._steps + GOOD_STEPS, "journal": not lost,
        }  # fmt: skip
        return {
            "fault": self._fault.name, "kind": one.get("kind"), "why": one.get("why"), "because": one.get("because"),
            "status": one.get("status"), "seconds": self.seconds, "wanted": wanted, "replaced": replaced,
            "steps_before": self._steps, "steps_after": self._job.steps, "lost": lost,
            "wrong": sorted(name for name, holds in right.items() if not holds),
        }  # fmt: skip


def recovered(
    fault: RlFault, number: int, site: Site, folder: Path, ready: Callable[..., None], started: Started
) -> Row:
    """Play one fault of a job that nothing but Faulthound restarts; return what came of it."""
    name = f"rl-back-{fault.name.replace(' ', '-')}-{number}".lower()
    (folder / name).mkdir()
    with started(name, folder / name) as job, httpx.Client(base_url=site.url, timeout=60) as client:
        ready(job, site)
        launcher = "ray" if isinstance(job, RayRl) else "processes"
        return Recovery(job, fault, client).follow() | {"run": number, "job": name, "launcher": launcher}


def _lost(folder: Path) -> list[str]:
    """Say what the journal shows of steps or trajectories that were lost or done twice, or of weights that differ."""
    entries = [
        json.loads(line)
        for line in (folder / "journal.jsonl").read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]
    commits = [one["commit"] for one in entries if "commit" in one]
    questions = Counter(one["question"] for one in entries if "question" in one)
    found = [] if commits == list(range(len(commits))) else [f"commits {commits[-9:]}"]
    found += [f"question {name} {count} times" for name, count in questions.items() if count > 1]
    return found + [
        f"weights of step {one['commit']}" for one in entries if len(set(one.get("fingerprints", {0: 0}).values())) > 1
    ]
