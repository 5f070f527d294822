"""Real faults of roles in the example of reinforcement learning: which role and machine is named, after how long, and what else.

A service, and an agent a node, at their usual settings; a new job a run; nothing restarts a process, so that the fault stays.
With ``--ray-python`` the job's processes are actors of Ray, and the faults those that do not end one.
Right is: a verdict names the faulty instance's role, and no node but its own; nothing is proposed for another. The control is
silence of the whole job: the first second after which nothing of it moves any more. Healthy runs have calls of the tool that
take minutes and a weight sync a step: no verdict may name a node, and nothing may be proposed; each incident is kept with its
symptoms. What is finished is kept, and a second call goes on; a call for healthy jobs adds theirs.

With ``--recovered`` Faulthound alone restarts the role, by a policy, the signed webhook and the job's receiver. Right is then:
the verdict's role was restarted and nothing else, *cured* was said, and not before work of the new instance was seen; the job
goes on and its journal has lost and repeated nothing (docs/measured/role_recoveries.json).

    python -m tests.acceptance.role_faults [--smallest] [--runs 3] [--only TEXT] [--again] [--recovered] [--ray-python PYTHON]
        [--healthy-minutes 20] [--healthy-jobs 1] [--healthy-tool-seconds 0.3 2 2]
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import httpx

from tests.bench.measure import REPOSITORY, provenance
from tests.support.rl.recovering import allowed, recovered, recovering
from tests.support.rl.rl_faults import FAULTS, HEALTHY, RlFault
from tests.support.rl.running_rl import NODES, RayRl, RunningRl, logs, node_of
from tests.support.soak.site import Site, running

RUNS = 3
TRAINED_STEPS, START_SECONDS, WARM_SECONDS = 8, 600.0, 90.0
WATCH_SECONDS, SETTLED_SECONDS = 420.0, 30.0  # until a verdict names anybody; and after it, for what follows
TAIL_SECONDS, BETWEEN_SECONDS = (60.0, 300.0), (30.0, 120.0)  # a call of the tool; and between two
LEASES = (
    20.0,
    3_600.0,
)  # of healthy jobs in turn: another rollout answers meanwhile, or the whole job waits for the call
TOOL_SECONDS = 0.3


def wait_until_trained(job: RunningRl, site: Site, *others: RunningRl) -> None:
    """Wait until each has done some steps, the agents know its processes, and its rhythm is known."""
    left, began = [job, *others], time.monotonic()
    known_at = began
    while left or time.monotonic() < known_at + WARM_SECONDS:
        if left and time.monotonic() > began + START_SECONDS:
            raise RuntimeError(f"{left[0].name} did not train: {left[0].steps} steps\n{logs(left[0].folder)}")
        for one in (job, *others):
            one.settle()
        trained = [one for one in left if one.steps >= TRAINED_STEPS and site.knows(one.name, one.members)]
        left = [one for one in left if one not in trained]
        known_at = time.monotonic() if trained else known_at
        time.sleep(1.0 + len(others))  # a look at the processes of many jobs costs a part of a core


def versions(client: httpx.Client, job: str) -> list[dict[str, Any]]:
    """Return every published version of the job's verdicts, with when."""
    found = []
    for incident in client.get("/v1/incidents", params={"job": job}).json()["items"]:
        path = f"/v1/incidents/{incident['id']}/verdict"
        for one in client.get(f"{path}s").json()["items"]:
            document = client.get(path, params={"version": one["version"]}).json()
            found.append({"opened_at": incident["opened_at"], "culprits": document["culprits"]})
    return found


def proposals(client: httpx.Client, job: str) -> list[dict[str, Any]]:
    """Return what was proposed for the job."""
    return [one for one in client.get("/v1/remediations").json()["items"] if one["job"] == job]


