"""Real torchrun jobs that know nothing of Faulthound become slow, or only look so: what is opened, when, and who is named.

One service, one agent at its usual settings, plain gloo jobs (DDP, four ranks on one machine) that print their steps without
stamps. All jobs run at once and rest for most of a step, as if they waited for a device. After five minutes a fault begins,
and is taken back once its incident has a verdict. Right is: a job that became a tenth slower has one incident of kind slow,
which closes after the fault; it names the guilty rank or none, and asks for nothing; a healthy job has none.

    python -m tests.acceptance.slow_jobs [--smallest] [--only NAME…] [--runs 1]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.acceptance.endings import RANKS, _known
from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import live

STEADY_SECONDS = 330.0  # the first minute and the four that make a past, until they are read
SLOW_SECONDS = 330.0  # for an incident and its verdict
OVER_SECONDS = 150.0
HEALTHY_SECONDS = 660.0
PERIOD_SECONDS, QUOTA_SHARE = 0.05, 0.015
CGROUPS = Path("/sys/fs/cgroup/cpu")
WORTH, IN_DOUBT = 1.13, 1.07  # a slowdown between these may be found or not
PROGRAM = """
import os, sys, time, torch, torch.distributed as dist
from torch import nn
folder, kind = sys.argv[1:]
dist.init_process_group("gloo")
torch.set_num_threads(1)
rank, step = dist.get_rank(), 0
model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began = time.monotonic()

def load(seconds):
    time.sleep(0.005)
    if os.path.exists(f"{folder}/slow-{rank}") or os.path.exists(f"{folder}/slow-all"):
        time.sleep(seconds)

