"""What every scheduler adapter does: claim, keep the lease, do or undo the work, report it, and recover after a restart.

A scheduler adds its own commands only: the ``Scheduler`` protocol. The loop stores nothing: the service knows what is to be
done, the scheduler what has been done. So the process may be killed at any moment; the next one resumes the claim, if its
lease has not run out.
"""

from __future__ import annotations

import math
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar, cast

import msgspec

from analyzers.remediation.types import CLAIMED
from collectors.records.printable import printable
from service.adapters.claims import ClaimLost, HeldClaim
from service.adapters.role_names import directory
from service.client import RequestRefused, Say, ServicePatience, Unreachable, resource

if TYPE_CHECKING:
    from service.client import Connection

POLL_SECONDS = 1.0
STEP_SECONDS = 0.2  # between two looks at work that is under way
AWAY_SECONDS = 2.0  # until a scheduler that was away is asked again
PATIENCE_SECONDS = 300.0  # with a scheduler that is away, with processes that do not end
UNDO_AGAIN_SECONDS = 60.0  # a failed undo can be claimed at once; its cause lasts longer
MOST_REMEMBERED = 1_000  # notes that are not repeated
ROLE = "restart_role"  # the kind that a RoleRestarter does

Remediation = dict[str, Any]  # as REST sends it
Keep = Callable[[], None]
Result = TypeVar("Result")


class SchedulerAway(Exception):
    """The scheduler does not answer now. Whether it has done what it was asked is unknown."""


class CommandRefused(Exception):
    """The scheduler answers and refuses a command."""


class NotHere(Exception):
    """This scheduler does not know the remediation's nodes or job: another one may."""


class WorkFailed(Exception):
    """The work cannot be done; the message gives the reason."""


class Placed(NamedTuple):
    """Where the attempt's ranks were seen, and how long ago last, by the service's clock."""

    nodes: Sequence[str] = ()
    seconds_ago: float = -math.inf


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """One remediation in the scheduler's own names."""

    kind: str
    nodes: dict[str, str]  # Faulthound's name → the scheduler's
    mark: str = ""  # what the reason of each drain of this remediation begins with
    also: tuple[str, ...] = ()  # marks of undone remediations whose drains are taken back with this one
    reason: str = ""
    job: str | None = None  # the scheduler's id of the job to restart
    kept: dict[str, str] = {}  # nodes that an undo leaves out → why
    problem: str | None = None  # why it cannot be done


class Restart(Protocol):
    """Restarts one job. It is called until it returns how the job runs. ``refusal``: what the scheduler refused last."""

    refusal: str

    def __call__(self) -> str | None:
        """Look, change what is to be changed, and return how the job runs; None: call again."""


class RoleWork(msgspec.Struct, frozen=True, kw_only=True):
    """The restart of a role. ``epochs``: of the instances that are still to be replaced."""

    role: str
    epochs: dict[str, int]
    plan: Remediation
    problem: str | None = None  # why it cannot be done

    @classmethod
    def of(cls, found: Remediation) -> RoleWork:
        """Return the whole work of a remediation."""
        return cls(role=found["role"], epochs=dict((found["role_restart"] or {}).get("epochs") or {}), plan=found)

    @property
    def restart(self) -> Remediation:
        """Which instances are restarted, and where (``role_restart``)."""
        return self.plan["role_restart"] or {}

    @property
    def instances(self) -> list[str]:
        """The instances by name; one that was never registered is known by the plan alone; empty: all of the role."""
        one = self.restart.get("instance")
        return sorted(self.epochs) or ([one] if one else [])

    @property
    def what(self) -> str:
        """Name it for people: ``rollout 1,2``."""
        return f"{self.role} {','.join(self.instances)}".strip()