def played(fault: RlFault, number: int, site: Site, folder: Path, ray_python: str | None) -> dict[str, Any]:
    """Play one fault; return what was named and proposed."""
    name = f"rl-{fault.name.replace(' ', '-')}-{number}".lower()
    with (
        closing(launched(name, folder / name, site, ray_python)) as job,
        httpx.Client(base_url=site.url, timeout=60) as client,
    ):
        wait_until_trained(job, site)
        before = len(versions(client, name))
        began, began_at, steps = time.monotonic(), time.time(), job.steps
        job.begin(fault)
        moved_at, last, named_at = began, job.activity(), None
        while time.monotonic() < began + WATCH_SECONDS:
            job.settle()
            if (now := job.activity()) != last:
                moved_at, last = time.monotonic(), now
            said = versions(client, name)[before:]
            if named_at is None and any(one["culprits"] for one in said):
                named_at = time.monotonic()
            if named_at is not None and time.monotonic() > named_at + SETTLED_SECONDS:
                break
            time.sleep(1.0)
        silent = time.monotonic() - moved_at > SETTLED_SECONDS
        return judged(fault, versions(client, name), proposals(client, name), began_at) | {
            "run": number, "job": name, "launcher": "ray" if ray_python else "processes",
            "steps_before": steps, "incidents_before": before,
            "seconds_until_named": None if named_at is None else round(named_at - began, 1),
            "seconds_until_all_silent": round(moved_at - began, 1) if silent else None,
        }  # fmt: skip


def launched(name: str, folder: Path, site: Site, ray_python: str | None) -> RunningRl:
    """Start the job as plain processes, or as actors of Ray."""
    if ray_python is None:
        return RunningRl(name, folder, site, TOOL_SECONDS)
    return RayRl(name, folder, site, TOOL_SECONDS, ray_python)


def judged(
    fault: RlFault, said: list[dict[str, Any]], proposed: list[dict[str, Any]], began_at: float
) -> dict[str, Any]:
    """Return a row: what was named, and whether it was right."""
    named = [one for version in said for one in version["culprits"]]
    roles = sorted({one.get("role") or "" for one in named})
    nodes = sorted({one["id"] for one in named if one["kind"] == "node"})
    seats = sorted({f"{one.get('role') or ''} {rank}" for one in named for rank in one["ranks"]})
    own = node_of(fault.role, fault.instance)
    wrong = [
        one["kind"] for one in proposed
        if fault.healthy or set(one.get("nodes") or ()) - {own} or (one.get("role") or fault.role) != fault.role
    ]  # fmt: skip
    opened = min((one["opened_at"] for one in said if one["opened_at"] >= began_at), default=None)
    return {
        "fault": fault.name, "roles": roles, "seats": seats, "nodes": nodes,
        "whys": sorted({one["why"] for one in named})[:4],
        "proposed": [one["kind"] for one in proposed], "wrong_proposals": wrong,
        "seconds_until_opened": None if opened is None else round(opened - began_at, 1),
        "role_right": roles == ([] if fault.healthy else [fault.role]),
        "machine_right": set(nodes) <= {own} and set(seats) <= {f"{fault.role} {fault.instance}"},
    }  # fmt: skip


def healthy(
    minutes: float, count: int, tool_seconds: Sequence[float], site: Site, folder: Path
) -> list[dict[str, Any]]:
    """Let jobs train beside each other for so long, each with a call of the tool that takes minutes again and again.

    ``tool_seconds``: the median call of each job's tool; of more jobs, from the first on again.
    """
    with ExitStack() as open_jobs, httpx.Client(base_url=site.url, timeout=60) as client:
        jobs = list[RunningRl]()
        for number in range(count):
            name, seconds = f"rl-healthy-{number}", tool_seconds[number % len(tool_seconds)]
            lease = LEASES[number % len(LEASES)]
            job = RunningRl(name, folder / name, site, seconds, lease_seconds=lease)
            jobs.append(open_jobs.enter_context(closing(job)))
        wait_until_trained(jobs[0], site, *jobs[1:])
        tails, began = [Tails(job, Random(number)) for number, job in enumerate(jobs)], time.monotonic()
        steps = [job.steps for job in jobs]
        while time.monotonic() < began + 60.0 * minutes:
            for one in tails:
                one.turn(time.monotonic())
                one.job.settle()
            time.sleep(float(len(jobs)))
        took = round((time.monotonic() - began) / 60.0, 1)
        return [
            calm_row(one.job, client)
            | {
                "minutes": took,
                "tails": one.count,
                "steps": one.job.steps - before,
                "tool_seconds": seconds,
                "lease_seconds": lease,
            }
            for one, before, seconds, lease in zip(tails, steps, cycle(tool_seconds), cycle(LEASES), strict=False)
        ]


