"""Slurm as a ``RoleRestarter``: a role is a step, or a component of a heterogeneous job, and the job's script starts it again.

Slurm itself cannot: a component cannot be requeued alone ("Invalid job id specified" of 22.05), and only the script knows the
command. So the step is ended, and the script's loop around its ``srun`` begins another of the same name in the same
allocation. The batch script, the other steps and the other components go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from service.adapters.role_names import Nameless, Seat, directory, forms, name_of
from service.adapters.scheduler import CommandRefused, Keep, NotHere, RoleWork, WorkFailed
from service.adapters.slurm import slurm_commands as commands
from service.adapters.slurm.slurm_commands import Slurm
from service.adapters.slurm.slurm_finding import numbered
from service.adapters.slurm.slurm_output import RUNS, SlurmJob, SlurmStep

if TYPE_CHECKING:
    from service.client import Connection

CLOCK_SECONDS = 1.0  # Slurm's instants are whole seconds
AGAIN_LOOKS = 100  # at a step that has not ended, 20 s: then it is ended once more


class SlurmRoles:
    """The steps of the jobs of one Slurm."""

    def __init__(self, slurm: Slurm, connection: Connection) -> None:
        self._slurm, self._connection = slurm, connection

    def find_role(self, work: RoleWork) -> RoleWork:
        """Find the job, and the step of each instance.

        What has no step of its own is left to others: the job may have a receiver.
        """
        parts = self._parts(work)
        if not work.instances:
            raise NotHere(f"which steps {work.role} has is unknown: none of it is registered")
        if leaves := work.restart.get("leaves"):
            raise NotHere(f"a step stays within its job's nodes: {work.what} cannot leave {', '.join(leaves)} alone")
        try:
            self._found(work, parts)
        except Nameless as why:
            if work.plan["began_at"] is None:  # else between its end and the script's next srun a step has no name
                raise NotHere(f"of the steps of {work.plan['job']} {why}") from None
        return work

    def role_commands(self, work: RoleWork) -> list[list[str]]:
        """Return the commands; what has begun anew is left out when it is done."""
        return [commands.end_step(step.id) for step in self._found(work, self._parts(work)).values()]

    def restart_role(self, work: RoleWork, keep: Keep) -> _Restart:
        """Return what ends the steps, once, and looks until each has begun anew."""
        keep()
        parts = self._parts(work)
        asked_ago = self._connection.get("/v1/now")["at"] - work.plan["proposed_at"]
        at, numbers = self._slurm.clock(), [part.number for part in parts]
        # What began after the proposal is no part of the trouble: another process of ours, or the script, has begun it.
        before = {step.id for step in self._slurm.steps(numbers) if _age(step, at) + CLOCK_SECONDS >= asked_ago}
        try:
            found = {step.id: step for step in self._found(work, parts).values()}
        except Nameless:
            found = {}
        old = [step for id, step in found.items() if id in before]
        return _Restart(self._slurm, work, keep, numbers, before, old)

    def _parts(self, work: RoleWork) -> list[SlurmJob]:
        """Return the job with the parts of a heterogeneous one; raise ``NotHere`` where it cannot be decided which it is."""
        name = work.plan["job"]
        number = numbered(name)
        parts = self._slurm.parts(number) if number is not None else []
        if not any(name in replace(part, number=number).known_as for part in parts):
            named = [job for job in self._slurm.jobs_named(name) if job.name == name and job.state in RUNS]
            if len(named) != 1:
                raise NotHere(f"{len(named) or 'no'} jobs called {name} run in this Slurm: give the job that name")
            parts = self._slurm.parts(named[0].number)
        if not (running := [part for part in parts if part.state in RUNS]):
            raise NotHere(f"Slurm's job {name} does not run")
        return running

    def _found(self, work: RoleWork, parts: list[SlurmJob]) -> dict[str, SlurmStep]:
        """Return instance → its step; raise ``Nameless`` where one has none of its own."""
        items = [one for one in directory(self._connection, work.plan["job"]) if one["state"] != "left"]
        look = _Look(self._slurm.steps([part.number for part in parts]), parts, items)
        found = {instance: look.step((work.role, instance)) for instance in work.instances}
        chosen = {step.id: step for step in found.values()}
        for seat, step in look.others({(work.role, instance) for instance in found}):
            if step.id in chosen:
                raise Nameless(
                    f"{step.id} ({step.name}) is of {' '.join(seat)} too: start each with an srun of its own"
                )
        return found


class _Look:
    """The steps of one job, and the instances that they may be of."""

    def __init__(self, steps: list[SlurmStep], parts: list[SlurmJob], items: list[dict[str, Any]]) -> None:
        self._steps, self._components = steps, {part.number: part.name for part in parts}
        self._nodes: dict[Seat, str] = {(one["role"], one["instance"]): one["node"] or "" for one in items}

    def step(self, seat: Seat) -> SlurmStep:
        """Return the step of an instance: of its name, else of its role's, else in a component of either name."""
        names = [step.name for step in self._steps]
        try:
            own = name_of(seat, names, list(self._nodes))
            return self._one([step for step in self._steps if step.name == own], seat)
        except Nameless:
            wanted = {seat[0], *forms(*seat)}
            of_role = [step for step in self._steps if step.name == seat[0]]
            inside = [step for step in self._steps if self._components.get(step.job) in wanted]
            if not (of_role or inside):
                raise
            return self._one(of_role or inside, seat)

    def others(self, but: set[Seat]) -> Iterator[tuple[Seat, SlurmStep]]:
        """Yield the other instances that are known to have a step."""
        for seat in sorted(self._nodes.keys() - but):
            try:
                yield seat, self.step(seat)
            except Nameless:
                continue

    def _one(self, steps: list[SlurmStep], seat: Seat) -> SlurmStep:
        """Return the only one, or the only one on the instance's node."""
        node = self._nodes.get(seat, "").split(".", maxsplit=1)[0]
        there = [step for step in steps if node in {name.split(".", maxsplit=1)[0] for name in step.nodes}]
        if len(found := there if len(steps) > 1 and node else steps) == 1:
            return found[0]
        raise Nameless(
            f"{', '.join(step.id for step in steps)} may each be {' '.join(seat)}: name them {forms(*seat)[0]}"
        )


