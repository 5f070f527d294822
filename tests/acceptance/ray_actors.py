"""What the agent lists of actors on a real Ray: two trainers and four rollouts, each in a method, read from outside.

Three forms: actors with names (`options(name="rollout-3")`), which no file of a worker holds; actors whose class has a
`__repr__` that ends in the number; actors with FAULTHOUND_ROLE and RANK in their `runtime_env`. Listed is a process with its
role; numbered one with the number that its program gave it too. Skipped where no Python with Ray is given.

    python -m tests.acceptance.ray_actors [--smallest] [--ray-python PYTHON]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.bench.measure import REPOSITORY, provenance

FORMS = {"named": False, "numbered": True, "variables": True}  # form → whether its numbers can be seen from outside
ACTORS = 6
Play = Callable[[str, str, Path], list[dict[str, Any]]]  # Python, form, folder → rows
DRIVER = REPOSITORY / "tests" / "support" / "jobs" / "ray_actors.py"


def ray_of(python: str) -> str | None:
    """Return the version of Ray that a Python has, None where it has none."""
    command = [python, "-c", "import ray; print(ray.__version__)"]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    return found.stdout.split()[-1] if found.returncode == 0 else None


def listed(state: Path) -> list[dict[str, Any]]:
    """Return what one run of the agent's collector of placements lists of Ray's jobs: pid, role, rank."""
    program = Path(sys.executable).with_name("faulthound-agent")
    command = [str(program), "once", "--collectors", "placement", "--state", str(state), "--json"]
    output = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    rows = []
    for record in (json.loads(line) for line in output.splitlines() if line.startswith("{")):
        if record.get("kind") == "placement":
            roles = record.get("roles") or [None] * len(record["pids"])
            columns = zip(record["pids"], roles, record["ranks"], strict=True)
            rows += [{"pid": pid, "role": role, "rank": rank, "job": record["job"]} for pid, role, rank in columns]
    return rows


def form(python: str, name: str, folder: Path) -> list[dict[str, Any]]:
    """Start the actors in one form, look once, and count."""
    # Ray's own telemetry of use stays off; sockets in its folder need a short path.
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [python, str(DRIVER), name, str(folder / name)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as driver:
        assert driver.stdin is not None
        assert driver.stdout is not None
        try:
            truth = {int(pid): tuple(seat) for pid, seat in json.loads(driver.stdout.readline()).items()}
            found = listed(folder / f"{name}-state")
        finally:
            driver.stdin.close()
            driver.wait()
    own = {row["pid"]: row for row in found if row["pid"] in truth}
    job = {row["job"] for row in own.values()}
    with_role = [pid for pid, (kind, _) in truth.items() if pid in own and own[pid]["role"] == kind.lower()]
    row = {
        "form": name,
        "of": ACTORS,
        "listed_with_role": len(with_role),
        "with_own_number": sum(own[pid]["rank"] == truth[pid][1] for pid in with_role),
        "distinct": len({(own[pid]["role"], own[pid]["rank"]) for pid in own}),
        "others_listed": sum(row["job"] in job and row["pid"] not in truth for row in found),
    }
    return [row]


def measure(name: str, forms: Sequence[str], play: Play, key: str, is_good: Callable[[dict[str, Any]], bool]) -> int:
    """Play each form on the Ray of a Python that is given, keep the rows under ``key``; return 0 only if all are good."""
    parser = argparse.ArgumentParser(description="On a real Ray.")
    parser.add_argument("--smallest", action="store_true", help="one form, into out/")
    parser.add_argument("--ray-python", default=sys.executable, help="a Python that has Ray")
    options = parser.parse_args()
    version = ray_of(options.ray_python)
    if version is None:
        print(f"skipped: {options.ray_python} has no Ray; give --ray-python a Python that has it")
        return 0
    rows: list[dict[str, Any]] = []
    for form in forms[:1] if options.smallest else forms:
        with tempfile.TemporaryDirectory(prefix="ray-") as folder:
            found = play(options.ray_python, form, Path(folder))
        print(json.dumps(found), flush=True)
        rows += found
    document = {**provenance(f"python -m tests.acceptance.{name}"), "ray": version, key: rows}
    kept = REPOSITORY / ("out" if options.smallest else "docs/measured") / f"{name}.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(map(is_good, rows)) else 1


def is_listed(one: dict[str, Any]) -> bool:
    """Return whether all actors of a form are listed apart with their roles, and with their numbers where these show."""
    apart = one["listed_with_role"] == one["distinct"] == one["of"] and not one["others_listed"]
    return apart and (one["with_own_number"] == one["of"] or not FORMS[one["form"]])


if __name__ == "__main__":
    sys.exit(measure("ray_actors", tuple(FORMS), form, "forms", is_listed))