@dataclass
class Tails:
    """The long calls of one job's tool, one after another."""

    job: RunningRl
    random: Random
    count: int = 0
    _until: float = 0.0
    _long: bool = False

    def turn(self, now: float) -> None:
        """Begin a call, or end it, where that is due."""
        if now < self._until:
            return
        if self._long:
            self.job.end(HEALTHY)
        else:
            self.job.begin(HEALTHY)
            self.count += 1
        self._long = not self._long
        self._until = now + self.random.uniform(*(TAIL_SECONDS if self._long else BETWEEN_SECONDS))


def calm_row(job: RunningRl, client: httpx.Client) -> dict[str, Any]:
    """Return what was named and proposed for a healthy job, and its incidents."""
    said = judged(HEALTHY, versions(client, job.name), proposals(client, job.name), 0.0)
    row = {name: said[name] for name in ("fault", "roles", "seats", "nodes", "whys", "proposed", "wrong_proposals")}
    return row | {"job": job.name, "incidents": list(incidents(job.name, client))}


def incidents(job: str, client: httpx.Client) -> Iterator[dict[str, Any]]:
    """Yield a job's incidents: what opened each, for how long it was open, and why it closed."""
    for listed in client.get("/v1/incidents", params={"job": job}).json()["items"]:
        one = client.get(f"/v1/incidents/{listed['id']}").json()
        yield {
            "kind": one["kind"], "symptoms": [[each["detector"], each["text"]] for each in one["symptoms"]],
            "seconds": round((one["closed_at"] or time.time()) - one["opened_at"], 1), "closed_because": one["closed_because"],
        }  # fmt: skip


