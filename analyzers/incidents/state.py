"""What the engine remembers between two events. All but the incidents can be made again from the log."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from analyzers.incidents.evidence import Evidence
from analyzers.incidents.fleet import Fleet, FleetReport
from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.job_views import JobView
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident
from collectors.records import Record

LOOKBACK_SECONDS = 180.0  # of records before an opening that a judgement sees: placements and stacks come once a minute
SKEW_SECONDS = 1.0  # clocks that differ by less are left alone: a batch takes its time, too
FORGOTTEN_SECONDS = 3_600.0  # a job or a node that nobody has told of for so long leaves the memory

JobKey = tuple[str, int | None]


@dataclass(slots=True)
class EngineState:
    """The engine's memory; ``step`` changes it, and nobody else does."""

    knowledge: Knowledge
    sequence: int = 0  # of the newest batch
    now: float = 0.0  # of the newest event
    nodes: dict[str, NodeActivity] = field(default_factory=dict)
    evidence: dict[str, Evidence] = field(default_factory=dict)
    jobs: dict[JobKey, JobView] = field(default_factory=dict)
    reported_at: dict[JobKey, float] = field(default_factory=dict)  # when something of the job itself came
    jobs_on: dict[str, set[JobKey]] = field(default_factory=dict)  # node → who runs there
    incidents: dict[str, Incident] = field(default_factory=dict)  # the open ones
    contexts: dict[str, tuple[Record, ...]] = field(default_factory=dict)  # of the open incidents
    waiting: dict[str, set[tuple[str, str]]] = field(
        default_factory=dict
    )  # incident → (node, verb) asked and not answered
    unanswered: dict[str, int] = field(default_factory=dict)  # incident → what of its newest look did not come in time
    settled: dict[JobKey, float] = field(default_factory=dict)  # symptoms from before then have had their incident
    marks: deque[tuple[float, int]] = field(default_factory=deque)  # (received_at, sequence), a mark a tick
    changed: set[JobKey] = field(default_factory=set)  # jobs that something was told of since they were looked at
    looked_at: float = 0.0  # when changed jobs were last looked at
    ticked_at: float = 0.0  # when all jobs were last looked at
    fleet: Fleet = field(init=False)  # what several nodes or jobs show at once
    report: FleetReport = field(default_factory=FleetReport)  # its newest

    def __post_init__(self) -> None:
        self.fleet = Fleet(self.knowledge)

    def incident_of(self, key: JobKey) -> Incident | None:
        """Return the open incident of a job's attempt."""
        return next((one for one in self.incidents.values() if (one.job, one.attempt) == key), None)

    def offsets(self, nodes: Iterable[str]) -> dict[str, float]:
        """Return how far the clocks of these nodes are ahead, of those that are more than a second off."""
        found = {node: round(self.nodes[node].offset, 1) for node in nodes if node in self.nodes}
        return {node: offset for node, offset in sorted(found.items()) if abs(offset) > SKEW_SECONDS}

    def mark_before(self, at: float) -> int:
        """Return the sequence number up to which the log had come at an instant."""
        found = 0
        for marked_at, sequence in self.marks:
            if marked_at > at:
                break
            found = sequence
        return found
