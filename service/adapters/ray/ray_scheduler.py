"""Ray as a ``RoleRestarter``: the job's own hook, or kill and let Ray start the actor again.

An actor is killed with ``no_restart=False``: where its ``max_restarts`` allow it, Ray starts it under the same name, also if it
hangs in a method. What Ray may not start again, or must start on another node, needs the hook: a named actor of the job with a
method ``restart_role(role, instances, leaves, onto)`` that starts it and returns at once.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from service.adapters.role_names import Nameless, directory, name_of
from service.adapters.scheduler import CommandRefused, Keep, NotHere, RoleWork, SchedulerAway

if TYPE_CHECKING:
    from service.client import Connection

COMMAND_SECONDS = 20.0  # a driver's start takes 1 to 5 s
INSIDE = Path(__file__).with_name("inside.py")


class Ray:
    """A cluster, asked by a program that runs in a Python that has Ray."""

    def __init__(self, python: str, address: str, namespace: str, hook: str) -> None:
        self._command = [python, str(INSIDE)]
        self._base = {"address": address, "namespace": namespace, "hook": hook}
        self.hook = hook

    def actors(self) -> dict[str, dict[str, Any]]:
        """Return the named actors: name → state, pid, restarts."""
        found: dict[str, dict[str, Any]] = self.ask(do="actors")["actors"]
        return found

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Return the answer of the program; raise ``SchedulerAway`` or ``CommandRefused``."""
        try:
            done = subprocess.run(
                self._command, input=json.dumps(self._base | asked), capture_output=True, text=True,
                timeout=COMMAND_SECONDS, check=False,
            )  # fmt: skip
        except OSError as error:
            raise CommandRefused(f"{self._command[0]} cannot be run ({error.strerror}): give --ray-python") from None
        except subprocess.TimeoutExpired:
            raise SchedulerAway(f"Ray did not answer within {COMMAND_SECONDS:.0f} s") from None
        lines = done.stdout.splitlines()
        try:
            answer: dict[str, Any] = json.loads(lines[-1])
        except (IndexError, ValueError):
            why = " ".join(done.stderr.split())[-300:]
            raise CommandRefused(f"{shlex.join(self._command)}: {why or 'no answer'}") from None
        if problem := answer.get("problem"):
            raise (SchedulerAway if "ConnectionError" in problem else CommandRefused)(f"Ray: {problem}")
        return answer


class RayRoles:
    """The actors of one job."""

    def __init__(self, ray: Ray, connection: Connection, job: str) -> None:
        self._ray, self._connection, self._job = ray, connection, job

    def find_role(self, work: RoleWork) -> RoleWork:
        """Find the actors by their names."""
        if work.plan["job"] != self._job:
            raise NotHere(f"this adapter is for {self._job}")
        actors = self._ray.actors()
        if self._ray.hook in actors:
            return work
        if work.restart.get("leaves"):
            why = f"only the job's actor {self._ray.hook} can start {work.what} elsewhere, and there is none"
            return replace(work, problem=why)
        try:
            NamedActors(self._connection, self._job, work.role, actors).every(work.instances)
        except Nameless as why:
            return replace(work, problem=f"of the actors {why}, and there is no {self._ray.hook}")
        if not work.instances:
            return replace(work, problem=f"which actors {work.role} are is unknown: they are not registered")
        return work

    def role_commands(self, work: RoleWork) -> list[list[str]]:
        """Return what is done, as commands that a reader understands."""
        return [["ray.kill", work.what, "no_restart=False"]]

    def restart_role(self, work: RoleWork, keep: Keep) -> _Restart:
        """Return what restarts the actors, once."""
        return _Restart(self._ray, work, keep, partial(NamedActors, self._connection, self._job))


class NamedActors:
    """The names of a role's actors."""

    def __init__(self, connection: Connection, job: str, role: str, actors: Collection[str]) -> None:
        self._role, self._actors = role, actors
        self._seats = [(one["role"], one["instance"]) for one in directory(connection, job)]

    def every(self, instances: Iterable[str]) -> dict[str, str]:
        """Return instance → actor; raise ``Nameless`` where one is not known."""
        return {one: name_of((self._role, one), self._actors, self._seats) for one in instances}

    def known(self, instances: Iterable[str]) -> dict[str, str]:
        """Return the same, without those of which it cannot be said."""
        found = dict[str, str]()
        for one in instances:
            with suppress(Nameless):
                found |= self.every([one])
        return found


class _Restart:
    """Restarts the actors of one remediation. Their processes are looked at first: a fenced one ends by itself."""

    def __init__(
        self, ray: Ray, work: RoleWork, keep: Keep, named: Callable[[str, Collection[str]], NamedActors]
    ) -> None:
        self._ray, self._work, self._keep, self._named = ray, work, keep, named
        self._before = ray.actors()
        self._was = named(work.role, self._before).known(work.instances)
        self._todo = list(self._steps())
        self.refusal = ""

    def __call__(self) -> str | None:
        """Do what is to be done; then look until each actor lives in another process."""
        self._keep()
        while self._todo:
            self._keep()
            self._ray.ask(**self._todo[0])
            del self._todo[0]
        actors, states = self._ray.actors(), []
        names = self._named(self._work.role, actors).known(self._work.instances)
        for instance in self._work.instances:
            now = actors.get(names.get(instance, ""))
            was = self._before.get(self._was.get(instance, ""))
            if now is None or now["state"] != "ALIVE" or (was is not None and now["pid"] == was["pid"]):
                self.refusal = f"{self._work.role} {instance} is {'gone' if now is None else now['state'].lower()}"
                return None
            states.append(f"{names[instance]} runs as pid {now['pid']}")
        return "; ".join(states) or "restarted by the job's hook"

    def _steps(self) -> Iterator[dict[str, Any]]:
        """Yield what is asked of Ray: rollouts that give their machine end; then the hook, or a kill of each that lives."""
        plan, work = self._work.restart, self._work
        for name in self._named(plan["gives_role"], self._before).known(plan["gives"]).values():
            yield {"do": "end", "actor": name}
        if self._ray.hook in self._before:
            restart = {"role": work.role, "instances": work.instances, "leaves": plan["leaves"], "onto": plan["onto"]}
            yield {"do": "hook", "restart": restart}
            return
        for name in self._was.values():
            if self._before[name]["state"] == "ALIVE":
                yield {"do": "kill", "actor": name}
