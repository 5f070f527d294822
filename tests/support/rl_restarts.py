"""The example of reinforcement learning, which restarts nothing by itself, beside a service and the webhook's adapter."""

from __future__ import annotations

import base64
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.served import REPOSITORY, serving

JOB = "rl-sums"
WAITED_SECONDS = 90.0


class RlJob:
    """A running job, and an operator who asks for restarts and approves them."""

    def __init__(self, client: httpx.Client, folder: Path, launcher: subprocess.Popen[str]) -> None:
        self.folder, self.launcher, self._client = folder, launcher, client
        self.asked: list[str] = []

    def wait(self, holds: Callable[[], bool], seconds: float = WAITED_SECONDS) -> None:
        """Wait until something holds, as long as the job runs."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert self.launcher.poll() is None, "the job has ended before"
            assert time.monotonic() < deadline, (self.folder / "launcher.log").read_text()[-2_000:]
            time.sleep(0.1)

    def restart(self, role: str, instance: str) -> str:
        """Ask for the restart of an instance, and approve it; return its id."""
        asked = {"role": role, "instance": instance, "reason": "its process has ended"}
        answer = self._client.post(f"/v1/jobs/{JOB}/roles/restart", json=asked)
        assert answer.status_code == 200, answer.text
        id = str(answer.json()["id"])
        approved = self._client.post(f"/v1/remediations/{id}/approve", headers={"If-Match": "*"})
        assert approved.status_code == 200, approved.text
        self.asked.append(id)
        return id

    def remediation(self, id: str) -> dict[str, Any]:
        """Return a remediation as the service shows it."""
        found: dict[str, Any] = self._client.get(f"/v1/remediations/{id}").json()
        return found

    def directory(self) -> dict[str, dict[str, Any]]:
        """Return the job's instances by name."""
        found = self._client.get(f"/v1/jobs/{JOB}/roles").json()
        return {f"{one['role']} {one['instance']}": one for one in found.get("items", ())}


@contextmanager
def rl_job(folder: Path, steps: int, *more: str, restarts: str = "faulthound") -> Iterator[RlJob]:
    """Run service, adapter and job; end them."""
    secret = folder / "hook.secret"
    folder.mkdir(parents=True, exist_ok=True)
    secret.write_text(f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}\n")
    job = folder / "rl"
    job.mkdir()
    with serving(folder / "service") as (url, _service), (job / "launcher.log").open("w") as log:
        command = [
            sys.executable, "-u", "examples/rl_job/launch.py", "--folder", str(job), "--steps", str(steps), "--job", JOB,
            "--restarts", restarts, "--hook-secret", str(secret), *more,
        ]  # fmt: skip
        own = os.environ | {"FAULTHOUND_SERVICE": url}
        launcher = subprocess.Popen(command, cwd=REPOSITORY, env=own, stdout=log, stderr=log, text=True)
        adapter = None
        try:
            if restarts == "faulthound":
                port = _port(job / "launcher.log", launcher)
                program = str(Path(sys.executable).with_name("faulthound"))
                command = [program, "adapter", "webhook", "--service", url, "--to", f"http://127.0.0.1:{port}/"]
                command += ["--secret-file", str(secret), "--state", str(folder / "hook.json")]
                adapter = subprocess.Popen(command, stdout=log, stderr=log)
            with httpx.Client(base_url=url, timeout=60) as client:
                yield RlJob(client, job, launcher)
        finally:
            for process in (launcher, adapter):
                if process is not None:
                    process.terminate()
                    process.wait(timeout=60)


def _port(log: Path, launcher: subprocess.Popen[str]) -> int:
    while "receiver on port " not in (text := log.read_text()):
        assert launcher.poll() is None, text
        time.sleep(0.05)
    return int(text.partition("receiver on port ")[2].split()[0])
