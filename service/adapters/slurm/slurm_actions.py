"""What a remediation means in Slurm, and how it is done: look, change, look again, until it is so.

Every change is preceded by a look that decides whether it is still to be made. So each step may be repeated from the beginning:
after a command that timed out, after a restart of the controller, after one of ours.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection

from service.adapters.scheduler import CommandRefused, Keep, Placed, Remediation, Work, WorkFailed
from service.adapters.slurm import slurm_commands as commands
from service.adapters.slurm.slurm_commands import Slurm
from service.adapters.slurm.slurm_finding import RESTARTS, undo_work, work_of
from service.adapters.slurm.slurm_output import FAILED, RUNS, SlurmJob, SlurmNode, folded

QUEUED_SECONDS = 10.0  # a job that waits for this long, and may start, waits for nodes
SETTLED_SECONDS = 2.0
"""In the second in which its processes were ended a node refuses to start a job again: "Job credential revoked", and the job
has failed. So it is released a little later; and a started job counts as running once it has stayed."""
MOST_REQUEUES = 3
_UNSCHEDULED = frozenset({"None", "BeginTime"})  # the scheduler has not looked, or will in two minutes
_ON_ITS_WAY = frozenset({"COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING", "SIGNALING", "STAGE_OUT"})


class SlurmScheduler:
    """Slurm as a ``Scheduler``."""

    # Code is rolled back by the owner of the job; roles are slurm_roles.py's.
    kinds = RESTARTS | {"drain_after_job"}

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm

    def find(self, found: Remediation, placed: Callable[[], Placed]) -> Work:
        """Find the nodes and the job in Slurm."""
        return work_of(self._slurm, found, placed)

    def find_undo(
        self, found: Remediation, give_back: Collection[str] | None, is_undone: Callable[[str, str], bool]
    ) -> Work:
        """Find what is to be taken back."""
        return undo_work(self._slurm, found, give_back, is_undone)

    def commands(self, work: Work, task: str) -> list[list[str]]:
        """Return the commands; what is so already is left out when it is done."""
        nodes = list(work.nodes.values())
        if task == "undo":
            return [commands.undrain(node) for node in nodes]
        drains = [commands.drain(node, work.reason) for node in nodes]
        restart = [] if work.job is None else [commands.requeue(work.job), commands.start_now(work.job, nodes)]
        return drains + restart

    def drain(self, node: str, work: Work, keep: Keep) -> str | None:
        """Drain a node with our reason."""
        known = self._node(node, keep)
        if known.drained and known.reason.startswith(work.mark):
            return "drained"
        if foreign := _foreign(known, work):
            return foreign
        if refusal := self.change(commands.drain(node, work.reason), keep):
            raise WorkFailed(f"Slurm does not drain {node}: {refusal}")
        return None  # read back

    def undrain(self, node: str, work: Work, keep: Keep) -> str | None:
        """Take our drain back; a reason that is not ours stays, and so does its drain."""
        known = self._node(node, keep)
        if not known.drained:
            return f"not drained: {known.state}"
        if not known.reason.startswith((work.mark, *work.also)):
            return _foreign(known, work)
        if refusal := self.change(commands.undrain(node), keep):
            raise WorkFailed(f"Slurm does not take the drain of {node} back: {refusal}")
        after = self._node(node, keep)
        return f"given back: {after.state}" if not after.drained else None

    def restart(self, work: Work, begun_at: float, keep: Keep) -> _Restart:
        """Return what requeues the job and excludes the nodes."""
        return _Restart(self, work, begun_at, keep)

    def allow(self, work: Work, keep: Keep) -> str:
        """Let a job that still waits start on the nodes again."""
        assert work.job is not None
        job, ours = self.job(work.job, keep), set(work.nodes.values())
        if job is None or job.state != "PENDING" or not ours & set(job.excluded):
            return "left as it is"
        rest = [node for node in job.excluded if node not in ours]
        if refusal := self.change(commands.exclude(work.job, rest), keep):
            return f"left as it is: {refusal}"
        return f"may start on {folded(sorted(ours))} again"

    def age_seconds(self, job: SlurmJob, keep: Keep) -> float:
        """Return for how long a job has run, by Slurm's own clock, which may differ from every other."""
        keep()
        return math.inf if job.started_at is None else self._slurm.clock() - job.started_at

    def job(self, number: str, keep: Keep) -> SlurmJob | None:
        """Return a job."""
        keep()
        return self._slurm.job(number)

    def change(self, command: list[str], keep: Keep) -> str:
        """Run a command that changes something; return why Slurm refuses it, empty where it was done."""
        keep()
        try:
            self._slurm.change(command)
        except CommandRefused as refusal:
            return str(refusal)
        return ""

    def _node(self, name: str, keep: Keep) -> SlurmNode:
        keep()
        node = self._slurm.node(name)
        if node is None:
            raise WorkFailed(f"Slurm no longer has a node {name}")
        return node


