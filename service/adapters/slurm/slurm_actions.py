"""What a remediation means in Slurm, and how it is done: look, change, look again, until it is so.

Every change is preceded by a look that decides whether it is still to be made, so that all of this can be done again from
the beginning: after a command that timed out, after a restart of the controller, after one of ours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

from service.adapters.slurm import slurm_commands as commands
from service.adapters.slurm.slurm_commands import Slurm, SlurmAway
from service.adapters.slurm.slurm_output import FAILED, RUNS, Job, Node, SlurmRefused, folded, reason

RESTARTS = frozenset({"evict", "reset_gpu", "reboot_node", "restart_job", "reattempt"})
KINDS = RESTARTS | {"drain_after_job"}
"""What can be done here. Code is rolled back, and a role restarted, by whoever owns the job."""
BY_HAND = {"reset_gpu": "reset the GPU; ", "reboot_node": "reboot the node; "}  # what a drained node is waiting for
POLL_SECONDS = 0.2
AWAY_SECONDS = 2.0  # until a controller that was away is asked again
PATIENCE_SECONDS = 300.0  # with a controller that is away, with processes that do not end
QUEUED_SECONDS = 10.0  # a job that waits for this long, and may start, waits for nodes
SETTLED_SECONDS = 2.0
"""In the second in which its processes were ended a node refuses to start a job again: "Job credential revoked", and the job
has failed. So it is let go a little later; and one that has started counts as running once it is not thrown out again."""
MOST_REQUEUES = 3
_UNSCHEDULED = frozenset({"None", "BeginTime"})  # the scheduler has not looked, or will in two minutes

Keep = Callable[[], None]
Told = TypeVar("Told")


class Failed(Exception):
    """It cannot be done: the message says why, for people."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One remediation in Slurm's own names. Nothing in it has been changed yet."""

    kind: str
    nodes: dict[str, str]  # as Faulthound names them → as Slurm does
    mark: str
    also: tuple[str, ...] = ()  # marks of others that are undone: what they left drained is given back with this one
    reason: str
    job: str | None = None  # its number
    kept: dict[str, str] = {}  # nodes that an undo leaves out → why
    problem: str | None = None  # why it cannot be done


def reason_of(found: dict[str, Any]) -> str:
    """Return the reason that nodes are drained with for a remediation: what is wrong comes before why this was chosen."""
    known = (found["symptom"], found["fault_class"].replace("_", " "), f"{found['probability']:.0%} sure")
    wrong = ", ".join(filter(None, known))
    return reason(found["incident"], found["id"], f"{BY_HAND.get(found['kind'], '')}{wrong}; {found['why']}")


def commands_of(work: Work) -> list[list[str]]:
    """Return the commands of a remediation, for a dry run; what is there already is left out when it is done."""
    nodes = list(work.nodes.values())
    told = [commands.drain(node, work.reason) for node in nodes]
    if work.job is not None:
        told += [commands.requeue(work.job), commands.start_now(work.job, nodes)]
    return told


class Doing:
    """Acts on Slurm under a claim. ``keep`` is called before every command, and raises where we must not act any more."""

    def __init__(self, slurm: Slurm, keep: Keep, did: dict[str, Any]) -> None:
        self._slurm, self._keep, self.did = slurm, keep, did

    def do(self, work: Work, begun_seconds_ago: float) -> None:
        """Drain the nodes, and have the job run elsewhere."""
        begun_at = time.monotonic() - begun_seconds_ago
        for known_as, node in work.nodes.items():
            self.did[known_as] = patiently(partial(self._drain, node, work), self._keep)
        if work.job is not None:
            self.did[f"job {work.job}"] = _Restart(self, work, begun_at).run()

    def undo(self, work: Work) -> None:
        """Give the nodes back that we drained; a reason that is not ours stays, and so does the drain."""
        self.did |= work.kept
        for known_as, node in work.nodes.items():
            self.did[known_as] = patiently(partial(self._undrain, node, work), self._keep)
        if work.job is not None:
            self.did[f"job {work.job}"] = patiently(partial(self._allow, work), self._keep)

    def age_seconds(self, job: Job) -> float:
        """Return for how long a job has run, by Slurm's own clock, which need not be anybody else's."""
        self._keep()
        return math.inf if job.started_at is None else self._slurm.clock() - job.started_at

    def look(self, number: str) -> Job | None:
        """Return a job."""
        self._keep()
        return self._slurm.job(number)

    def change(self, command: list[str]) -> str | None:
        """Run a command that changes something; return why Slurm will not, None where it has."""
        self._keep()
        try:
            self._slurm.change(command)
        except SlurmRefused as refusal:
            return str(refusal)
        return None

    def _drain(self, name: str, work: Work) -> str | None:
        node = self._node(name)
        if node.drained and node.reason.startswith(work.mark):
            return "drained"
        if foreign := _foreign(node, work):
            return foreign
        if (why := self.change(commands.drain(name, work.reason))) is not None:
            raise Failed(f"Slurm does not drain {name}: {why}")
        return None  # read back

    def _undrain(self, name: str, work: Work) -> str | None:
        node = self._node(name)
        if not node.drained:
            return f"not drained: {node.state}"
        if not node.reason.startswith((work.mark, *work.also)):
            return _foreign(node, work)
        if (why := self.change(commands.undrain(name))) is not None:
            raise Failed(f"Slurm does not take the drain of {name} back: {why}")
        after = self._node(name)
        return f"given back: {after.state}" if not after.drained else None

    def _allow(self, work: Work) -> str | None:
        """Let a job that still waits start on the nodes again."""
        assert work.job is not None
        job, ours = self.look(work.job), set(work.nodes.values())
        if job is None or job.state != "PENDING" or not ours & set(job.excluded):
            return "left as it is"
        rest = [node for node in job.excluded if node not in ours]
        if (why := self.change(commands.exclude(work.job, rest))) is not None:
            return f"left as it is: {why}"
        return f"may start on {folded(sorted(ours))} again"

    def _node(self, name: str) -> Node:
        self._keep()
        node = self._slurm.node(name)
        if node is None:
            raise Failed(f"Slurm has no node {name} any more")
        return node