def totals(rows: list[dict[str, Any]], calm: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of all runs."""
    seconds = sorted(row["seconds_until_named"] for row in rows if row["seconds_until_named"] is not None)
    control = [row["seconds_until_all_silent"] for row in rows]
    return {
        "runs": len(rows),
        "role_right": sum(row["role_right"] for row in rows),
        "machine_right": sum(row["machine_right"] and row["role_right"] for row in rows),
        "wrong_proposals": sum(len(row["wrong_proposals"]) for row in (*rows, *calm)),
        "median_seconds_until_named": seconds[len(seconds) // 2] if seconds else None,
        "never_all_silent": sum(one is None for one in control),
        "healthy_minutes": sum(row["minutes"] for row in calm),
        "healthy_named": sum(bool(row["roles"]) for row in calm),
        "healthy_incidents": sum(len(row["incidents"]) for row in calm),
    }


def by_commit(rows: list[dict[str, Any]], calm: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the counts of what each commit played."""
    return {
        commit: totals(*([row for row in of if row["commit"] == commit] for of in (rows, calm)))
        for commit in dict.fromkeys(row["commit"] for row in (*rows, *calm))
    }


def recoveries(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many recovered as they should, and the median seconds from the fault to each stage."""
    stages = dict.fromkeys(name for row in rows for name in row["seconds"])
    known = {name: sorted(row["seconds"][name] for row in rows if name in row["seconds"]) for name in stages}
    return {
        "runs": len(rows), "right": sum(not row["wrong"] for row in rows),
        "median_seconds": {name: seconds[len(seconds) // 2] for name, seconds in known.items()},
    }  # fmt: skip


def main() -> int:
    """Play what is not kept yet; print and keep each row; 0 only if the aims are met."""
    parser = argparse.ArgumentParser(description="Break roles of a real job.")
    parser.add_argument("--smallest", action="store_true", help="one fault, written to out/")
    parser.add_argument("--runs", type=int, default=RUNS, help="of each fault")
    parser.add_argument("--healthy-minutes", type=float, default=20.0)
    parser.add_argument("--healthy-jobs", type=int, default=1, help="beside each other")
    parser.add_argument("--only", default="", help="faults whose names have this text, or `healthy`")
    parser.add_argument(
        "--healthy-tool-seconds", type=float, nargs="+", default=[TOOL_SECONDS], help="their tool's median"
    )
    parser.add_argument("--again", action="store_true", help="play all anew")
    parser.add_argument("--recovered", action="store_true", help="with restarts by Faulthound alone")
    parser.add_argument("--ray-python", help="as actors of Ray, by a Python that has it")
    options = parser.parse_args()
    name = "role_recoveries.json" if options.recovered else "role_faults.json"
    form = "ray" if options.ray_python else "processes"
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / name
    kept = json.loads(target.read_text()) if target.exists() and not (options.again or options.smallest) else {}
    rows, calm = kept.get("rows", []), kept.get("healthy", [])
    for row in (*rows, *calm):
        row.setdefault("commit", kept["commit"])
    faults = [one for one in FAULTS if not options.recovered or one.how != "slow"]  # which a restart does not cure
    if options.ray_python and not options.recovered:
        faults = [one for one in faults if one.stays]  # Ray starts at once what has ended
    chosen = faults[:1] if options.smallest else [one for one in faults if options.only in one.name]
    wanted = [(fault, number) for number in range(1 if options.smallest else options.runs) for fault in chosen]
    done = {(row["fault"], row["run"]) for row in rows if row.get("launcher", "processes") == form}
    words = ["PYTHON" if one == options.ray_python else one for one in sys.argv[1:]]
    command = " ".join(["python -m tests.acceptance.role_faults", *words])
    earlier = kept.get("command", "")
    command = earlier if command in earlier else "; ".join(one for one in (earlier, command) if one)

    def keep() -> None:
        target.parent.mkdir(exist_ok=True)
        found = provenance(command)
        for row in (*rows, *calm):
            row.setdefault("commit", found["commit"])
        if options.recovered:
            found |= recoveries(rows) | {"rows": rows}
        else:
            found |= totals(rows, calm) | {"by_commit": by_commit(rows, calm), "rows": rows, "healthy": calm}
        target.write_text(json.dumps(found, indent=1).replace(f"{REPOSITORY}/", "") + "\n")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit that still ends what was started
    with (
        tempfile.TemporaryDirectory(prefix="role-faults-") as temporary,
        running(
            Path(temporary) / "site", NODES, allowed(Path(temporary) / "site") if options.recovered else {}
        ) as site,
    ):
        for fault, number in wanted:
            if (fault.name, number) in done:
                continue
            if options.recovered:
                started = recovering(form, site, TOOL_SECONDS, options.ray_python)
                rows.append(recovered(fault, number, site, Path(temporary), wait_until_trained, started))
            else:
                rows.append(played(fault, number, site, Path(temporary), options.ray_python))
            print(json.dumps(rows[-1]), flush=True)
            keep()
        whole = options.only == "" and not calm and not options.smallest and not options.recovered
        if whole or options.only == "healthy":
            calm += healthy(
                options.healthy_minutes, options.healthy_jobs, options.healthy_tool_seconds, site, Path(temporary)
            )
            print(json.dumps(calm), flush=True)
            keep()
    if options.recovered:
        print(json.dumps(recoveries(rows), indent=1))
        return 1 if any(row["wrong"] for row in rows) else 0
    said = totals(rows, calm)
    print(json.dumps(said, indent=1))
    right = said["role_right"] >= 0.95 * len(rows) and said["machine_right"] >= 0.9 * len(rows)
    return 0 if right and not said["wrong_proposals"] and not said["healthy_named"] else 1


if __name__ == "__main__":
    sys.exit(main())
