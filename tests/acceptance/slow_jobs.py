"""Real torchrun jobs become slow by one of their ranks, again and again, or only look so: what is opened, when, and who is named.

One service, and for each job a node with an agent at its usual settings, which sees that job alone. Gloo jobs (DDP of four
ranks, a pipeline of four stages in two replicas) print steps without stamps and rest as if they waited for a device; some have
the probe. After seven minutes one rank is made slow, until the first five rounds of its incident are judged; when that has
closed, another rank is. A row that is there already is not measured again.
Right is: steps that became a tenth longer are one incident of kind slow, which names the guilty rank or none and closes
after the fault; nothing is proposed; a healthy job has none, unless two minutes of its steps were as much longer.

    python -m tests.acceptance.slow_jobs [--smallest] [--minutes 60] [--lanes ddp+probe …] [--faults compute …]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.slow_totals import totals
from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import live
from tests.support.jobs.farm import settling
from tests.support.slow_jobs.slowed_job import FAULTS, LOADING, OF_A_LOADER, RANKS, Running, other_work, start

KNOWN_SECONDS = 300.0
STEADY_SECONDS = 420.0  # the first minute and the four that make a past, until they are read, on a busy machine
SLOW_SECONDS = 330.0  # for an incident
LOOKED_SECONDS = 60.0  # after its opening its first five rounds are judged: until then the rank stays slow
DECIDED_SECONDS = 215.0  # and its last one
OVER_SECONDS = 180.0
CALM_SECONDS = (60.0, 200.0)  # uneven: slowdowns at even distances are a job's own
HEALTHY_SECONDS = 600.0  # of one row
SPAN_SECONDS = 120.0  # a slowdown of less is no incident
WORTH, IN_DOUBT = 1.13, 1.07  # a slowdown between these may be found or not
HEALTHY = "healthy"
LANES = ("ddp+probe", "ddp", "pipeline+probe", "pipeline", "healthy ddp+probe", "healthy ddp", "healthy pipeline+probe")
SMALLEST = ("ddp+probe", "healthy ddp")
Row = dict[str, Any]


@dataclass
class Rows:
    """What was measured, in a file that a later run continues."""

    path: Path
    found: list[Row] = field(default_factory=list)
    run: int = 1
    taken: list[Row] = field(default_factory=list)  # cells that are being measured, or were in this run
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, row: Row) -> None:
        """Keep a row, with the run that measured it."""
        with self.lock:
            row["run"] = self.run
            self.found.append(row)
            with self.path.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print("wrong" if row["wrong"] else "right", json.dumps(row), flush=True)

    def next(self, lane: str, faults: Sequence[str]) -> tuple[str, int]:
        """Return the fault and the rank that were measured least on such a job."""
        with self.lock:
            known = [row for row in (*self.found, *self.taken) if row["lane"] == lane]
            done = Counter((row["fault"], row["culprit"]) for row in known)
            kinds = Counter(row["fault"] for row in known)
            layout = _layout(lane)
            cells = [
                (fault, rank)
                for fault in faults
                for rank in range(RANKS[layout])
                if fault not in OF_A_LOADER or rank in LOADING[layout]
            ]
            random.Random(f"{lane} {len(known)}").shuffle(cells)
            fault, rank = min(cells, key=lambda cell: (done[cell], kinds[cell[0]]))
            self.taken.append({"lane": lane, "fault": fault, "culprit": rank})
        return fault, rank


@dataclass
class Lane:
    """One job, and the service that watches it."""

    client: httpx.Client
    job: Running
    name: str
    until: float

    def incidents(self, since: float) -> list[Row]:
        """Return the job's incidents that were opened after an instant."""
        answer = self.client.get("/v1/incidents", params={"job": self.job.name}).raise_for_status()
        return [one for one in answer.json()["items"] if instant(one["opened_at"]) > since]

    def slow(self, since: float) -> Row | None:
        """Return the slow incident since then."""
        return next((one for one in self.incidents(since) if one["kind"] == "slow"), None)

    def latent(self) -> list[Row]:
        """Return what the service says of ranks that are slower without slowing the job."""
        answer = self.client.get(f"/v1/jobs/{self.job.name}/progress")
        found: list[Row] = answer.json().get("latent", []) if answer.status_code == 200 else []
        return found

    def judged(self, since: float) -> tuple[Row | None, float | None, float | None]:
        """Wait for the slow incident and until it names somebody or is decided; return it, and when it was judged and named."""
        opened: Row | None = wait_for(lambda: self.slow(since), since + SLOW_SECONDS)
        named_at = verdict_at = None
        while opened and time.time() < instant(opened["opened_at"]) + (LOOKED_SECONDS if named_at else DECIDED_SECONDS):
            verdict = (self.slow(since) or {}).get("verdict")
            verdict_at = verdict_at or (time.time() if verdict else None)
            named_at = named_at or (time.time() if verdict and verdict["culprits"] else None)
            time.sleep(2.0)
        return opened, verdict_at, named_at

    def wait_for_end(self, since: float) -> None:
        """Wait until the slow incident, where there is one, has closed."""
        if self.slow(since) is not None:
            wait_for(lambda: (self.slow(since) or {}).get("closed_at"), time.time() + OVER_SECONDS)

    def found(self, since: float) -> Row:
        """Return what was opened, named and proposed since then."""
        incidents = self.incidents(since)
        slow = [one for one in incidents if one["kind"] == "slow"]
        judged = [self.client.get(f"/v1/incidents/{one['id']}/verdict") for one in slow]
        verdicts = [answer.json() for answer in judged if answer.status_code == 200]
        proposed = [one for one in self.client.get("/v1/remediations").json()["items"] if one["job"] == self.job.name]
        others = [one for one in incidents if one["kind"] != "slow"]
        return {
            "slow_incidents": len(slow),
            "other_incidents": [
                [one["kind"], round(instant(one["opened_at"]) - since, 1), one.get("closed_because"),
                 [symptom["text"] for symptom in one.get("symptoms", ())][:2]] for one in others
            ],
            "closed_because": [one["closed_because"] for one in slow],
            "classes": [root["class"] for verdict in verdicts for root in verdict["roots"]],
            "named": sorted({rank for verdict in verdicts for one in verdict["culprits"] for rank in one["ranks"]}),
            "named_otherwise": [one["id"] for verdict in verdicts for one in verdict["culprits"] if not one["ranks"]],
            "actions": [verdict["action"]["kind"] for verdict in verdicts],
            "evidence": [one["text"] for verdict in verdicts for one in verdict["evidence"]],
            "proposed": [one["kind"] for one in proposed],
        }  # fmt: skip


