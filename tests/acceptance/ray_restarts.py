"""Restarts of roles on a real Ray through Faulthound: actors in a method, in two forms.

*ray*: actors that Ray may start again are killed and come back under their names: a rollout that hangs in a method, and both
trainers. *hook*: the job's own actor starts them; also a reward that Ray may not start again. A restart counts where the
service has verified it: registered under a higher epoch, and no other instance was touched. Skipped where no Python with Ray
is given.

    python -m tests.acceptance.ray_restarts [--smallest] [--ray-python PYTHON]
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.ray_actors import measure
from tests.bench.measure import REPOSITORY
from tests.support.served import serving

JOB = "rl-ray"
DRIVER = REPOSITORY / "tests" / "support" / "jobs" / "ray_roles.py"
CASES = {"ray": (("rollout", "1"), ("trainer", "0")), "hook": (("reward", "0"), ("rollout", "0"))}
WAITED_SECONDS = 180.0


def form(python: str, name: str, folder: Path) -> list[dict[str, Any]]:
    """Start actors, service and adapter; restart each case's role; return what came of each."""
    with serving(folder / "service") as (url, _service), httpx.Client(base_url=url, timeout=60) as client:
        environment = {
            **os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "FAULTHOUND_SERVICE": url, "FAULTHOUND_JOB": JOB,
        }  # fmt: skip
        command = [python, str(DRIVER), str(REPOSITORY / "collectors"), name]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, env=environment, **pipes) as driver:
            assert driver.stdin is not None
            assert driver.stdout is not None
            adapter = None
            try:
                address = json.loads(driver.stdout.readline())["address"]
                program = str(Path(sys.executable).with_name("faulthound"))
                adapter = subprocess.Popen(
                    [
                        program, "adapter", "ray", "--service", url, "--job", JOB, "--namespace", "rl", "--address", address,
                        "--ray-python", python,
                    ],
                    cwd=REPOSITORY, env=environment,
                )  # fmt: skip
                return [restarted(client, role, instance) | {"form": name} for role, instance in CASES[name]]
            finally:
                if adapter is not None:
                    adapter.terminate()
                    adapter.wait()
                driver.stdin.close()
                driver.wait()


def restarted(client: httpx.Client, role: str, instance: str) -> dict[str, Any]:
    """Ask for a restart and approve it; return its outcome, how long it took, and which instances were replaced."""
    before = directory(client)
    asked = client.post(
        f"/v1/jobs/{JOB}/roles/restart", json={"role": role, "instance": instance, "reason": "it hangs"}
    ).json()
    client.post(f"/v1/remediations/{asked['id']}/approve", headers={"If-Match": "*"}).raise_for_status()
    began_at, one = time.monotonic(), asked
    while time.monotonic() < began_at + WAITED_SECONDS and one["status"] not in ("done", "failed"):
        time.sleep(0.2)
        one = client.get(f"/v1/remediations/{asked['id']}").json()
    after = directory(client)
    wanted = sorted(f"{role} {name}" for name in asked["role_restart"]["epochs"])
    return {
        "role": role, "status": one["status"], "outcome": one["outcome"], "did": one["did"], "because": one["because"],
        "seconds": round(time.monotonic() - began_at, 1), "wanted": wanted,
        "replaced": sorted(name for name in after if after[name] > before.get(name, 0)),
    }  # fmt: skip


def directory(client: httpx.Client) -> dict[str, int]:
    """Return the epochs of the job's instances."""
    items = client.get(f"/v1/jobs/{JOB}/roles").json()["items"]
    return {f"{one['role']} {one['instance']}": one["epoch"] for one in items}


def is_cured(one: dict[str, Any]) -> bool:
    """Return whether a restart was verified, and replaced what was wanted and nothing else."""
    return bool(one["outcome"] == "cured" and one["replaced"] == one["wanted"])


if __name__ == "__main__":
    sys.exit(measure("ray_restarts", tuple(CASES), form, "restarts", is_cured))
