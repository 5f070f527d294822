"""The whole loop on a real Slurm: a real job below agents, a fault, a verdict, a policy or a person, a drain, the job runs on.

Nobody helps in between: what acts is ``faulthound serve``, an agent a node, and ``faulthound adapter slurm``.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec

from analyzers.remediation.types import Remediation
from tests.support.jobs import faults, live
from tests.support.jobs.farm import settling
from tests.support.remediation_rows import write_shadow_cases
from tests.support.slurm.cluster import SlurmCluster, SlurmFailed, slurm
from tests.support.slurm.settled import environment, settle

TRAIN = Path(__file__).resolve().parents[1] / "jobs"
RANKS = 3  # on four nodes: one is left to take an evicted one's place
JOB = "llama"
TRAINING_SECONDS = 240.0  # three imports of torch on two busy cores, and until the agents know the ranks
TRAINED_SECONDS = 8.0  # before the fault
TENANT_SECONDS = 125.0  # for so long a job that has ended counts as one that others must be careful with
LOOP_SECONDS = 240.0  # from the fault to the restarted job's first steps
AWAY_SECONDS = 5.0  # of a controller
UNATTENDED_SECONDS = 10.0  # in which nothing may happen
QUIET_SECONDS = 45.0  # after an end: an agent looks twice, and the engine waits for both
GOOD_STEPS = 3
FAULTS = ("sigstop", "spin")
KILLED = "sigkill"  # by nobody knows whom: no machine is taken for it
ENDS = ("scancel", "time-limit", "requeue")  # what a person or a limit does to a sound job
POLICY = """\
[limits]
evictions_an_hour = 1000
breaker_least_nodes = 1000

[[rules]]
name = "machines"
kind = "evict"
mode = "{mode}"
least_probability = 0.5
least_precision = 0.8
"""
SHADOWED = Remediation(
    id="", incident="", verdict_version=1, job="before", attempt=0, kind="evict", nodes=("gpu9",), fault_class="stopped",
    symptom="hang", probability=0.95, why="", proposed_at=0.0, mode="shadow", rule="machines",
)  # fmt: skip
SCRIPT = """\
#!/bin/bash
#SBATCH --job-name={job}
#SBATCH --requeue
export TRAIN_PRIVATE={private}/run${{SLURM_RESTART_COUNT:-0}}
mkdir -p $TRAIN_PRIVATE
[ -n "$SLURM_RESTART_COUNT" ] && export TRAIN_FAULTS='[]'
srun --kill-on-bad-exit=1 bash -c '
export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS FAULTHOUND_WORKER_SERVER=$TRAIN_PRIVATE/$SLURM_PROCID.sock
exec {python} {private}/train.py --rank $RANK --world-size $WORLD_SIZE --rendezvous file://$TRAIN_PRIVATE/rendezvous \
  >>$TRAIN_PRIVATE/rank$RANK.log 2>&1'
"""


@dataclass
class Outcome:
    """What came of one fault. Seconds are counted from the fault."""

    fault: str
    culprit: str  # the node
    verdict_seconds: float | None = None
    drained_seconds: float | None = None
    running_seconds: float | None = None  # the job, on other nodes, as Slurm says
    training_seconds: float | None = None  # its first steps there
    drained: dict[str, str] = field(default_factory=dict)  # node → reason, of all that are out
    restarts: int = 0
    status: str = ""
    wrong: list[str] = field(default_factory=list)

    def reported(self) -> str:
        """Return it as a line."""
        return ", ".join(f"{name} {value}" for name, value in asdict(self).items() if value not in (None, [], {}, ""))


@dataclass
class Loop:
    """Slurm, the service, its agents and its adapter, all running."""

    slurm: SlurmCluster
    nodes: live.Cluster
    adapter: subprocess.Popen[bytes]
    folder: Path
    alone_at: float = 0.0  # when no job of before counts any more, UTC

    def remediations(self, job: str) -> list[dict[str, Any]]:
        """Return the remediations of a job."""
        items: list[dict[str, Any]] = self.nodes.get(f"/v1/remediations?job={job}")["items"]
        return items

    def decide(self, job: str, verb: str) -> str:
        """Approve, or have undone, the remediation of a job, as a person does; return its id."""
        id: str = self.remediations(job)[0]["id"]
        self.nodes.faulthound("remediations", verb, id, "--reason", "it is its turn", "--yes")
        return id

    def wait(self, what: str, seconds: float, true: Callable[[], bool]) -> float:
        """Wait until something is so; return when it was, UTC."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(httpx.HTTPError, SlurmFailed):
                if true():
                    return time.time()
            time.sleep(0.1)
        raise SlurmFailed(f"no {what} within {seconds:.0f} s\n{self.slurm.logs()}\n{self.nodes.log()}")