def run(lane: Lane, rows: Rows, faults: Sequence[str]) -> None:
    """Make a job slow again and again, or watch a healthy one, until the time is over."""
    time.sleep(STEADY_SECONDS)
    if HEALTHY in lane.name:
        while time.time() + HEALTHY_SECONDS < lane.until:
            rows.add(_watched(lane, busy=len(rows.found) % 2 == 1))
        return
    draws = random.Random(lane.job.name)
    while time.time() + SLOW_SECONDS < lane.until:
        fault, culprit = rows.next(lane.name, faults)
        rows.add(_slowed(lane, fault, culprit))
        time.sleep(draws.uniform(*CALM_SECONDS))


def _slowed(lane: Lane, fault: str, culprit: int) -> Row:
    """Make one rank slow until its incident is judged, and watch the incident close."""
    before = lane.job.seconds_a_step(30.0)
    began_at = time.time()
    with FAULTS[fault](lane.job, culprit):  # type: ignore[attr-defined]
        slow = lane.job.seconds_a_step(60.0)
        opened, verdict_at, named_at = lane.judged(began_at)
        latent = lane.latent()
    lane.wait_for_end(began_at)
    row = lane.found(began_at) | {
        "lane": lane.name, "fault": fault, "culprit": culprit, "seconds_before": round(before, 4),
        "seconds_since": round(slow, 4), "longer": round(slow / before - 1, 3), "latent": latent,
        "opened_seconds": round(instant(opened["opened_at"]) - began_at, 1) if opened else None,
        "onset_off_seconds": round(instant(opened["onset_at"]) - began_at, 1) if opened else None,
        "verdict_seconds": round(verdict_at - began_at, 1) if verdict_at else None,
        "named_seconds": round(named_at - began_at, 1) if named_at else None,
        "load": round(os.getloadavg()[1], 1), "at": round(began_at),
    }  # fmt: skip
    return row | {"wrong": _wrong(row, set() if fault.endswith("all") else {culprit})}


def _watched(lane: Lane, *, busy: bool) -> Row:
    """Watch a healthy job for a while, beside other work or none; what else the machine does may make it slow as well."""
    began_at = time.time()
    with other_work() if busy else nullcontext():
        longer = lane.job.longest_span(HEALTHY_SECONDS, SPAN_SECONDS)
    row = lane.found(began_at) | {
        "lane": lane.name, "fault": "other work" if busy else "none", "culprit": -1, "latent": lane.latent(),
        "longer": round(longer, 3), "load": round(os.getloadavg()[1], 1), "at": round(began_at),
    }  # fmt: skip
    return row | {"wrong": _wrong(row, set())}