class _Restart:
    """Has a job run again, elsewhere, once."""

    def __init__(self, slurm: SlurmScheduler, work: Work, begun_at: float, keep: Keep) -> None:
        assert work.job is not None
        self._slurm, self._number, self._begun_at, self._keep = slurm, work.job, begun_at, keep  # monotonic
        self._nodes = tuple(work.nodes.values())
        self._requeues, self.refusal = 0, ""
        self._released = False  # it may start at once
        self._state, self._since = "", 0.0  # at the last look, and since when (monotonic)

    def __call__(self) -> str | None:
        """Look, change what is to be changed, and return how the job runs; None: not yet."""
        job = self._slurm.job(self._number, self._keep)
        if job is None:
            raise WorkFailed(f"Slurm no longer knows job {self._number}: submit it again")
        if job.state != self._state:
            self._state, self._since = job.state, time.monotonic()
        if job.state == "PENDING":
            return self._waiting(job) if self._for(SETTLED_SECONDS) else None
        self._released = False
        if job.state in RUNS and not self._is_the_old(job):
            return f"runs on {folded(job.nodes)}" if self._for(SETTLED_SECONDS) else None
        if job.state in RUNS or job.state in FAILED:
            self._requeue()
        elif job.state not in _ON_ITS_WAY:
            raise WorkFailed(f"job {self._number} is {job.state.lower()}: it is not started again")
        return None

    def _for(self, seconds: float) -> bool:
        """Whether it has been in this state for so long."""
        return time.monotonic() - self._since > seconds

    def _is_the_old(self, job: SlurmJob) -> bool:
        """Whether this run is the one that is to end: on a node that is taken out; without nodes, from before the begin.

        The new run begins no sooner than ``SETTLED_SECONDS``, so that whole seconds are precise enough.
        """
        if self._nodes:
            return bool(set(self._nodes) & set(job.nodes))
        return self._slurm.age_seconds(job, self._keep) >= time.monotonic() - self._begun_at

    def _requeue(self) -> None:
        if self._requeues >= MOST_REQUEUES:
            refusal = f"; Slurm refused: {self.refusal}" if self.refusal else ""
            raise WorkFailed(f"job {self._number} does not leave after {self._requeues} requeues{refusal}")
        self.refusal = self._slurm.change(commands.requeue(self._number), self._keep)
        self._requeues += 1

    def _waiting(self, job: SlurmJob) -> str | None:
        # An update of a job that is still ending is lost when it enters the queue: it is repeated until it is kept.
        missing = not set(self._nodes) <= set(job.excluded)
        if missing or job.reason in _UNSCHEDULED or not self._released:
            everything = sorted({*job.excluded, *self._nodes})
            self.refusal = self._slurm.change(commands.start_now(self._number, everything), self._keep)
            self._released = self._released or not self.refusal
            return None
        return f"is queued: {job.reason}" if self._for(QUEUED_SECONDS) else None


def _foreign(node: SlurmNode, work: Work) -> str | None:
    """Describe another's reason or drain of a node; None where it is ours or there is none. Another's is never changed."""
    if node.reason.startswith(work.mark):
        return None
    if node.reason:
        return f"left as it is: {node.state}, reason of {node.by or 'an unknown user'}: {node.reason[:200]!a}"
    return f"left as it is: {node.state} without a reason" if node.drained else None
