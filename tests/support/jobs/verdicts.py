"""A real job below agents at their usual settings, and a service: what a scheduler reads there, and how soon.

The job trains until the agents know all of it; then the fault strikes, at no special moment of the agents' intervals.
Nobody asks for evidence and no file of the job is read: what is judged here came over REST.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore
from typing import Any

import httpx

from tests.support.jobs import driver, faults, live
from tests.support.jobs.collect import host_of
from tests.support.jobs.driver import START_SECONDS, JobFailed, Watch
from tests.support.jobs.farm import settling
from tests.support.jobs.job import Job
from tests.support.jobs.judged import EVICTIONS, complaints, complaints_about_nodes, innocents_evicted
from tests.support.jobs.scenarios import Scenario, Topology

NODES = 4
SHARD_SECONDS = 0.15  # a step takes twice to five times as long: an idle job, so that the machine's two cores suffice
KNOWN_SECONDS = 60.0
TRAINED_SECONDS = (5.0, 15.0)  # before the fault: any moment of the agents' ten seconds
HEALTHY_SECONDS = 30.0
FIRST_SECONDS = 30.0  # the bound on the first verdict
WAITED_SECONDS = 240.0  # for one that is late, which it may be on a busy machine; it is reported how late
SECOND_LOOK_SECONDS = 120.0  # likewise
TERM_SECONDS = 3.0  # between the two signals with which a scheduler ends a job
CLOSED_SECONDS = 240.0  # an agent that was not heard tries again within a minute
AFTERMATH_SECONDS = 8.0  # in which what the end leaves in the logs could open a second incident
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Trial:
    """One fault in one job, with or without the probe."""

    scenario: Scenario
    probe: bool

    @classmethod
    def draw(cls, fault: str, topology: Topology, seed: int, *, probe: bool = False) -> Trial:
        """Choose culprits by seed; the ranks are on four nodes, and the step is the driver's choice."""
        drawn = Scenario.draw(fault, topology, seed)
        return cls(replace(drawn, step=0, ranks_per_node=drawn.ranks // NODES), probe)

    def on(self, first_node: int) -> Trial:
        """Return the same trial on the four nodes from this one."""
        return replace(self, scenario=replace(self.scenario, first_node=first_node))

    @property
    def job(self) -> str:
        """Return the job's name, which is no other trial's."""
        return f"{self.scenario.key}{'-probe' * self.probe}"

    @property
    def evicts(self) -> bool:
        """Return whether the newest verdict has to take the culprits' nodes out: two looks have shown them stuck."""
        fault = self.scenario.truth
        return fault.cause == "machine" and fault.symptom == "hang"


@dataclass
class Outcome:
    """What was seen of a trial."""

    trial: Trial
    incidents: list[dict[str, Any]] = field(default_factory=list)  # as the list has them at the end
    documents: list[dict[str, Any]] = field(default_factory=list)  # every version of the first one's verdict
    struck_at: float = 0.0  # UTC seconds by the driver's clock, which is the service's
    first_seconds: float | None = None  # from there until the first verdict could be read
    first_looks: int = 0  # rounds of evidence that the first verdict had
    replayed: list[str] = field(default_factory=list)  # what a replay of the exported bundle gets otherwise
    left_open: list[str] = field(default_factory=list)  # what is known of an incident that did not close
    exported: Path | None = None  # what `faulthound export` gave of the job while it hung
    seconds: float = 0.0  # that the trial took


def nodes_for(together: int) -> list[str]:
    """Return the names of the nodes that so many jobs at once take, and those of a job whose end is watched."""
    return [host_of(number, ranks_per_node=1) for number in range(NODES * (together + 1))]


@contextmanager
def side_by_side(
    nodes: live.Cluster, trials: Sequence[Trial], folder: Path, together: int
) -> Iterator[dict[str, Future[Outcome]]]:
    """Run trials, so many jobs at once, each on four nodes of its own; give what comes of each by its job's name.

    While the end of a job is watched the next one starts: its incident closes, its aftermath opens no other.
    """
    free: SimpleQueue[int] = SimpleQueue()
    for slot in range(together + 1):
        free.put(slot * NODES)
    alive = Semaphore(together)

    def one(trial: Trial) -> Outcome:
        first_node = free.get()
        try:
            return run(nodes, trial.on(first_node), folder / trial.job, alive)
        finally:
            free.put(first_node)

    pool = ThreadPoolExecutor(together + 1)
    try:
        yield {trial.job: pool.submit(one, trial) for trial in trials}
    finally:
        pool.shutdown(cancel_futures=True)


def run(nodes: live.Cluster, trial: Trial, folder: Path, alive: Semaphore) -> Outcome:
    """Run one trial; ``folder`` gets the incident's bundle. ``alive`` is held as long as the job runs."""
    outcome = Outcome(trial)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        client = stack.enter_context(httpx.Client(base_url=nodes.url, timeout=30))
        with alive:
            begun_at = time.monotonic()
            job = stack.enter_context(driver.running(trial.scenario))
            stack.enter_context(settling(partial(nodes.farm.settle, job)))
            watch = _start(trial, job)
            _train(nodes, trial, job, watch)
            outcome.struck_at = _strike(job, watch)
            first = _first_verdict(client, trial, outcome)
            if first is not None and trial.evicts:
                _wait(SECOND_LOOK_SECONDS, lambda: _looked_twice(client, first))
                outcome.exported = folder / "job.fhz"
                nodes.faulthound("export", trial.job, "--since", "10m", str(outcome.exported))
            _end(job)
            ended_at = time.monotonic()
        _wait(CLOSED_SECONDS, lambda: all(row["closed_at"] for row in _incidents(client, trial)))
        if first is not None:
            _keep(nodes, client, first, outcome, folder)
        time.sleep(max(0.0, ended_at + AFTERMATH_SECONDS - time.monotonic()))
        outcome.incidents = _incidents(client, trial)
        outcome.left_open = [_why_open(client, row) for row in outcome.incidents if row["closed_at"] is None]
    outcome.seconds = round(time.monotonic() - begun_at, 1)
    return outcome


def _start(trial: Trial, job: Job) -> Watch:
    job.labels = {
        "FAULTHOUND_JOB": trial.job, "FAULTHOUND_ATTEMPT": "1",
        "TRAIN_SHARD_SECONDS": str(SHARD_SECONDS), "TRAIN_LIMIT_SECONDS": "900",
    }  # fmt: skip
    if trial.probe:
        job.bring_probe()
    if trial.scenario.truth.launcher == "torchrun":
        job.start_torchrun()
    else:
        job.start_ranks(trial.scenario.evidence())
    return Watch(job)


def _train(nodes: live.Cluster, trial: Trial, job: Job, watch: Watch) -> None:
    """Let the job train until the service knows where its ranks are, and some seconds more."""

    def known() -> Iterator[bool]:
        while True:
            steps = faults.steps(job.private)
            if steps and not job.launched():
                raise JobFailed(f"{trial.scenario.name}: it ended before its fault\n{job.log()}")
            training = len(steps) == trial.scenario.ranks and min(steps.values()) > 0
            yield training and len(nodes.placed(trial.job)) == trial.scenario.ranks

    driver.wait(job, "placement", START_SECONDS + KNOWN_SECONDS, known())
    time.sleep(random.Random(trial.job).uniform(*TRAINED_SECONDS))
    watch.still_seconds()


def _strike(job: Job, watch: Watch) -> float:
    faults.strike(job.private)
    driver.wait(job, "fault", START_SECONDS, watch.struck())
    if job.scenario.truth.signal:
        struck_at = time.time()
        driver.inflict(job)
        return struck_at
    return faults.struck_at(job.private)


def _first_verdict(client: httpx.Client, trial: Trial, outcome: Outcome) -> str | None:
    """Wait for the first verdict and return its incident's id; of a healthy job there is none for a while."""
    healthy = trial.scenario.truth.symptom == "healthy"
    judged: list[dict[str, Any]] = []

    def published() -> bool:
        judged[:] = [row for row in _incidents(client, trial) if row["verdict"]]
        return bool(judged)

    _wait(HEALTHY_SECONDS if healthy else WAITED_SECONDS, published)
    if not judged:
        return None
    outcome.first_seconds = round(time.time() - outcome.struck_at, 2)
    incident: str = judged[-1]["id"]  # the newest is first
    return incident


def _wait(seconds: float, holds: Callable[[], bool]) -> None:
    """Poll until something holds or its time is over; what a busy service does not answer is asked again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with suppress(httpx.TransportError):
            if holds():
                return
        time.sleep(POLL_SECONDS)


def _incidents(client: httpx.Client, trial: Trial) -> list[dict[str, Any]]:
    return _items(client, "/v1/incidents", job=trial.job)


def _items(client: httpx.Client, path: str, **query: str) -> list[dict[str, Any]]:
    answer = client.get(path, params=query)
    answer.raise_for_status()
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def _why_open(client: httpx.Client, row: dict[str, Any]) -> str:
    reported = _items(client, f"/v1/incidents/{row['id']}/timeline")
    ranks = _items(client, f"/v1/jobs/{row['job']}/ranks")
    return f"timeline {json.dumps(reported[-12:])}, ranks {json.dumps(ranks)}"


def _looked_twice(client: httpx.Client, incident: str) -> bool:
    reported = _items(client, f"/v1/incidents/{incident}/timeline")
    return any(one["kind"] == "judged" and one["details"].get("looks", 0) >= 2 for one in reported)


def _end(job: Job) -> None:
    """End the job as a scheduler does: a signal that can be heard, then one that need not be."""
    alive = job.alive()
    for pid in alive.values():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + TERM_SECONDS
    while job.alive() and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    job.kill()


def _keep(nodes: live.Cluster, client: httpx.Client, incident: str, outcome: Outcome, folder: Path) -> None:
    """Read every version of the verdict, export the incident, and replay the bundle."""
    newest = client.get(f"/v1/incidents/{incident}").json()["verdict"]["version"]
    served = []
    for version in range(1, newest + 1):
        answer = client.get(f"/v1/incidents/{incident}/verdict", params={"version": version})
        answer.raise_for_status()
        served.append(answer.content)
    outcome.documents = [json.loads(document) for document in served]
    reported = _items(client, f"/v1/incidents/{incident}/timeline")
    outcome.first_looks = next((one["details"].get("looks", 0) for one in reported if one["kind"] == "published"), 0)
    bundle = folder / "incident.fhz"
    try:
        nodes.faulthound("incidents", "export", incident, str(bundle))
        nodes.faulthound("replay", str(bundle))
        again = nodes.faulthound("replay", str(bundle), "--version", str(newest), "--json")
    except RuntimeError as error:
        outcome.replayed.append(str(error))
        return
    if again.encode().strip() != served[-1].strip():
        outcome.replayed.append(f"version {newest} of {incident} replays as other bytes than were served")


def wrong(outcome: Outcome) -> list[str]:
    """Return what a scheduler would have been informed wrongly or twice; empty where all was right."""
    return [*_wrong_openings(outcome), *_wrong_verdicts(outcome), *outcome.replayed]


def late(outcome: Outcome) -> list[str]:
    """Return that the first verdict came late, which it may on a busy machine."""
    if outcome.first_seconds is None or outcome.first_seconds <= FIRST_SECONDS:
        return []
    return [f"the first verdict came after {outcome.first_seconds:.1f} s, more than {FIRST_SECONDS:.0f}"]


def _wrong_openings(outcome: Outcome) -> Iterator[str]:
    own = [row["id"] for row in outcome.incidents]
    most = 0 if outcome.trial.scenario.truth.symptom == "healthy" else 1
    if len(own) != most:
        kinds = [(row["id"], row["kind"], round(row["onset_at"] - outcome.struck_at, 1)) for row in outcome.incidents]
        yield f"{len(own)} incidents, not {most}: (id, kind, seconds after the fault) {kinds}"
    for row in outcome.incidents:
        if row["closed_at"] is None:
            yield f"{row['id']} is still open {CLOSED_SECONDS:.0f} s after the job was ended: {outcome.left_open}"


def _wrong_verdicts(outcome: Outcome) -> Iterator[str]:
    scenario, documents = outcome.trial.scenario, outcome.documents
    for version, document in enumerate(documents, 1):
        yield from (f"version {version} would evict {node}" for node in innocents_evicted(scenario, document))
    if scenario.truth.symptom == "healthy":
        return
    if not documents:
        yield f"no verdict within {WAITED_SECONDS:.0f} s"
        return
    for name, document in (("first", documents[0]), ("newest", documents[-1])):
        faulty = complaints(scenario, document) + complaints_about_nodes(scenario, document)
        yield from (f"{name} verdict: {each}" for each in faulty)
    yield from _wrong_action(outcome, documents)


def _wrong_action(outcome: Outcome, documents: list[dict[str, Any]]) -> Iterator[str]:
    trial = outcome.trial
    action, guilty = documents[-1]["action"], sorted({trial.scenario.host_of(rank) for rank in trial.scenario.culprits})
    # Two at once leave each the less sure: to have both probed, or the one evicted that two looks have seen, is right too.
    several = len(trial.scenario.culprits) > 1
    enough, asked = ("evict", "probe") if several else ("evict",), sorted(action["nodes"])
    complete = asked == guilty or (several and action["kind"] == "evict" and set(asked) < set(guilty) and asked)
    if trial.evicts and (action["kind"] not in enough or not complete):
        yield f"the newest action is {action['kind']} {action['nodes']}, not evict {guilty}"
    # Of a stopped process one look is enough where an ordinary run of the agent has seen it stopped before. On a busy machine
    # the first round may lack stacks: then the second round's judgement is the first verdict.
    first = documents[0]["action"]["kind"]
    if trial.evicts and trial.scenario.fault != "sigstop" and first in EVICTIONS and outcome.first_looks < 2:
        yield f"the first verdict would {first} after {outcome.first_looks} rounds"
