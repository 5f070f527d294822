"""A real job with an agent on each of its nodes and a service behind them; what is left is a bundle.

Nothing reads the job's files but the agents. When the fault has struck and nothing moves, the agents are asked for stacks
and flight recorders, as an engineer would ask, and the bundle is exported by the command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from tests.support.jobs import driver
from tests.support.jobs.driver import START_SECONDS, STILL_SECONDS, Watch
from tests.support.jobs.farm import Farm, settling
from tests.support.jobs.job import Job
from tests.support.jobs.scenarios import Scenario

REPOSITORY = Path(__file__).resolve().parents[3]
JOB = "llama-8b"
ANSWER_SECONDS = 30.0
LISTENS_SECONDS = 120.0  # a service begins within two; not on a machine that has other things to do
SHIP_SECONDS = 2.0  # of these agents: a test need not wait for the usual ten


@dataclass
class Cluster:
    """A running service, the agents that report to it, and how to ask both."""

    url: str
    farm: Farm
    processes: dict[str, subprocess.Popen[bytes]]
    folder: Path

    def get(self, path: str) -> Any:
        """Return what the service answers to a GET."""
        answer = httpx.get(self.url + path, timeout=30)
        answer.raise_for_status()
        return answer.json()

    def placed(self, job: str = JOB) -> dict[int, str]:
        """Return rank → node as the service knows it from the agents."""
        try:
            ranks = self.get(f"/v1/jobs/{job}/ranks")
        except (httpx.HTTPStatusError, httpx.TransportError):
            return {}
        return {row["rank"]: row["node"] for row in ranks["items"]}

    def faulthound(self, *arguments: str) -> str:
        """Run the command line against the service and return what it prints."""
        program = "from service.cli import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments], cwd=REPOSITORY, env=os.environ | {"FAULTHOUND_SERVICE": self.url},
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"faulthound {' '.join(arguments)} left with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def log(self) -> str:
        """Return the end of every process's own log."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-1500:]}" for path in self.folder.glob("*.log")
        )


@contextmanager
def cluster(folder: Path, nodes: Sequence[str], *agent_options: str) -> Iterator[Cluster]:
    """Start a service on a free port and an agent a node; end them all."""
    folder.mkdir(parents=True, exist_ok=True)
    farm = Farm(folder / "nodes", nodes)
    with ExitStack() as stack:
        service = _started(stack, folder / "service.log", "service.cli", ["serve", "--port", "0"], {
            "FAULTHOUND_DATA": str(folder / "data"), "FAULTHOUND_LOG_JSON": "1",
        })  # fmt: skip
        url = _address(folder / "service.log", service)
        agents = {}
        for node in farm.nodes:
            own = ["run", "--service", url, "--node", node, "--state", str(folder / node), *agent_options]
            own += ["--path", f"proc={farm.proc(node)}", "--path", f"dev={farm.dev(node)}"]
            agents[node] = _started(stack, folder / f"{node}.log", "collectors.agent", own, {})
        yield Cluster(url, farm, {"service": service, **agents}, folder)


def _started(
    stack: ExitStack, log: Path, module: str, arguments: list[str], variables: dict[str, str]
) -> subprocess.Popen[bytes]:
    output = stack.enter_context(log.open("wb"))
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {module} import main; main()", *arguments], cwd=REPOSITORY,
        env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
    )  # fmt: skip
    stack.callback(process.wait, timeout=30)
    stack.callback(process.kill)
    return process


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + LISTENS_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text(errors="replace").splitlines():
            _, found, rest = line.partition("http://")
            if found:
                return "http://" + rest.split()[0].strip("\"',/}")
        time.sleep(0.05)
    raise RuntimeError(f"the service did not say where it listens:\n{log.read_text(errors='replace')[-2000:]}")


def run(scenario: Scenario, folder: Path, *, probe: bool) -> Path:
    """Run one scenario below agents and return the bundle that is exported afterwards."""
    launcher = scenario.truth.launcher
    quick = ("--ship-seconds", str(SHIP_SECONDS))
    with ExitStack() as stack:
        nodes = stack.enter_context(cluster(folder, scenario.nodes, *quick))
        job = stack.enter_context(driver.running(scenario))
        stack.enter_context(settling(partial(nodes.farm.settle, job)))
        job.labels = {"FAULTHOUND_JOB": JOB, "FAULTHOUND_ATTEMPT": "1"}
        if probe:
            job.bring_probe()
        watch = Watch(job)
        if launcher == "torchrun":
            job.start_torchrun()
        else:
            job.start_ranks(scenario.evidence())
        driver.wait(job, "fault", START_SECONDS, watch.struck())
        driver.wait(job, "placement", ANSWER_SECONDS, _until(lambda: len(nodes.placed()) == scenario.ranks))
        driver.inflict(job)
        if launcher == "torchrun":
            driver.wait(job, "end", START_SECONDS, driver.ended(job))
            time.sleep(3 * SHIP_SECONDS)
        else:
            _collect(nodes, job, watch, scenario)
        bundle = folder / "incident.fhz"
        nodes.faulthound("export", JOB, "--since", "10m", str(bundle))
    return bundle


def _collect(nodes: Cluster, job: Job, watch: Watch, scenario: Scenario) -> None:
    """Ask for evidence twice, some seconds apart: what has not moved between is stuck."""
    if scenario.fault != "healthy":
        driver.wait(job, "standstill", START_SECONDS + STILL_SECONDS, watch.stuck(STILL_SECONDS))
    for pause in (STILL_SECONDS, 2 * SHIP_SECONDS):
        nodes.faulthound("jobs", "collect", JOB, "stacks", "recorders")
        time.sleep(pause)


def _until(true: Any) -> Iterator[bool]:
    while True:
        yield bool(true())


def summary(bundle: Path) -> str:
    """Return what is in a bundle, for a failed test."""
    from collections import Counter

    from collectors.files.reading import read_paths

    found = Counter((type(record).__name__, record.node) for record in read_paths([bundle]))
    return json.dumps({f"{kind} {node}": count for (kind, node), count in sorted(found.items(), key=str)}, indent=1)