def _wrong(row: Row, guilty: set[int]) -> list[str]:
    wrong = [f"{kind} is proposed" for kind in row["proposed"]]
    wrong += [f"the action is {kind}" for kind in row["actions"] if kind != "none"]
    wrong += [f"rank {rank} is named" for rank in row["named"] if rank not in guilty]
    wrong += [f"{name} is named" for name in row["named_otherwise"]]
    wrong += [f"rank {one['rank']} is latent" for one in row["latent"] if one["rank"] not in guilty]
    most = 1 if row["longer"] > IN_DOUBT - 1 else 0
    if row["slow_incidents"] > most:
        wrong.append(f"{row['slow_incidents']} incidents of kind slow")
    if row["longer"] > WORTH - 1 and row["culprit"] >= 0:
        wrong += [] if row["slow_incidents"] else ["no incident of kind slow"]
        wrong += ["it is still open" for because in row["closed_because"] if not because]
    return wrong


def wait_for(seen: Callable[[], Any], deadline: float) -> Any:
    """Return what is seen, as soon as it is; None at the deadline."""
    while time.time() < deadline:
        with suppress(httpx.HTTPError):
            if (found := seen()) is not None:
                return found
        time.sleep(2.0)
    return None


def instant(value: Any) -> float:
    """Return an instant of an answer in UTC seconds."""
    return float(value) if isinstance(value, int | float) else datetime.fromisoformat(value).timestamp()


def _layout(lane: str) -> str:
    return lane.removeprefix(HEALTHY).strip().removesuffix("+probe")


def wait_until_known(client: httpx.Client, job: Running) -> None:
    """Wait until the service knows the ranks, and keep whose pids they are."""

    def ranks() -> dict[int, int] | None:
        items = client.get(f"/v1/jobs/{job.name}/ranks").raise_for_status().json()["items"]
        return {row["rank"]: row["pid"] for row in items} if len(items) == RANKS[job.layout] else None

    found = wait_for(ranks, time.time() + KNOWN_SECONDS)
    if found is None:
        raise RuntimeError(f"{job.name}: its ranks were not seen within {KNOWN_SECONDS:.0f} s")
    job.pids = found


def measure(folder: Path, rows: Rows, lanes: Sequence[str], faults: Sequence[str], minutes: float) -> None:
    """Run one job a lane beside the others for so long."""
    with ExitStack() as stack:
        names = [f"node-{number}" for number in range(len(lanes))]
        nodes = stack.enter_context(live.cluster(folder / "cluster", names))
        client = stack.enter_context(httpx.Client(base_url=nodes.url, timeout=60))
        jobs = [
            start(
                stack, folder / f"lane-{number}", f"slow-{os.getpid()}-{number}", _layout(lane), probe="+probe" in lane
            )
            for number, lane in enumerate(lanes)
        ]
        launchers = {name: job.launcher.pid for name, job in zip(names, jobs, strict=True)}
        stack.enter_context(settling(lambda: nodes.farm.settle_below(launchers), 2.0))
        for job in jobs:
            wait_until_known(client, job)
        until = time.time() + 60.0 * minutes
        threads = [
            threading.Thread(target=run, args=(Lane(client, job, lane, until), rows, faults))
            for job, lane in zip(jobs, lanes, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def main() -> int:
    """Measure for a while and write all that is known; 0 only if all of this run was right."""
    parser = argparse.ArgumentParser(description="Make real jobs slow, and watch healthy ones.")
    parser.add_argument("--smallest", action="store_true", help="one slow and one healthy job for 20 minutes")
    parser.add_argument(
        "--lanes", nargs="*", choices=LANES, help="these jobs, beside each other; the same may be given twice"
    )
    parser.add_argument("--faults", nargs="*", choices=sorted(FAULTS), help="only these")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--write", action="store_true", help="write what is there into docs/measured, and measure nothing"
    )
    options = parser.parse_args()
    out = REPOSITORY / "out" / "slow_jobs.jsonl"
    out.parent.mkdir(exist_ok=True)
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    rows = Rows(out, known, 1 + max((row["run"] for row in known), default=0))
    if not options.write:
        with tempfile.TemporaryDirectory(prefix="slow-jobs-") as folder:
            lanes = options.lanes or (SMALLEST if options.smallest else LANES)
            minutes = 20.0 if options.smallest else options.minutes
            measure(Path(folder), rows, lanes, options.faults or tuple(FAULTS), minutes)
    target = REPOSITORY / ("docs/measured" if options.write else "out") / "slow_jobs.json"
    command = " ".join(["python -m tests.acceptance.slow_jobs", *sys.argv[1:]])
    target.write_text(json.dumps(provenance(command) | totals(rows.found) | {"rows": rows.found}, indent=1) + "\n")
    judged = rows.found if options.write else [row for row in rows.found if row["run"] == rows.run]
    return 1 if any(row["wrong"] for row in judged) else 0


if __name__ == "__main__":
    sys.exit(main())
