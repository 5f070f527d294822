"""Role and number of a process by its name: a Ray actor's, or the title that an inference engine gives its processes."""

from __future__ import annotations

import re
from dataclasses import dataclass

NO_RAY_JOB = "ffffffff"  # of a worker that Ray started ahead of its job
_TITLE = re.compile(r"(?:ray|VLLM|vllm|sglang)::([A-Za-z_][\w.:() -]*)")
_NOT_WORK = frozenset({"IDLE", "DashboardAgent", "RuntimeEnvAgent"})
_NOT_WORK_BEGINS = ("IDLE_", "SPILL", "RESTORE")
_ACTOR = re.compile(rb"^:actor_name:(.+)$", re.MULTILINE)
_JOB = re.compile(rb"^:job_id:([0-9a-f]{8})$", re.MULTILINE)
_NUMBER = re.compile(r"[-_:#. (\[]+(\d{1,5})[)\]]?$")
_PLACE = re.compile(r"(?:_[A-Z]{2,3}\d+)+$")  # "_DP0", "_PP2_TP1": of a parallel dimension, unique in no role
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NOT_A_ROLE = re.compile(r"[^a-z0-9_.-]+")


def titled(command: bytes) -> str | None:
    """Return what a process's title names, None for a command line; "" for a Ray worker that is no actor now.

    >>> titled(b"ray::Rollout.generate\\0\\0"), titled(b"ray::IDLE"), titled(b"python\\0train.py")
    ('Rollout', '', None)
    """
    first = command.split(b"\0", 1)[0].decode("utf-8", "replace").strip()
    if b"default_worker.py\0" in command:
        return ""
    found = _TITLE.match(first)
    if found is None:
        return None
    name = found[1]
    if name in _NOT_WORK or name.startswith(_NOT_WORK_BEGINS):
        return ""
    if first.startswith("ray::"):
        name = name.split(".", 1)[0].split("(", 1)[0]
        # A task has a function's name, an actor a class's: tasks come and go on the workers that are idle between them.
        return name if name[:1].isupper() else ""
    return name


def actor_of(output: bytes) -> str | None:
    """Return the actor's name that Ray writes to a worker's output: its class, then what its `__repr__` calls it.

    The second is written when `__init__` has ended. [ray 2.60, measured]
    """
    found = _ACTOR.findall(output)[:2]
    return found[-1].decode("utf-8", "replace").strip() if found else None


def begins(command: bytes) -> bool:
    """Return whether a Ray actor is in its `__init__`: what it calls itself is not known yet."""
    return command.startswith(b"ray::") and b".__init__" in command.split(b"\0", 1)[0]


def ray_job_of(output: bytes) -> str | None:
    """Return the Ray job that a worker's output names: a worker that was started ahead has none in its environment."""
    found = _JOB.search(output)
    return found[1].decode("ascii") if found else None


def role_and_number(name: str) -> tuple[str, int | None]:
    """Return the role that a name states, and the number at its end.

    >>> role_and_number("rollout-3"), role_and_number("RewardWorker"), role_and_number("EngineCore_DP0")
    (('rollout', 3), ('reward_worker', None), ('engine_core', None))
    """
    number = _NUMBER.search(name)
    stem = _PLACE.sub("", name[: number.start()] if number else name)
    role = _NOT_A_ROLE.sub("_", _CAMEL.sub("_", stem).lower()).strip("_.-")
    return role[:64] or "actor", int(number[1]) if number else None


@dataclass(frozen=True, slots=True)
class Named:
    """What a process's title and a Ray worker's output say of it.

    ``title``: as ``titled`` returns it. ``output``: the beginning of a Ray worker's. ``inherited_role``: FAULTHOUND_ROLE of a
    Ray worker's parent, the raylet, which says nothing of the worker.
    """

    title: str | None = None
    output: bytes = b""
    inherited_role: str | None = None
    of_ray: bool = False

    @property
    def ray_job(self) -> str | None:
        """Return the Ray job that it works for."""
        return ray_job_of(self.output)

    @property
    def seat(self) -> tuple[str | None, int | None]:
        """Return role and number by name."""
        called = actor_of(self.output) or self.title
        return role_and_number(called) if called else (None, None)


NAMELESS = Named()