@dataclass
class Training:
    """A real gloo job that Slurm runs."""

    loop: Loop
    number: str
    private: Path

    @property
    def name(self) -> str:
        """The job as agents know it."""
        return f"{JOB}-{self.number}"

    def run(self, restarts: int = 0) -> Path:
        """Return the folder of one of its runs."""
        return self.private / f"run{restarts}"

    def trains(self, restarts: int = 0, steps: int = GOOD_STEPS) -> bool:
        """Whether every rank of a run has come so far."""
        reached = faults.steps(self.run(restarts))
        return len(reached) == RANKS and min(reached.values()) >= steps

    def known(self) -> bool:
        """Whether the service knows where all ranks run."""
        return len(self.loop.nodes.placed(self.name)) == RANKS

    def place(self, rank: int) -> str:
        """Return a rank's node."""
        return self.loop.nodes.placed(self.name)[rank]


@contextmanager
def loop(folder: Path, mode: str = "automatic") -> Iterator[Loop]:
    """Run everything. ``mode``: of the policy; shadow mode has shown before that an automatic one may act."""
    (folder / "policy.toml").write_text(POLICY.format(mode=mode))
    write_shadow_cases(folder / "cluster" / "data", SHADOWED)
    with ExitStack() as stack:
        cluster = stack.enter_context(slurm(folder / "slurm"))
        with environment(FAULTHOUND_POLICY=str(folder / "policy.toml")):
            nodes = stack.enter_context(live.cluster(folder / "cluster", cluster.nodes))
        stack.enter_context(settling(partial(settle, nodes.farm, cluster), 0.5))
        adapter = stack.enter_context(adapting(nodes.url, cluster, folder))
        yield Loop(cluster, nodes, adapter, folder)


