"""A job of the simulated fleet: its ranks on their nodes, and its attempts one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from collectors.records import Record
from simulation.live.activities import EVERYTHING, Activity
from simulation.live.course import Course
from simulation.live.habits import Habits

FIRST_PID = 4000


@dataclass(frozen=True, slots=True)
class End:
    """How a rank's process ended."""

    at: float
    exit_code: int | None = None
    signal: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A record that a node's agent sends at once: a line of the job's log, an event of the kernel, a device's state."""

    at: float  # when it is sent
    node: str
    record: Record


@dataclass(slots=True)
class Attempt:
    """One run of the job: a process a rank from ``course.begin`` on."""

    number: int
    course: Course
    ends: dict[int, End] = field(default_factory=dict)

    def pid(self, rank: int) -> int:
        """Return a rank's process number."""
        return FIRST_PID + 1000 * (self.number % 20) + rank

    def runs(self, rank: int, at: float) -> bool:
        """Whether a rank's process is there at an instant."""
        end = self.ends.get(rank)
        return self.course.begin <= at < self.course.end and (end is None or at < end.at)


@dataclass(kw_only=True)
class LiveJob:
    """What happens in a job, and where. ``stages``: pipeline stages, 1 for replicas of the whole model."""

    name: str
    habits: Habits
    nodes: tuple[str, ...]
    ranks_a_node: int
    attempts: Sequence[Attempt]
    stages: int = 1
    reports: tuple[Report, ...] = ()
    dead_nodes: dict[str, float] = field(default_factory=dict)  # node → when its power went

    @property
    def world(self) -> int:
        """Return how many ranks there are."""
        return len(self.nodes) * self.ranks_a_node

    def ranks_on(self, node: str) -> range:
        """Return the ranks of a node."""
        first = self.nodes.index(node) * self.ranks_a_node
        return range(first, first + self.ranks_a_node)

    def node_of(self, rank: int) -> str:
        """Return the node of a rank."""
        return self.nodes[rank // self.ranks_a_node]

    def attempt(self, at: float) -> Attempt | None:
        """Return the attempt that runs at an instant, or the newest that has ended."""
        return next((one for one in reversed(self.attempts) if one.course.begin <= at), None)

    def does(self, attempt: Attempt, rank: int, at: float) -> tuple[str, Activity]:
        """Return what a rank does at an instant, by name."""
        name = attempt.course.span(at).does(rank, at, self.habits.wait)
        return name, EVERYTHING[name]

    @cached_property
    def reporting_ranks(self) -> frozenset[int]:
        """Return the ranks whose logs report the steps."""
        if self.habits.reported_by == "log":
            return frozenset({self.world - 1})
        return frozenset(range(self.world)) if self.habits.reported_by == "logs" else frozenset()

    def urgent(self, node: str, since: float, until: float) -> Iterator[tuple[float, Record | tuple[Attempt, int]]]:
        """Yield what a node's agent sends at once in an interval: records, and (attempt, rank) of those that ended."""
        for one in self.reports:
            if one.node == node and since < one.at <= until:
                yield one.at, one.record
        for attempt in self.attempts:
            for rank, end in attempt.ends.items():
                seen_at = end.at + 0.6
                if since < seen_at <= until and self.node_of(rank) == node:
                    yield seen_at, (attempt, rank)