def compute(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

while True:
    length = 1.0 + (time.monotonic() - began) / 900.0 if kind == "grows" else 1.0
    load(0.06)
    compute(0.004 * length)
    time.sleep(0.18 * length)
    loss = model(torch.randn(8, 64)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if rank == 0:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    if kind == "evaluates" and step % 300 == 0:
        time.sleep(12.0)
        dist.barrier()
"""
STEP = re.compile(rb"step (\d+) ")


@dataclass
class Running:
    """A job that trains."""

    name: str
    folder: Path
    launcher: subprocess.Popen[bytes]
    pids: dict[int, int]
    culprit: int

    def step(self) -> int:
        """Return its newest step."""
        with (self.folder / "log").open("rb") as log:
            log.seek(max(0, log.seek(0, 2) - 4096))
            found = STEP.findall(log.read())
        return int(found[-1]) if found else 0

    def seconds_a_step(self, over: float) -> float:
        """Return how long its steps take, measured over a span by this very clock."""
        step, at = self.step(), time.monotonic()
        time.sleep(over)
        return (time.monotonic() - at) / max(self.step() - step, 1)


@contextmanager
def _stopped_in_turns(share: float, job: Running) -> Iterator[None]:
    """Stop and continue one rank twenty times a second, as cpulimit does."""
    over, pid = threading.Event(), job.pids[job.culprit]

    def alternate() -> None:
        with suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                time.sleep(PERIOD_SECONDS * share)
                os.kill(pid, signal.SIGCONT)
                time.sleep(PERIOD_SECONDS * (1 - share))

    thread = threading.Thread(target=alternate)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _quota(job: Running) -> Iterator[None]:
    """Limit one rank's control group to a share of a processor."""
    group = CGROUPS / f"faulthound-{job.name}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(int(100_000 * QUOTA_SHARE)))
        (group / "cgroup.procs").write_text(str(job.pids[job.culprit]))
        yield
    finally:
        with suppress(OSError):
            (group / "cpu.cfs_quota_us").write_text("-1")


@contextmanager
def _loader_sleeps(whose: str, job: Running) -> Iterator[None]:
    flag = job.folder / f"slow-{whose or job.culprit}"
    flag.touch()
    try:
        yield
    finally:
        flag.unlink()


@contextmanager
def _other_work(_job: Running) -> Iterator[None]:
    """Burn a processor for 25 seconds of every 90."""
    program = "import time\nwhile True:\n e = time.time() + 25\n while time.time() < e: pass\n time.sleep(65)"
    other = subprocess.Popen([sys.executable, "-c", program])
    try:
        yield
    finally:
        other.kill()
        other.wait()


@dataclass(frozen=True)
class Way:
    """``inflict``: what is done to the job for a while; ``kind``: what its program does by itself."""

    inflict: Callable[[Running], Any] | None = None
    kind: str = "plain"
    slow: bool = True
    of_one: bool = True  # a single rank is guilty


WAYS: dict[str, Way] = {
    "loader of one rank sleeps": Way(lambda job: _loader_sleeps("", job)),
    "one rank is stopped 10 of 50 ms": Way(lambda job: _stopped_in_turns(0.2, job)),
    "one rank is stopped 35 of 50 ms": Way(lambda job: _stopped_in_turns(0.7, job)),
    "quota on one rank": Way(_quota),
    "loader of all ranks sleeps": Way(lambda job: _loader_sleeps("all", job), of_one=False),
    "healthy": Way(slow=False),
    "evaluates": Way(kind="evaluates", slow=False),
    "lengths grow": Way(kind="grows", slow=False),
    "other work on the machine": Way(_other_work, slow=False),
}
SMALLEST = ("loader of one rank sleeps", "healthy")


def run(client: httpx.Client, folder: Path, name: str, seed: int, ready: threading.Barrier) -> dict[str, Any]:
    """Let a job train, become slow and recover; return what was found of it."""
    way, job = WAYS[name], f"{name.replace(' ', '-')}-{seed}"
    with ExitStack() as stack:
        stack.callback(_without_group, job)
        running = _started(stack, client, folder / job, job, way.kind, seed % RANKS)
        paces = stack.enter_context(_paces(running))
        ready.wait(600)  # the start of other jobs is no fault
        row = _slowed(client, running, way) if way.slow else _watched(client, running, way)
    row |= {"seconds_a_step_by_half_minutes": paces, "load": round(os.getloadavg()[2], 1)}
    return {"way": name, "job": job} | row | {"wrong": _wrong(row, way, running)}


@contextmanager
def _paces(job: Running) -> Iterator[list[float]]:
    """Measure what a step takes, every half minute, by this very clock: on a machine that does other things, too, it varies."""
    over, found = threading.Event(), list[float]()

    def measure() -> None:
        step, at = job.step(), time.monotonic()
        while not over.wait(30.0):
            steps, now = job.step(), time.monotonic()
            found.append(round((now - at) / max(steps - step, 1), 3))
            step, at = steps, now

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def _started(stack: ExitStack, client: httpx.Client, folder: Path, job: str, kind: str, culprit: int) -> Running:
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    launcher = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}",
         str(folder / "train.py"), str(folder), kind],
        env=os.environ | {"FAULTHOUND_JOB": job, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdin=subprocess.DEVNULL, stdout=(folder / "log").open("wb"), stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    stack.callback(_ended, launcher)
    return Running(job, folder, launcher, _known(client, job, launcher), culprit)


def _ended(launcher: subprocess.Popen[bytes]) -> None:
    """End a launcher and its ranks, which have sessions of their own; one of them may be stopped."""
    children = list[str]()
    with suppress(OSError):  # it ended by itself, and was waited for
        children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    for pid in (launcher.pid, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    launcher.wait(30)


def _without_group(job: str) -> None:
    with suppress(OSError):
        (CGROUPS / f"faulthound-{job}").rmdir()


def _slowed(client: httpx.Client, job: Running, way: Way) -> dict[str, Any]:
    time.sleep(STEADY_SECONDS - 30.0)
    before = job.seconds_a_step(30.0)
    assert way.inflict is not None
    began_at = time.time()
    with way.inflict(job):
        slow = job.seconds_a_step(60.0)
        opened = _until(lambda: _incident(client, job), began_at + SLOW_SECONDS)
        said = (
            _until(lambda: (_incident(client, job) or {}).get("verdict"), began_at + SLOW_SECONDS) if opened else None
        )
    healed_at = time.time()
    if opened:
        _until(lambda: (_incident(client, job) or {}).get("closed_at"), healed_at + OVER_SECONDS)
    return _found(client, job) | {
        "seconds_before": round(before, 4), "seconds_since": round(slow, 4), "longer": round(slow / before - 1, 3),
        "opened_seconds": round(_instant(opened["opened_at"]) - began_at, 1) if opened else None,
        "onset_off_seconds": round(_instant(opened["onset_at"]) - began_at, 1) if opened else None,
        "verdict_seconds": round(time.time() - began_at, 1) if said else None,
    }  # fmt: skip


def _watched(client: httpx.Client, job: Running, way: Way) -> dict[str, Any]:
    with way.inflict(job) if way.inflict is not None else nullcontext():
        time.sleep(HEALTHY_SECONDS)
    return _found(client, job)


def _until(seen: Callable[[], Any], deadline: float) -> Any:
    while time.time() < deadline:
        with suppress(httpx.HTTPError):
            if (found := seen()) is not None:
                return found
        time.sleep(1.0)
    return None


def _incidents(client: httpx.Client, job: Running) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        client.get("/v1/incidents", params={"job": job.name}).raise_for_status().json()["items"]
    )
    return found


def _incident(client: httpx.Client, job: Running) -> dict[str, Any] | None:
    return next((one for one in _incidents(client, job) if one["kind"] == "slow"), None)


def _instant(value: Any) -> float:
    if isinstance(value, int | float):
        return float(value)
    from datetime import datetime

    return datetime.fromisoformat(value).timestamp()


def _found(client: httpx.Client, job: Running) -> dict[str, Any]:
    incidents = _incidents(client, job)
    slow = [one for one in incidents if one["kind"] == "slow"]
    proposals = [one for one in client.get("/v1/remediations").json()["items"] if one["job"] == job.name]
    judged = [client.get(f"/v1/incidents/{one['id']}/verdict") for one in slow]
    verdicts = [answer.json() for answer in judged if answer.status_code == 200]
    return {
        "slow_incidents": len(slow),
        "other_incidents": [one["kind"] for one in incidents if one["kind"] != "slow"],
        "closed_because": [one["closed_because"] for one in slow],
        "classes": [root["class"] for verdict in verdicts for root in verdict["roots"]],
        "named": sorted({rank for verdict in verdicts for one in verdict["culprits"] for rank in one["ranks"]}),
        "named_otherwise": [one["id"] for verdict in verdicts for one in verdict["culprits"] if not one["ranks"]],
        "actions": [verdict["action"]["kind"] for verdict in verdicts],
        "evidence": [one["text"] for verdict in verdicts for one in verdict["evidence"]],
        "proposed": [one["kind"] for one in proposals],
    }


def _wrong(row: dict[str, Any], way: Way, job: Running) -> list[str]:
    wrong = [f"{kind} is proposed" for kind in row["proposed"]]
    wrong += [f"the action is {kind}" for kind in row["actions"] if kind != "none"]
    guilty = {job.culprit} if way.of_one and way.slow else set()
    wrong += [f"rank {rank} is named" for rank in row["named"] if rank not in guilty]
    wrong += [f"{name} is named" for name in row["named_otherwise"]]
    most = 1 if way.slow and row["longer"] > IN_DOUBT - 1 else 0
    if row["slow_incidents"] > most:
        wrong.append(f"{row['slow_incidents']} incidents of kind slow")
    if way.slow and row["longer"] > WORTH - 1:
        wrong += [] if row["slow_incidents"] else ["no incident of kind slow"]
        wrong += ["it is still open" for because in row["closed_because"] if not because]
    return wrong


def main() -> int:
    """Run all at once, print and write what came of it; 0 only if all was right."""
    parser = argparse.ArgumentParser(description="Make real jobs slow, and watch healthy ones.")
    parser.add_argument("--smallest", action="store_true", help="one slow and one healthy job, written to out/")
    parser.add_argument("--only", nargs="*", choices=sorted(WAYS), help="only these, written to out/")
    parser.add_argument(
        "--runs", type=int, default=1, help="rounds, one after the other, each with another guilty rank"
    )
    options = parser.parse_args()
    names = SMALLEST if options.smallest else tuple(options.only or WAYS)
    results: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="slow-jobs-")))
        nodes = stack.enter_context(live.cluster(folder / "cluster", ()))
        agent = ["run", "--service", nodes.url, "--node", "here", "--state", str(folder / "agent")]
        live._started(stack, folder / "agent.log", "collectors.agent", agent, {})
        client = stack.enter_context(httpx.Client(base_url=nodes.url, timeout=30))
        for seed in range(2, 2 + options.runs):
            ready = threading.Barrier(len(names))
            with ThreadPoolExecutor(len(names)) as pool:
                jobs = [pool.submit(run, client, folder, name, seed, ready) for name in names]
                for one in jobs:
                    results.append(one.result())
                    print("wrong" if results[-1]["wrong"] else "right", json.dumps(results[-1]), flush=True)
    right = sum(not one["wrong"] for one in results)
    opened = [one["opened_seconds"] for one in results if one.get("opened_seconds") is not None]
    print(f"{right} of {len(results)} jobs right; opened after {opened} s")
    target = REPOSITORY / ("out" if options.smallest or options.only else "docs/measured") / "slow_jobs.json"
    target.parent.mkdir(exist_ok=True)
    command = " ".join(["python -m tests.acceptance.slow_jobs", *sys.argv[1:]])
    totals = {
        "jobs": len(results), "right": right, "healthy_jobs": sum(not WAYS[one["way"]].slow for one in results),
        "openings_of_healthy_jobs": sum(one["slow_incidents"] for one in results if not WAYS[one["way"]].slow),
        "median_opened_seconds": statistics.median(opened) if opened else None,
    }  # fmt: skip
    target.write_text(json.dumps(provenance(command) | totals | {"rows": results}, indent=1) + "\n")
    return 0 if right == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