class RoleRestarter(Protocol):
    """What a scheduler does to restart one role of a job while the others go on. ``keep`` as for a ``Scheduler``.

    The loop fences the old epochs between ``restart``, which looks what runs, and the first call of what it returns.
    """

    def find_role(self, work: RoleWork) -> RoleWork:
        """Return it, with a ``problem`` where it cannot be done; raise ``NotHere``."""

    def role_commands(self, work: RoleWork) -> list[list[str]]:
        """Return the commands of a dry run."""

    def restart_role(self, work: RoleWork, keep: Keep) -> Restart:
        """Return what ends the instances, once, and looks until each runs anew."""


class Scheduler(Protocol):
    """A scheduler's own commands for nodes and whole jobs.

    ``keep`` is called before each command, and raises where the lease is lost.

    ``drain``, ``undrain`` and ``allow`` return what is so, and None where they are to be called again. Each looks before it
    changes anything, so that calling it again is safe.
    """

    @property
    def kinds(self) -> Collection[str]:
        """Return the kinds of remediations that it can do."""

    def find(self, found: Remediation, placed: Callable[[], Placed]) -> Work:
        """Find the nodes and the job; raise ``NotHere``."""

    def find_undo(
        self, found: Remediation, give_back: Collection[str] | None, is_undone: Callable[[str, str], bool]
    ) -> Work:
        """Find what is to be taken back. ``give_back``: nodes that no other remediation holds; None: not known yet."""

    def commands(self, work: Work, task: str) -> list[list[str]]:
        """Return the commands of a dry run."""

    def drain(self, node: str, work: Work, keep: Keep) -> str | None:
        """Let nothing new start on a node."""

    def restart(self, work: Work, begun_at: float, keep: Keep) -> Restart:
        """Return what has the job run elsewhere, once. ``begun_at``: of ``time.monotonic``."""

    def undrain(self, node: str, work: Work, keep: Keep) -> str | None:
        """Take our drain of a node back."""

    def allow(self, work: Work, keep: Keep) -> str | None:
        """Let a job that still waits start on the nodes again."""