class _Restart:
    """Ends steps, once, and looks until the job's script has begun others of the same names."""

    def __init__(
        self, slurm: Slurm, work: RoleWork, keep: Keep, numbers: list[str], before: set[str], old: list[SlurmStep]
    ) -> None:
        self._slurm, self._work, self._keep, self._numbers = slurm, work, keep, numbers
        self._before, self._old = before, old
        every = (name for one in work.instances for name in (work.role, *forms(work.role, one)))
        self._names = {step.name for step in old} or set(every)  # ended before this process began
        self._looks = dict[str, int]()
        self.refusal = ""

    def __call__(self) -> str | None:
        """End what is old; return which steps run instead, None where that is not so yet."""
        self._keep()
        steps = {step.id: step for step in self._slurm.steps(self._numbers)}
        if left := [step for step in self._old if step.id in steps]:
            for step in left:
                self._end(step)
            return None
        anew = [step for step in steps.values() if step.name in self._names and step.id not in self._before]
        if len(anew) >= max(1, len(self._old)):
            return "; ".join(f"{step.name} runs as step {step.id}" for step in anew)
        if not any((job := self._slurm.job(number)) and job.state in RUNS for number in self._numbers):
            raise WorkFailed(f"Slurm's job {self._numbers[0]} has ended with it")
        missing = ", ".join(sorted(self._names - {step.name for step in anew}) or self._names)
        self.refusal = f"no step {missing} has begun again: the job's script has to start it anew"
        return None

    def _end(self, step: SlurmStep) -> None:
        looks = self._looks[step.id] = self._looks.get(step.id, -1) + 1
        if looks % AGAIN_LOOKS:
            return
        self._keep()
        try:
            self._slurm.change(commands.end_step(step.id))
        except CommandRefused as refusal:  # it may just have ended
            self.refusal = str(refusal)


def _age(step: SlurmStep, at: float) -> float:
    """Return for how long a step has run, by Slurm's own clock."""
    return at - step.started_at if step.started_at is not None else float("inf")
