"""What every lie is made of: whom it accuses, its registration, and records of ranks that other nodes host."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf
from random import Random
from typing import Any

from collectors.records import ARRAY_CODES, STEP_COLUMNS, LogEvent, Members, Placement, ProcessState, Record, Steps
from simulation.live.agent import Agent
from simulation.live.course import Course, Interruption
from simulation.live.job import Attempt, LiveJob
from simulation.live.scene_list import BEGAN_AT, Scene

AHEAD_SECONDS = 3_000.0
OWN_PID = 31_337


@dataclass(frozen=True)
class Target:
    """Whom a liar accuses in a scene: ``rank`` on ``node``, which are innocent. ``at``: of what is true, if anything."""

    scene: Scene
    rank: int
    at: float

    @property
    def job(self) -> LiveJob:
        """Return the job."""
        return self.scene.job

    @property
    def attempt(self) -> Attempt:
        """Return its newest attempt."""
        return self.job.attempts[-1]

    @property
    def node(self) -> str:
        """Return the innocent node."""
        return self.job.node_of(self.rank)

    @property
    def pid(self) -> int:
        """Return the pid of the innocent rank."""
        return self.attempt.pid(self.rank)

    @property
    def job_of(self) -> dict[str, Any]:
        """Return the fields that a record of the job has."""
        return {"job": self.job.name, "attempt": self.attempt.number}

    @property
    def whose(self) -> dict[str, Any]:
        """Return the fields that a record of the innocent rank has."""
        return {**self.job_of, "rank": self.rank}

    @cached_property
    def invented(self) -> LiveJob:
        """Return the same job as the liar tells of it: the innocent rank spins, and all others wait for it."""
        spin = Interruption(self.at - 60.0, "spin", inf, frozenset({self.rank}))
        course = Course(self.job.habits, Random(1), BEGAN_AT, interruptions=(spin,))
        return LiveJob(
            name=self.job.name, habits=self.job.habits, nodes=self.job.nodes, ranks_a_node=self.job.ranks_a_node,
            attempts=[Attempt(self.attempt.number, course)], stages=self.job.stages,
        )  # fmt: skip

    def agent(self, node: str) -> Agent:
        """Return an agent in the invented job."""
        return Agent(self.invented, node, Random(2), BEGAN_AT)


Lie = Callable[[Target, float], Iterable[Record]]
LIES: dict[str, Lie] = {}
A_USER: set[str] = set()
EARLY: set[str] = set()  # reported from the job's first minute on, and not only around the fault


def lie(*, user: bool = True, early: bool = False) -> Callable[[Lie], Lie]:
    """Register a lie under its function's name. ``user``: a user of a node can tell it without a token."""

    def register(function: Lie) -> Lie:
        LIES[function.__name__] = function
        if user:
            A_USER.add(function.__name__)
        if early:
            EARLY.add(function.__name__)
        return function

    return register


def process(target: Target, at: float, **more: Any) -> ProcessState:
    """Return a state of a process of the liar's: its end, if nothing else is given."""
    given = {**target.whose, "pid": OWN_PID, "state": "X", "source": "process", "boot_id": "liar", "command": "python"}
    return ProcessState(**{**given, "at": at, "started_at": at - 30.0, **more})


def log(target: Target, at: float, event: str, **more: Any) -> LogEvent:
    """Return a line of the innocent rank's log."""
    given = {**target.whose, "at": at, "source": f"train.log:{round(at) % 1000}", "event": event}
    return LogEvent(**{**given, **more})


def placement(target: Target, at: float, ranks: Iterable[int], **more: Any) -> Placement:
    """Return a placement of ranks on the liar's node."""
    ranks = list(ranks)
    given = {
        **target.job_of, "source": "placement", "at": at, "ranks": Members.of(ranks), "pids": tuple(OWN_PID + r for r in ranks),
        "nodes": ("liar",) * len(ranks), "started_ats": (at - 30.0,) * len(ranks), "world_size": target.job.world,
    }  # fmt: skip
    return Placement(**{**given, **more})


def steps(target: Target, at: float, **more: Any) -> Steps:
    """Return a dozen steps of the future, by a log of the innocent rank."""
    count = 12
    values: dict[str, list[float]] = {
        "step": [10**6 + n for n in range(count)],
        "at": [at - count + n for n in range(count)],
    }
    named = {"number": "step", "instants": "at"}
    values |= {
        named.get(name, name): more.pop(name)
        for name in ("number", "instants", "seconds", "loss", "nan")
        if name in more
    }
    columns = {
        name: array(
            ARRAY_CODES[code], [int(v) if code[1] == "i" else v for v in values.get(name, [0.0] * count)]
        ).tobytes()
        for name, code in STEP_COLUMNS.items()
    }
    given = {**target.whose, "source": "train.log", "at": at, "told_by": "plain", "step": 10**6 + count}
    return Steps(**{**given, **more}, count=count, columns=columns)