class ClaimLoop:
    """Does what can be claimed, one remediation after the other. An adapter does nodes and jobs, or roles, or both."""

    def __init__(
        self, connection: Connection, scheduler: Scheduler | None, say: Say, roles: RoleRestarter | None = None
    ) -> None:
        self._connection, self._nodes, self._roles, self._say = connection, scheduler, roles, say
        self._kinds = {*(scheduler.kinds if scheduler is not None else ()), *([ROLE] if roles is not None else ())}
        self._noted: dict[str, None] = {}
        self._not_before: dict[str, float] = {}  # failed undo → monotonic

    def serve(self, ended: Callable[[], bool] = lambda: False) -> None:
        """Do what can be claimed, for as long as the process lives."""
        patience, resumed = ServicePatience(self._say), False
        while not ended():
            try:
                if not resumed:
                    self.resume()
                    resumed = True
                self.once()
                patience.back()
                time.sleep(POLL_SECONDS)
            except patience.failures as problem:
                patience.away(problem)

    def once(self) -> None:
        """Do what can be claimed now."""
        for found in self._claimable():
            self._take(found)

    def resume(self) -> None:
        """Finish what an earlier process with our token had begun."""
        for status in sorted(CLAIMED):
            for found in list(self._connection.all("/v1/remediations", status=status)):
                held, kind = found["claim"], found["kind"]
                if held is None or held["task"] != "do" or kind not in self._kinds:
                    continue
                if (claim := HeldClaim.resume(self._connection, found)) is not None:
                    self._say(f"{found['id']}: resumed under token {claim.token}")
                    self._execute(claim, found)

    def dry_run(self) -> list[str]:
        """Return what can be claimed now, each with its commands or why there are none. Nothing is changed."""
        lines = []
        for found in self._claimable():
            lines.append(f"# {found['id']}, to {found['task']}: {found['kind']} of {found['job']}, {found['incident']}")
            try:
                work = self._work(found, found["task"])
            except (NotHere, SchedulerAway, CommandRefused) as problem:
                lines.append(f"# not done: {problem}")
                continue
            commands = [] if work.problem else self._commands(work, found["task"])
            lines += [shlex.join(command) for command in commands]
            lines += [f"# not done: {work.problem}"] if work.problem else []
        # Of a job's name no part becomes a line, and so a command, of its own.
        return [printable(line).replace("\n", "\\n") for line in lines] or ["# nothing can be claimed now"]

    def _claimable(self) -> Iterator[Remediation]:
        for found in list(self._connection.all("/v1/remediations", claimable="true")):
            if found["kind"] in self._kinds:
                yield found
            else:
                self._say_once(f"{found['id']}: this adapter does no {found['kind']}: it is left to others")

    def _take(self, found: Remediation) -> None:
        if time.monotonic() < self._not_before.get(found["id"], 0.0):
            return
        try:
            self._work(found, found["task"])
        except NotHere as problem:
            self._say_once(f"{found['id']}: {problem}: it is left to others")
            return
        except (SchedulerAway, CommandRefused) as problem:
            self._say_once(f"{found['id']} is not claimed: {problem}")
            return
        try:
            claim = HeldClaim.take(self._connection, found["id"])
        except RequestRefused as refusal:  # another claimant was faster, or a blocker came up
            self._say_once(f"{found['id']} is not claimed: {refusal}")
            return
        self._execute(claim, found)

    def _execute(self, claim: HeldClaim, found: Remediation) -> None:
        """Do the work under a claim and report the outcome. A failure concerns this remediation only."""
        did: Remediation = {}
        try:
            failure = self._act(claim, found, did)
            done = ", ".join(f"{of} {what}" for of, what in did.items()) or "nothing was to be done"
            if failure is None:
                claim.complete(did)
                self._say(f"{claim.id}: {'undone' if claim.task == 'undo' else 'done'}: {done}")
            else:
                if claim.task == "undo":
                    self._not_before[claim.id] = time.monotonic() + UNDO_AGAIN_SECONDS
                claim.fail(failure, did)
                self._say(f"{claim.id} failed: {failure}" + (f"; before that: {done}" if did else ""))
        except (ClaimLost, RequestRefused, Unreachable) as problem:
            self._say(f"{claim.id} is given up: {problem}; done so far: {did or 'nothing'}")

    def _act(self, claim: HeldClaim, found: Remediation, did: Remediation) -> str | None:
        """Do or undo it; return why that failed, None where it is done."""
        try:
            work = cast("Work | RoleWork", patiently(partial(self._work, found, claim.task), claim.keep))
            if work.problem is not None and claim.task == "do":
                return work.problem  # before anything is touched
            begun = claim.begin()
            if isinstance(work, RoleWork):
                self._restart_role(work, found, claim.keep, did)
            elif claim.task == "undo":
                # Certain only now: other remediations may have taken some of the nodes out since.
                back = begun.remediation["give_back"]
                find = partial(self._scheduler.find_undo, found, back, self._is_undone)
                self._undo(patiently(find, claim.keep), claim.keep, did)
            else:
                self._do(work, time.monotonic() - begun.seconds_ago, claim.keep, did)
        except (WorkFailed, NotHere) as problem:
            return str(problem)
        return None

    def _do(self, work: Work, begun_at: float, keep: Keep, did: Remediation) -> None:
        """Drain the nodes, and have the job run elsewhere."""
        for name, node in work.nodes.items():
            did[name] = patiently(partial(self._scheduler.drain, node, work, keep), keep)
        if work.job is not None:
            restart = self._scheduler.restart(work, begun_at, keep)
            did[f"job {work.job}"] = patiently(restart, lambda: None, lambda: restart.refusal)

    def _undo(self, work: Work, keep: Keep, did: Remediation) -> None:
        did |= work.kept
        for name, node in work.nodes.items():
            did[name] = patiently(partial(self._scheduler.undrain, node, work, keep), keep)
        if work.job is not None:
            did[f"job {work.job}"] = patiently(partial(self._scheduler.allow, work, keep), keep)

    def _restart_role(self, work: RoleWork, found: Remediation, keep: Keep, did: Remediation) -> None:
        """Fence the old instances, so that peers refuse what they still send, and have the role started anew."""
        assert self._roles is not None
        while True:
            present = {
                (one["role"], one["instance"]): one["epoch"] for one in directory(self._connection, found["job"])
            }
            old = {name: epoch for name, epoch in work.epochs.items() if present.get((work.role, name)) == epoch}
            for name in work.epochs.keys() - old.keys():
                did[f"{work.role} {name}"] = "was replaced meanwhile"
            if work.epochs and not old:
                return
            work = msgspec.structs.replace(work, epochs=old)
            restart = patiently(partial(self._roles.restart_role, work, keep), keep)
            if fence(self._connection, work):
                break  # else one was replaced since the look, and what runs is looked at again
        did[work.what] = patiently(restart, lambda: None, lambda: restart.refusal)

    def _commands(self, work: Work | RoleWork, task: str) -> list[list[str]]:
        if isinstance(work, RoleWork):
            assert self._roles is not None
            return self._roles.role_commands(work)
        return self._scheduler.commands(work, task)

    def _work(self, found: Remediation, task: str) -> Work | RoleWork:
        if found["kind"] == ROLE:
            if task == "undo" or self._roles is None:
                raise NotHere("a restart of a role is not undone")
            return self._roles.find_role(RoleWork.of(found))
        if task == "undo":
            return self._scheduler.find_undo(found, None, lambda _incident, _remediation: False)
        return self._scheduler.find(found, lambda: self._placed(found))

    @property
    def _scheduler(self) -> Scheduler:
        """The commands for nodes and jobs; only their kinds come here."""
        assert self._nodes is not None
        return self._nodes

    def _is_undone(self, incident: str, id: str) -> bool:
        """Whether that remediation was undone; False for one of another service."""
        other = self._connection.find(resource("remediations", id))
        return other is not None and other["incident"] == incident and other["status"] == "undone"

    def _placed(self, found: Remediation) -> Placed:
        try:
            rows = list(self._connection.all(resource("jobs", found["job"], "ranks"), attempt=found["attempt"]))
        except RequestRefused as refusal:
            if refusal.status != 404:
                raise
            rows = []
        if not rows:
            return Placed()
        ago = self._connection.get("/v1/now")["at"] - max(row["last_seen_at"] for row in rows)
        return Placed(sorted({row["node"] for row in rows}), max(0.0, ago))

    def _say_once(self, text: str) -> None:
        if text in self._noted:
            return
        self._say(text)
        self._noted[text] = None
        if len(self._noted) > MOST_REMEMBERED:
            self._noted.pop(next(iter(self._noted)))


