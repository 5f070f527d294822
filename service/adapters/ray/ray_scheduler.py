"""Ray as a ``Scheduler`` of role restarts: fence, then the job's own hook, or kill and let Ray start the actor again.

An actor is killed with ``no_restart=False``: where its ``max_restarts`` allow it, Ray starts it under the same name, also if it
hangs in a method. What Ray may not start again, or must start on another node, needs the hook: a named actor of the job with a
method ``restart_role(role, instances, leaves, onto)`` that starts it and returns at once.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from service.adapters.scheduler import (
    CommandRefused,
    Keep,
    NotHere,
    Placed,
    Remediation,
    SchedulerAway,
    Work,
    WorkFailed,
)
from service.client import RequestRefused, resource

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


class RayScheduler:
    """The actors of one job."""

    kinds = frozenset({"restart_role"})

    def __init__(self, ray: Ray, connection: Connection, job: str) -> None:
        self._ray, self._connection, self._job = ray, connection, job
        self._plans: dict[str, Remediation] = {}  # what is restarted, as the work names it → the remediation

    def find(self, found: Remediation, placed: Callable[[], Placed]) -> Work:  # noqa: ARG002 actors have names
        """Find the actors by their names."""
        if found["job"] != self._job:
            raise NotHere(f"this adapter is for {self._job}")
        plan, actors = found["role_restart"] or {}, self._ray.actors()
        named = sorted(plan.get("epochs") or ()) or ([plan["instance"]] if plan.get("instance") else [])
        what = f"{found['role']} {','.join(named)}".strip()
        work = Work(kind=found["kind"], nodes={}, job=what)
        self._plans[what] = {"instances": named, **found}
        if self._ray.hook in actors:
            return work
        if plan.get("leaves"):
            return _not(work, f"only the job's actor {self._ray.hook} can start {what} elsewhere, and there is none")
        if missing := [one for one in named if actor_of(found["role"], one, actors) is None]:
            there = ", ".join(sorted(actors)[:8]) or "none"
            return _not(
                work, f"no actor is called {found['role']}-{missing[0]} (there are {there}), and no {self._ray.hook}"
            )
        return work if named else _not(work, f"which actors {found['role']} are is unknown: they are not registered")

    def find_undo(self, *_: object) -> Work:
        """A restart of a role is not undone."""
        raise NotHere("a restart of a role is not undone")

    def commands(self, work: Work, task: str) -> list[list[str]]:  # noqa: ARG002 there is one task
        """Return what is done, as commands that a reader understands."""
        return [["ray.kill", work.job or "", "no_restart=False"]]

    def drain(self, node: str, work: Work, keep: Keep) -> str | None:
        """No node is taken out."""
        raise NotImplementedError

    def undrain(self, node: str, work: Work, keep: Keep) -> str | None:
        """No node is given back."""
        raise NotImplementedError

    def allow(self, work: Work, keep: Keep) -> str | None:
        """Nothing was forbidden."""
        raise NotImplementedError

    def restart(self, work: Work, begun_at: float, keep: Keep) -> _Restart:  # noqa: ARG002 pids decide
        """Return what restarts the actors, once."""
        assert work.job is not None
        return _Restart(self._ray, self._connection, self._plans[work.job], keep)


def actor_of(role: str, instance: str, actors: Collection[str]) -> str | None:
    """Return the actor of an instance: its name in one of the usual forms; None where there is none, or several."""
    found = [one for one in (f"{role}-{instance}", f"{role}_{instance}", f"{role}{instance}") if one in actors]
    return found[0] if len(found) == 1 else None


class _Restart:
    """Restarts the actors of one remediation."""

    def __init__(self, ray: Ray, connection: Connection, found: Remediation, keep: Keep) -> None:
        self._ray, self._connection, self._found, self._keep = ray, connection, found, keep
        self._before: dict[str, dict[str, Any]] = {}
        self._todo: list[dict[str, Any]] | None = None  # None: nothing is fenced yet
        self.refusal = ""

    def __call__(self) -> str | None:
        """Fence and kill at first; then look until each actor lives in another process."""
        self._keep()
        role, named = self._found["role"], self._found["instances"]
        if self._todo is None:
            self._before = self._ray.actors()
            self._fence()
            self._todo = list(self._steps(self._before))
        while self._todo:
            self._keep()
            self._ray.ask(**self._todo[0])
            del self._todo[0]
        actors = self._ray.actors()
        states = []
        for instance in named:
            name = actor_of(role, instance, actors)
            now, was = actors.get(name or ""), self._before.get(name or "")
            if now is None or now["state"] != "ALIVE" or (was is not None and now["pid"] == was["pid"]):
                self.refusal = f"{role} {instance} is {'gone' if now is None else now['state'].lower()}"
                return None
            states.append(f"{name} runs as pid {now['pid']}")
        return "; ".join(states) or "restarted by the job's hook"

    def _fence(self) -> None:
        """Refuse what the old instances still send; one that was replaced meanwhile is left alone."""
        path = resource("jobs", self._found["job"], "roles", "fence")
        for instance, epoch in self._found["role_restart"]["epochs"].items():
            body = {"role": self._found["role"], "instance": instance, "epoch": epoch, "reason": self._found["id"]}
            try:
                self._connection.send("POST", path, json=body)
            except RequestRefused as refused:
                raise WorkFailed(f"{self._found['role']} {instance} cannot be fenced: {refused}") from None

    def _steps(self, actors: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield what is asked of Ray: rollouts that give their machine end; then the hook, or a kill of each that lives."""
        plan, role, named = self._found["role_restart"], self._found["role"], self._found["instances"]
        for given in plan["gives"]:
            if (name := actor_of("rollout", given, actors)) is not None:
                yield {"do": "end", "actor": name}
        if self._ray.hook in actors:
            restart = {"role": role, "instances": named, "leaves": plan["leaves"], "onto": plan["onto"]}
            yield {"do": "hook", "restart": restart}
            return
        for instance in named:
            name = actor_of(role, instance, actors)
            if name is not None and actors[name]["state"] == "ALIVE":
                yield {"do": "kill", "actor": name}


def _not(work: Work, problem: str) -> Work:
    return replace(work, problem=problem)