@contextmanager
def adapting(url: str, cluster: SlurmCluster, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the adapter."""
    with (folder / "cluster" / "adapter.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", "from service.cli import main; main()", "adapter", "slurm", "--service", url],
            cwd=live.REPOSITORY, env=os.environ | cluster.variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=30)


@contextmanager
def training(on: Loop, fault: str, rank: int) -> Iterator[Training]:
    """Run a job that trains, with a fault to come in one rank; it and what it drained are gone afterwards."""
    private = Path(tempfile.mkdtemp(prefix="train-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    for name in ("train.py", "faults.py"):
        shutil.copy(TRAIN / name, private / name)
    script = private / "job.sh"
    script.write_text(SCRIPT.format(job=JOB, private=private, python=sys.executable))
    kind = "signal" if fault in ("sigstop", "sigkill") else fault
    planned = [] if fault == "none" else [{"kind": kind, "rank": rank, "step": 0, "variant": 0}]
    with environment(
        OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", TORCH_FR_BUFFER_SIZE="100", PYTHONDONTWRITEBYTECODE="1",
        TRAIN_FAULTS=msgspec.json.encode(planned).decode(), TRAIN_SHARD_SECONDS="0.15", TRAIN_LIMIT_SECONDS="900",
    ):  # fmt: skip
        number = on.slurm.submit(
            script, f"-N{RANKS}", f"-n{RANKS}", f"--output={private}/job.log", f"--chdir={private}"
        )
    try:
        yield Training(on, number, private)
    finally:
        on.slurm.clear()
        on.alone_at = time.time() + TENANT_SECONDS
        shutil.rmtree(private, ignore_errors=True)


def trial(on: Loop, fault: str, rank: int, drained: Callable[[Loop], None] = lambda _on: None) -> Outcome:
    """Run one fault through the whole loop. ``drained``: what happens as soon as the node is out."""
    with training(on, fault, rank) as job:
        _train(job)
        outcome = Outcome(fault, job.place(rank))
        struck_at = strike(job, fault, rank)
        try:
            _follow(job, outcome, struck_at, drained)
        except SlurmFailed as failure:
            outcome.wrong.append(str(failure))
        _look(job, outcome)
    return outcome


def controller_restarts(on: Loop) -> None:
    """Let Slurm's controller be away for a few seconds: between the drain and the restart, or in the middle of it."""
    on.slurm.stop_controller()
    time.sleep(AWAY_SECONDS)
    on.slurm.start_controller()


def person(on: Loop, rank: int) -> Outcome:
    """Under a policy that only proposes: nothing happens until somebody approves, and an undo gives the node back."""
    with training(on, "sigstop", rank) as job:
        _train(job)
        outcome = Outcome("sigstop", job.place(rank))
        struck_at = strike(job, "sigstop", rank)
        try:
            on.wait("proposal", LOOP_SECONDS, lambda: bool(on.remediations(job.name)))
            time.sleep(UNATTENDED_SECONDS)
            if (reported := on.slurm.node(outcome.culprit)[1]) or on.slurm.restarts(job.number):
                outcome.wrong.append(f"something was done before anybody approved: {reported!a}")
            id = on.decide(job.name, "approve")
            _follow(job, outcome, struck_at, lambda _on: None)
            _look(job, outcome)
            on.decide(job.name, "undo")
            on.wait("undo", LOOP_SECONDS, lambda: on.nodes.get(f"/v1/remediations/{id}")["status"] == "undone")
            if on.slurm.node(outcome.culprit)[1]:
                outcome.wrong.append(f"{outcome.culprit} was not given back")
        except SlurmFailed as failure:
            outcome.wrong.append(str(failure))
    return outcome


def ended(on: Loop, how: str) -> Outcome:
    """End a sound job as Slurm's users do, or let it run into its limit: no incident stays open, nothing is proposed or done."""
    with training(on, "none", rank=0) as job:
        _train(job)
        outcome = Outcome(how, culprit="")
        struck_at = _end(job, how)
        try:
            if how == "requeue":
                outcome.training_seconds = round(
                    on.wait("steps", LOOP_SECONDS, lambda: job.trains(restarts=1)) - struck_at, 1
                )
            else:
                on.wait("end", LOOP_SECONDS, lambda: on.slurm.job(job.number)[0] in ("", "CANCELLED", "TIMEOUT"))
        except SlurmFailed as failure:
            outcome.wrong.append(str(failure))
        time.sleep(QUIET_SECONDS)
        _look_at_an_end(job, outcome)
    return outcome


def killed(on: Loop, rank: int) -> Outcome:
    """Kill one rank: its death is judged, who sent the signal is unknown, and no node is taken for it."""
    with training(on, KILLED, rank) as job:
        _train(job)
        outcome = Outcome(KILLED, culprit="")
        struck_at = strike(job, KILLED, rank)
        try:
            on.wait("verdict", LOOP_SECONDS, lambda: bool(_verdicts(on, job.name)))
            outcome.verdict_seconds = round(min(_verdicts(on, job.name)) - struck_at, 1)
        except SlurmFailed as failure:
            outcome.wrong.append(str(failure))
        time.sleep(QUIET_SECONDS)
        outcome.drained = {node: on.slurm.node(node)[1] for node in on.slurm.nodes if on.slurm.node(node)[1]}
        outcome.wrong += [f"{node} is out for {reason!a}" for node, reason in outcome.drained.items()]
    return outcome


def _end(job: Training, how: str) -> float:
    """End a job; return when."""
    slurm = job.loop.slurm
    if how == "time-limit":
        slurm.run("scontrol", "update", f"JobId={job.number}", "TimeLimit=1")
    elif how == "requeue":
        slurm.run("scontrol", "requeue", job.number)
    else:
        slurm.run("scancel", job.number)
    return time.time()


def _look_at_an_end(job: Training, outcome: Outcome) -> None:
    on = job.loop
    still = [one["id"] for one in on.nodes.get(f"/v1/incidents?job={job.name}&status=open")["items"]]
    proposed = [f"{one['kind']} {one['status']}" for one in on.remediations(job.name)]
    outcome.drained = {node: on.slurm.node(node)[1] for node in on.slurm.nodes if on.slurm.node(node)[1]}
    outcome.restarts = on.slurm.restarts(job.number)
    outcome.wrong += [f"incident {id} is open" for id in still] + [f"proposed: {one}" for one in proposed]
    outcome.wrong += [f"{node} is out for {reason!a}" for node, reason in outcome.drained.items()]
    if outcome.restarts != (outcome.fault == "requeue"):
        outcome.wrong.append(f"the job was restarted {outcome.restarts} times")


def strike(job: Training, fault: str, rank: int) -> float:
    """Let the fault strike; return when."""
    faults.strike(job.run())
    job.loop.wait("fault", TRAINING_SECONDS, lambda: rank in faults.reached(job.run()))
    if fault in ("sigstop", "sigkill"):
        os.kill(faults.pids(job.run())[rank], signal.SIGSTOP if fault == "sigstop" else signal.SIGKILL)
        return time.time()
    return faults.struck_at(job.run())


def _train(job: Training) -> None:
    """Let a job train until the service knows it, and nobody else is known to run there."""
    job.loop.wait("training", TRAINING_SECONDS, lambda: job.trains() and job.known())
    time.sleep(max(TRAINED_SECONDS, job.loop.alone_at - time.time()))


def _follow(job: Training, outcome: Outcome, struck_at: float, drained: Callable[[Loop], None]) -> None:
    on = job.loop

    def since(at: float) -> float:
        return round(at - struck_at, 1)

    on.wait("verdict", LOOP_SECONDS, lambda: bool(_verdicts(on, job.name)))
    outcome.verdict_seconds = since(min(_verdicts(on, job.name)))
    outcome.drained_seconds = since(on.wait("drain", LOOP_SECONDS, lambda: on.slurm.node(outcome.culprit)[1] != ""))
    drained(on)
    outcome.running_seconds = since(on.wait("restart", LOOP_SECONDS, lambda: _runs_without(job, outcome.culprit)))
    outcome.training_seconds = since(on.wait("steps", LOOP_SECONDS, lambda: job.trains(restarts=1)))
    on.wait("completion", LOOP_SECONDS, lambda: any(one["completed_at"] for one in on.remediations(job.name)))


def _look(job: Training, outcome: Outcome) -> None:
    """Say what is wrong with how it ended: exactly the culprit is out, with our reason; the job was restarted once."""
    states = {node: job.loop.slurm.node(node) for node in job.loop.slurm.nodes}
    outcome.drained = {node: reason for node, (_, reason) in states.items() if reason}
    outcome.restarts = job.loop.slurm.restarts(job.number)
    ours = [one for one in job.loop.remediations(job.name) if one["began_at"]]
    outcome.status = ",".join(one["status"] for one in ours)
    if list(outcome.drained) != [outcome.culprit]:
        outcome.wrong.append(f"out are {sorted(outcome.drained)}, not {outcome.culprit}")
    elif not outcome.drained[outcome.culprit].startswith("faulthound inc-"):
        outcome.wrong.append(f"{outcome.culprit} is out for {outcome.drained[outcome.culprit]!a}")
    if outcome.restarts != 1:
        outcome.wrong.append(f"the job was restarted {outcome.restarts} times")
    if len(ours) != 1:
        outcome.wrong.append(f"{len(ours)} remediations were executed")


def _runs_without(job: Training, node: str) -> bool:
    from service.adapters.slurm.slurm_output import expanded

    state, nodes = job.loop.slurm.job(job.number)
    return state == "RUNNING" and node not in expanded(nodes)


def _verdicts(on: Loop, job: str) -> list[float]:
    rows = on.nodes.get(f"/v1/incidents?job={job}")["items"]
    return [row["verdict"]["at"] for row in rows if row["verdict"]]
