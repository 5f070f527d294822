"""Real torchrun jobs that know nothing of Faulthound, ended in every way: what is a crash, and what is proposed.

One service, one agent at its usual settings, plain gloo jobs of four ranks. Each job trains until the agent knows its ranks, is
ended, and is watched until what its end leaves in the logs was read. Right is: an end from outside leaves no open incident and
no proposal; a rank's own death is a crash that names the rank.

    python -m tests.acceptance.endings [--smallest] [--runs 7] [--together 2]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.bench.measure import REPOSITORY, provenance
from tests.support.jobs import live

RUNS = 7
RANKS = 4
KNOWN_SECONDS, TRAINED_SECONDS, ENDED_SECONDS = 180.0, 12.0, 90.0
AFTERMATH_SECONDS = 40.0  # logs are read every five seconds, shipped every ten, and a crash is judged within ten
OUTPUTS = ("file", "pipe", "nothing")
PROGRAM = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, step = dist.get_rank(), 0
while True:
    dist.all_reduce(torch.ones(10))
    step += 1
    time.sleep(0.5)
    if rank == 0:
        print(f"step {step} loss {1.0 / step:.4f}", flush=True)
"""


@dataclass(frozen=True)
class Way:
    """A way to end a job. ``outside``: it is no crash; else rank 2 dies."""

    end: Callable[[subprocess.Popen[bytes], dict[int, int]], None]
    outside: bool
    announced: bool = False


def _all_ranks(number: int) -> Callable[[subprocess.Popen[bytes], dict[int, int]], None]:
    """Return what a scheduler does that signals every process."""

    def end(_launcher: subprocess.Popen[bytes], pids: dict[int, int]) -> None:
        for pid in pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    return end


WAYS = {
    "kill of the launcher": Way(lambda launcher, _pids: os.kill(launcher.pid, signal.SIGTERM), outside=True),
    "Ctrl-C": Way(lambda launcher, _pids: os.killpg(launcher.pid, signal.SIGINT), outside=True),
    "closed terminal": Way(lambda launcher, _pids: os.killpg(launcher.pid, signal.SIGHUP), outside=True),
    "SIGTERM to all ranks": Way(_all_ranks(signal.SIGTERM), outside=True),
    "said beforehand": Way(lambda _launcher, pids: os.kill(pids[2], signal.SIGKILL), outside=True, announced=True),
    "kill -9 of one rank": Way(lambda _launcher, pids: os.kill(pids[2], signal.SIGKILL), outside=False),
    "a rank breaks": Way(lambda _launcher, pids: os.kill(pids[2], signal.SIGSEGV), outside=False),
}
SMALLEST = ("kill of the launcher", "kill -9 of one rank")


def run(client: httpx.Client, folder: Path, name: str, seed: int) -> dict[str, Any]:
    """Start a job, end it, and return what was found of it."""
    way, output = WAYS[name], OUTPUTS[seed % len(OUTPUTS)]
    job = f"{name.replace(' ', '-')}-{seed}"
    launcher = _launch(folder, job, output)
    try:
        pids = _known(client, job, launcher)
        time.sleep(TRAINED_SECONDS)
        if way.announced:
            client.post(f"/v1/jobs/{job}/ending", json={"reason": "acceptance"}).raise_for_status()
            time.sleep(5.0)
        way.end(launcher, pids)
        launcher.wait(ENDED_SECONDS)
        time.sleep(AFTERMATH_SECONDS)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        launcher.wait(30)
    return {"way": name, "job": job, "output": output} | _found(client, job, way)


def _launch(folder: Path, job: str, output: str) -> subprocess.Popen[bytes]:
    program = folder / "train.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}", str(program)]
    sink = {"nothing": subprocess.DEVNULL, "pipe": subprocess.PIPE, "file": (folder / f"{job}.log").open("wb")}[output]
    return subprocess.Popen(
        ["nice", *command],
        env=os.environ | {"FAULTHOUND_JOB": job, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def _known(client: httpx.Client, job: str, launcher: subprocess.Popen[bytes]) -> dict[int, int]:
    deadline = time.monotonic() + KNOWN_SECONDS
    while time.monotonic() < deadline and launcher.poll() is None:
        with suppress(httpx.HTTPError, KeyError):
            rows = client.get(f"/v1/jobs/{job}/ranks").raise_for_status().json()["items"]
            if len(rows) == RANKS:
                return {row["rank"]: row["pid"] for row in rows}
        time.sleep(1.0)
    raise RuntimeError(f"{job}: its ranks were not seen within {KNOWN_SECONDS:.0f} s")


def _found(client: httpx.Client, job: str, way: Way) -> dict[str, Any]:
    incidents = client.get("/v1/incidents", params={"job": job}).json()["items"]
    proposals = [one for one in client.get("/v1/remediations").json()["items"] if one["job"] == job]
    waiting = [one["kind"] for one in proposals if one["status"] in ("proposed", "approved")]
    wrong = []
    if way.outside:
        wrong += [f"{one['id']} is open" for one in incidents if one["closed_at"] is None]
        wrong += [f"{kind} is proposed" for kind in waiting]
    else:
        named = {
            rank
            for one in incidents
            for culprit in (one["verdict"] or {}).get("culprits", ())
            for rank in culprit["ranks"]
        }
        wrong += [] if named == {2} else [f"ranks {sorted(named)} are named, not 2"]
    kinds = [f"{one['kind']}: {one['closed_because']}" for one in incidents]
    return {"incidents": kinds, "proposed": [one["kind"] for one in proposals], "wrong": wrong}


def main() -> int:
    """End the jobs, print and write what came of it; 0 only if all was right at the first try."""
    parser = argparse.ArgumentParser(description="End real jobs in every way.")
    parser.add_argument("--smallest", action="store_true", help="two endings, written to out/")
    parser.add_argument("--runs", type=int, default=RUNS, help="endings of each way")
    parser.add_argument("--together", type=int, default=2, help="jobs at once")
    options = parser.parse_args()
    wanted = [
        (name, seed)
        for seed in range(1 if options.smallest else options.runs)
        for name in (SMALLEST if options.smallest else WAYS)
    ]
    results: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="endings-")))
        nodes = stack.enter_context(live.cluster(folder / "cluster", ()))
        agent = ["run", "--service", nodes.url, "--node", "here", "--state", str(folder / "agent")]
        live._started(stack, folder / "agent.log", "collectors.agent", agent, {})
        client = stack.enter_context(httpx.Client(base_url=nodes.url, timeout=30))
        pool = stack.enter_context(ThreadPoolExecutor(options.together))
        for result in pool.map(lambda one: run(client, folder, *one), wanted):
            results.append(result)
            print("wrong" if result["wrong"] else "right", json.dumps(result), flush=True)
    right = sum(not one["wrong"] for one in results)
    print(f"{right} of {len(results)} endings right at the first try")
    target = REPOSITORY / ("out" if options.smallest else "docs/measured") / "endings.json"
    target.parent.mkdir(exist_ok=True)
    command = " ".join(["python -m tests.acceptance.endings", *sys.argv[1:]])
    totals = {"endings": len(results), "right_at_the_first_try": right}
    target.write_text(json.dumps(provenance(command) | totals | {"rows": results}, indent=1) + "\n")
    return 0 if right == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
