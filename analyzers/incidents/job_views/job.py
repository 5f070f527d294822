"""One attempt of a job as its records show it: small, and independent of the order of the batches."""

from __future__ import annotations

from collections.abc import Sequence

from analyzers.incidents.job_views.event_log import EventLog
from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.processes import Processes
from analyzers.incidents.job_views.progress import Progress
from analyzers.incidents.job_views.step_rhythm import StepRhythm
from analyzers.incidents.job_views.traffic import SCOPES, Traffic
from analyzers.incidents.job_views.waits import OpenOperation, OpenOperations
from analyzers.incidents.messages import Received
from analyzers.knowledge import Knowledge
from collectors.records import (
    DeviceState,
    KernelEvent,
    LogEvent,
    Placement,
    ProcessState,
    RasCommunicator,
    Record,
    Ring,
    Samples,
    Steps,
)

UNHEARD_SECONDS = 30.0  # the reporter of steps may be on an unreachable node: then traffic is followed
UNDER_WAY_SECONDS = 2.0  # a step may end this late after its job has lost a rank
BEFORE_SECONDS = 60.0  # events this much older than the attempt are not of it: logs begin with old lines
ORDINARY = frozenset({"nccl_warning", "nan"})
SERIOUS = frozenset({
    "xid", "sxid", "off_bus", "mce", "panic", "kernel_bug", "soft_lockup", "hard_lockup", "rcu_stall", "aer", "mlx5",
})  # fmt: skip


class JobView:
    """The input of the detectors. All instants are by the service's clock."""

    def __init__(self, job: str, attempt: int | None = None, knowledge: Knowledge | None = None) -> None:
        """``knowledge`` holds the Xid tables: without them no kernel event is a symptom."""
        self.job, self.attempt = job, attempt
        self.knowledge = knowledge or Knowledge()
        self.nodes: dict[str, NodeView] = {}
        self.first_at = float("inf")  # its first batch
        self.progress = Progress()
        self.processes = Processes()
        self.ranks, self.ended = self.processes.ranks, self.processes.ended
        self.waits = OpenOperations()
        self.traffic = Traffic()
        self.logged = EventLog()  # failures in its logs
        self.hardware = EventLog()  # kernel events and device states of its nodes
        self.broken: dict[str, str] = {}  # detector → why it failed on this view, until that is reported

    @property
    def world_size(self) -> int | None:
        """Return how many ranks there are, where a process states it."""
        return self.processes.world_size

    @property
    def newest_step(self) -> int | None:
        """Return the newest reported step."""
        return self.progress.step

    @property
    def newest_step_at(self) -> float | None:
        """Return when that step ended."""
        return self.progress.at

    @property
    def rhythm(self) -> StepRhythm:
        """Return the step rhythm of the most frequent reporter."""
        return self.progress.rhythm

    @property
    def outstanding(self) -> dict[int, OpenOperation]:
        """Return the open operation of each rank when its ring was last read."""
        return {rank: ring.inside for rank, ring in self.waits.rings.items() if ring.inside is not None}

    @property
    def settled_until(self) -> float:
        """Return the instant after which the job did two more steps, not counting the step under way."""
        rows = self.rhythm.rows
        return rows[-2].at - UNDER_WAY_SECONDS if len(rows) > 1 else 0.0

    def went_on(self, at: float) -> bool:
        """Whether the job did two more steps after an instant."""
        return at < self.settled_until

    def take(self, received: Received, records: Sequence[Record]) -> list[str]:
        """Apply one batch: its records of this job, and its node's kernel events, device states, samples and coverage.

        Return why records could not be applied: each costs itself.
        """
        at, wrong = received.received_at, list[str]()
        self.first_at = min(self.first_at, at)
        node = self.nodes.get(received.node)
        if node is None:
            node = self.nodes[received.node] = NodeView(received.node)
        before = node.reported_until
        looks: dict[int, float] = {}
        # Placements come after the ends: a rank that is placed no more has usually reported its end.
        ordered = sorted(records, key=lambda record: isinstance(record, Placement))
        try:
            node.take(received, records)
        except Exception as error:  # noqa: BLE001 - the node's clock and coverage are not its ranks
            wrong.append(f"{type(error).__name__}: {error}")
        for record in ordered:
            try:
                self._apply(record, node, at, before, looks)
            except Exception as error:  # noqa: BLE001 - one odd record costs itself
                wrong.append(f"{record.__struct_config__.tag}: {type(error).__name__}: {error}")
        for rank, looked_at in looks.items():  # after the steps of the same reading
            self.progress.looked(rank, looked_at)
        self.progress.batch_taken(node)
        return wrong

    def _apply(self, record: Record, node: NodeView, at: float, before: float, looks: dict[int, float]) -> None:
        """Apply one record. ``before``: ``reported_until`` of its node before this batch; ``looks``: when rings were read."""
        if record.rank is not None and not node.has_room(record.rank):
            return
        if isinstance(record, ProcessState):
            self.processes.look(record, node, at)
            node.states_at = max(node.states_at or 0.0, node.here(record.at, at))
        elif isinstance(record, Samples):
            unheard = not self.progress.reporters or at - self.progress.until > UNHEARD_SECONDS
            if record.scope in SCOPES and unheard and not self.waits.rings:
                self.traffic.take(record, node, at)
        elif isinstance(record, Ring):
            looked_at = self.waits.take(record, node, at, durations=not self.progress.reporters)
            if looked_at is not None and record.rank is not None:
                looks[record.rank] = looked_at
        elif isinstance(record, Steps):
            self.progress.take(record, node, before, at)
        elif isinstance(record, Placement):
            self.processes.place(record, node, at)
        elif isinstance(record, LogEvent):
            if record.event not in ORDINARY:
                self.logged.add(record, node, at, self.first_at - BEFORE_SECONDS)
        elif isinstance(record, KernelEvent | DeviceState):
            if record.state != "ok" if isinstance(record, DeviceState) else record.event in SERIOUS:
                self.hardware.add(record, node, at, self.first_at - BEFORE_SECONDS)
        elif isinstance(record, RasCommunicator):
            self.waits.count(record, node, at)
