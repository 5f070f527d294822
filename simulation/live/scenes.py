"""A scene: a job, what is true of it, and how long to watch it; and the sketch of a job that a scene is made from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from simulation.live import habits as ways
from simulation.live.course import Course, Interruption
from simulation.live.habits import Habits
from simulation.live.job import Attempt, LiveJob, Report

BEGAN_AT = 1_790_000_000.0
SETTLED_SECONDS = 240.0  # of ordinary training before anything happens
MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Truth:
    """What happened, when, to which ranks, and what a verdict may be. ``ranks`` empty: no machine is at fault."""

    kind: str
    at: float
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    symptom: str = "healthy"
    causes: tuple[str, ...] = ("none",)
    evicts: bool = False  # a verdict should propose to replace exactly these nodes


@dataclass(frozen=True, slots=True)
class Scene:
    """A job, what is true of it, and how long to watch it. A scene serves one fleet: it forgets what has passed."""

    job: LiveJob
    truth: Truth
    until: float


@dataclass(slots=True)
class Sketch:
    """A job before anything happens to it."""

    name: str
    habits: Habits
    nodes: tuple[str, ...]
    ranks_a_node: int
    stages: int
    random: Random
    began_at: float = BEGAN_AT

    @property
    def world(self) -> int:
        """Return how many ranks there are."""
        return len(self.nodes) * self.ranks_a_node

    def course(self, *interruptions: Interruption, begin: float | None = None, first_step: int = 0) -> Course:
        """Return an attempt's course."""
        first = self.began_at if begin is None else begin
        return Course(self.habits, Random(self.random.random()), first, first_step, interruptions)

    def scene(self, attempts: list[Attempt], truth: Truth, until: float, reports: tuple[Report, ...] = ()) -> Scene:
        """Return the scene of these attempts."""
        job = LiveJob(
            name=self.name, habits=self.habits, nodes=self.nodes, ranks_a_node=self.ranks_a_node, attempts=attempts,
            stages=self.stages, reports=reports,
        )  # fmt: skip
        return Scene(job, truth, until)

    def node_of(self, rank: int) -> str:
        """Return the node of a rank."""
        return self.nodes[rank // self.ranks_a_node]

    def strikes_at(self) -> float:
        """Choose when something happens: after some minutes of training, and steps enough for a step rhythm."""
        settled = max(SETTLED_SECONDS, 12 * self.habits.step_seconds)
        started = self.habits.start_seconds + self.habits.first_step_seconds
        return self.began_at + started + settled + self.random.uniform(0.0, MINUTE)


def sketch(
    seed: int, kind: str, name: str = "", nodes: int = 0, ranks_a_node: int = 0, began_at: float = BEGAN_AT,
    label: str = "",
) -> Sketch:  # fmt: skip
    """Draw a job: 2 to 8 nodes of 1 to 8 ranks, replicas or a pipeline, its habits. ``label``: its name, which draws nothing."""
    random = Random(f"{kind} {seed} {name}")
    count = nodes or random.choice((2, 2, 3, 4, 4, 8))
    ranks = ranks_a_node or random.choice((1, 2, 4, 8))
    world = count * ranks
    stages = random.choice([n for n in (1, 1, 2, 4) if world % n == 0 and world // n > 1] or [1])
    habits = ways.draw(random)
    label = label or name or f"{kind.replace('_', '-')}-{seed}"
    names = tuple(f"{label}-n{number:02d}" for number in range(count))
    return Sketch(label, habits, names, ranks, stages, random, began_at)


Write = Callable[[Random, Sketch], Scene]
"""Makes a scene from a sketch."""