def fence(connection: Connection, work: RoleWork) -> bool:
    """Refuse what the instances still send; return False where one has just been replaced. Raise ``WorkFailed``."""
    path = resource("jobs", work.plan["job"], "roles", "fence")
    for instance, epoch in work.epochs.items():
        body = {"role": work.role, "instance": instance, "epoch": epoch, "reason": work.plan["id"]}
        try:
            connection.send("POST", path, json=body)
        except RequestRefused as refused:
            if refused.status == 409:  # it is at a higher epoch
                return False
            raise WorkFailed(f"{work.role} {instance} cannot be fenced: {refused}") from None
    return True


def patiently(step: Callable[[], Result | None], keep: Keep, refusal: Callable[[], str] = str) -> Result:
    """Call a step until it has a result. A scheduler that is away is asked again, for as long as the lease is kept."""
    until, problem = time.monotonic() + PATIENCE_SECONDS, "it is not so yet"
    while time.monotonic() < until:
        pause = STEP_SECONDS
        try:
            if (result := step()) is not None:
                return result
        except SchedulerAway as away:
            problem, pause = str(away), AWAY_SECONDS
        except CommandRefused as refused:
            raise WorkFailed(str(refused)) from None
        time.sleep(pause)
        keep()
    last = f"; the scheduler refused: {refusal()}" if refusal() else ""
    raise WorkFailed(f"given up after {PATIENCE_SECONDS:.0f} s: {problem}{last}")