class _Restart:
    """Has a job run again, elsewhere, once."""

    def __init__(self, doing: Doing, work: Work, begun_at: float) -> None:
        assert work.job is not None
        self._doing, self._number, self._begun_at = doing, work.job, begun_at  # monotonic
        self._nodes = tuple(work.nodes.values())
        self._requeues, self._refusal = 0, ""
        self._let_go = False  # it was told to start at once
        self._state, self._since = "", 0.0  # what it was at the last look, and since when (monotonic)

    def run(self) -> str:
        """Return how it runs; raise ``Failed`` where it does not come so far."""
        return patiently(self._once, lambda: None, self._refused)

    def _refused(self) -> str:
        return f"; Slurm says: {self._refusal}" if self._refusal else ""

    def _once(self) -> str | None:
        job = self._doing.look(self._number)
        if job is None:
            raise Failed(f"Slurm does not know job {self._number} any more: submit it again")
        if job.state != self._state:
            self._state, self._since = job.state, time.monotonic()
        if job.state == "PENDING":
            return self._waiting(job) if self._for(SETTLED_SECONDS) else None
        self._let_go = False
        if job.state in RUNS and not self._is_the_old(job):
            return f"runs on {folded(job.nodes)}" if self._for(SETTLED_SECONDS) else None
        if job.state in RUNS or job.state in FAILED:
            self._requeue()
        elif job.state not in ("COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING", "SIGNALING", "STAGE_OUT"):
            raise Failed(f"job {self._number} is {job.state.lower()}: that is not started again")
        return None

    def _for(self, seconds: float) -> bool:
        """Whether it has been in this state for so long."""
        return time.monotonic() - self._since > seconds

    def _is_the_old(self, job: Job) -> bool:
        """Whether this run is the one that is to end: on a node that is taken out; without one, from before we began.

        The new one begins no sooner than it has settled, so that whole seconds are good enough.
        """
        if self._nodes:
            return bool(set(self._nodes) & set(job.nodes))
        return self._doing.age_seconds(job) >= time.monotonic() - self._begun_at

    def _requeue(self) -> None:
        if self._requeues >= MOST_REQUEUES:
            raise Failed(f"job {self._number} does not leave after {self._requeues} requeues{self._refused()}")
        self._refusal = self._doing.change(commands.requeue(self._number)) or ""
        self._requeues += 1

    def _waiting(self, job: Job) -> str | None:
        # What is said to a job that is still ending is lost when it is put into the queue: it is said until it is kept.
        missing = not set(self._nodes) <= set(job.excluded)
        if missing or job.reason in _UNSCHEDULED or not self._let_go:
            everything = sorted({*job.excluded, *self._nodes})
            self._refusal = self._doing.change(commands.start_now(self._number, everything)) or ""
            self._let_go = self._let_go or not self._refusal
            return None
        return f"is queued: {job.reason}" if self._for(QUEUED_SECONDS) else None


def patiently(once: Callable[[], Told | None], keep: Keep, more: Callable[[], str] = str) -> Told:
    """Call until there is an answer. A controller that is away is asked again, for as long as the claim is kept."""
    until, problem = time.monotonic() + PATIENCE_SECONDS, "it is not so yet"
    while time.monotonic() < until:
        pause = POLL_SECONDS
        try:
            if (told := once()) is not None:
                return told
        except SlurmAway as away:
            problem, pause = str(away), AWAY_SECONDS
        except SlurmRefused as refusal:
            raise Failed(str(refusal)) from None
        time.sleep(pause)
        keep()
    raise Failed(f"given up after {PATIENCE_SECONDS:.0f} s: {problem}{more()}")


def _foreign(node: Node, work: Work) -> str | None:
    """Say whose a node's reason or drain is, None where it has none or ours. Another's is never overwritten, nor undone."""
    if node.reason.startswith(work.mark):
        return None
    if node.reason:
        return f"left as it is: {node.state}, {node.by or 'somebody'} says {node.reason[:200]!a}"
    return f"left as it is: {node.state} without a reason" if node.drained else None
