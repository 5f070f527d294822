"""What the engine remembers between two events. All but the incidents can be rebuilt from the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from analyzers.incidents.evidence import Evidence
from analyzers.incidents.fleet import Fleet, FleetReport
from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.hosting import Hosting
from analyzers.incidents.job_views import JobView, RoleReadings
from analyzers.incidents.job_views.pace_changes import CodeSwitch, UsualPace
from analyzers.incidents.messages import Declared, Ending
from analyzers.incidents.room import Room
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident
from collectors.records import Record

LOOKBACK_SECONDS = 180.0  # of records before an opening that a judgement sees: placements and stacks come once a minute
ROLES_LOOKBACK_SECONDS = (
    420.0  # of readings of roles: a trainer may rest for five minutes, and is compared with its past
)
SKEW_SECONDS = 1.0  # a smaller clock offset is not corrected: it may be the time a batch takes
FORGOTTEN_SECONDS = 3_600.0  # a job or a node without a report for this long leaves the memory

MOST_FAILURES = 64  # between two drains

JobKey = tuple[str, int | None]


@dataclass(frozen=True, slots=True)
class EvidenceLimits:
    """How much evidence is kept, in bytes as it is packed: of a node, of a job's nodes together, and of all."""

    node_bytes: int = 64 << 20
    job_bytes: int = 2 << 30
    engine_bytes: int = 4 << 30


LIMITS = EvidenceLimits()


class Failure(NamedTuple):
    """A record, a job or an incident on which the engine failed: it cost itself, and nothing else."""

    what: str  # apply detect tick judge …
    subject: str  # whose: a node, a job, an incident
    why: str


@dataclass(frozen=True, slots=True)
class ChangedCode:
    """What is known of a job before its code changed. ``attempt``: the first with the new code."""

    attempt: int
    switch: CodeSwitch
    pace: UsualPace
    nodes: frozenset[str]


@dataclass(slots=True)
class EngineState:
    """The engine's memory; only ``step`` changes it."""

    knowledge: Knowledge
    sequence: int = 0  # of the newest batch
    now: float = 0.0  # of the newest event
    nodes: dict[str, NodeActivity] = field(default_factory=dict)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    jobs: dict[JobKey, JobView] = field(default_factory=dict)
    learned: dict[JobKey, dict[str, Any]] = field(
        default_factory=dict
    )  # by an earlier engine, of attempts not seen yet
    hosts_before: dict[JobKey, tuple[float, tuple[str, ...]]] = field(
        default_factory=dict
    )  # when an earlier engine wrote which nodes host an attempt
    reported_at: dict[JobKey, float] = field(default_factory=dict)  # newest record of the job itself
    roles: dict[str, RoleReadings] = field(default_factory=dict)  # job → what its directory of roles reports
    hosting: dict[str, Hosting] = field(default_factory=dict)  # job → which node hosts which rank
    declared: dict[str, Declared] = field(
        default_factory=dict
    )  # job → the scheduler's word; only the driver forgets it
    changed_code: dict[str, ChangedCode] = field(default_factory=dict)  # job → what its steps took by the code before
    endings: dict[str, Ending] = field(default_factory=dict)  # job → a person's word that it is being stopped
    jobs_on: dict[str, set[JobKey]] = field(default_factory=dict)  # node → attempts that run there
    incidents: dict[str, Incident] = field(default_factory=dict)  # the open ones
    contexts: dict[str, tuple[Record, ...]] = field(default_factory=dict)  # of the open incidents
    waiting: dict[str, set[tuple[str, str]]] = field(
        default_factory=dict
    )  # incident → (node, verb) asked and not answered
    unanswered: dict[str, int] = field(
        default_factory=dict
    )  # incident → answers of its newest round that came too late
    silent: dict[str, set[str]] = field(
        default_factory=dict
    )  # incident that is being judged → nodes without an answer to its newest round
    settled: dict[JobKey, float] = field(default_factory=dict)  # symptoms from before then open no incident
    marks: deque[tuple[float, int]] = field(default_factory=deque)  # (received_at, sequence), a mark a tick
    changed: set[JobKey] = field(default_factory=set)  # jobs with new records since their detectors ran
    held_back: dict[JobKey, float] = field(default_factory=dict)  # until when ends of other ranks are waited for
    looked_at: float = 0.0  # when the detectors last ran on changed jobs
    ticked_at: float = 0.0  # when the detectors last ran on all jobs
    back_at: float = 0.0  # when the newest span ended in which nothing could reach the engine
    limits: EvidenceLimits = LIMITS
    viewed: Room = field(default_factory=Room)  # ranks in the jobs' views
    claimed: Room = field(default_factory=Room)  # and in the nodes' claims
    evidence_bytes: int = 0
    shed_records: int = 0  # since the engine began
    failures: list[Failure] = field(default_factory=list)  # until the driver has reported them
    failed: int = 0  # how many there were
    fleet: Fleet = field(init=False)  # what several nodes or jobs show at once
    report: FleetReport = field(default_factory=FleetReport)  # its newest

    def __post_init__(self) -> None:
        self.fleet = Fleet(self.knowledge)

    def note_failure(self, what: str, subject: str, error: Exception | str) -> None:
        """Note what the engine left out."""
        self.failed += 1
        if len(self.failures) < MOST_FAILURES:
            why = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
            self.failures.append(Failure(what, subject, why[:200]))

    def incident_of(self, key: JobKey) -> Incident | None:
        """Return the open incident of a job's attempt; of two the one beside which a slowdown rests."""
        found = [one for one in self.incidents.values() if (one.job, one.attempt) == key]
        return min(found, key=lambda one: one.kind == "slow", default=None)

    def rests(self, incident: Incident) -> bool:
        """Whether a slowdown is not looked at now: its job stands still, and another incident is about that."""
        return incident.kind == "slow" and self.incident_of((incident.job or "", incident.attempt)) != incident

    def declared_nodes(self, job: str) -> tuple[str, ...]:
        """Return the nodes that a job's declaration names."""
        return self.declared[job].nodes if job in self.declared else ()

    def offsets(self, nodes: Iterable[str]) -> dict[str, float]:
        """Return how far the clocks of these nodes are ahead, where that is more than a second."""
        found = {node: round(self.nodes[node].offset, 1) for node in nodes if node in self.nodes}
        return {node: offset for node, offset in sorted(found.items()) if abs(offset) > SKEW_SECONDS}

    def mark_before(self, at: float) -> int:
        """Return the newest sequence number at an instant."""
        found = 0
        for marked_at, sequence in self.marks:
            if marked_at > at:
                break
            found = sequence
        return found
