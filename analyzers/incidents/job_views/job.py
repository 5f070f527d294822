"""One attempt of a job as its records show it: small, and independent of the order of the batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from analyzers.incidents.job_views.burdens import Burdens
from analyzers.incidents.job_views.event_log import EventLog
from analyzers.incidents.job_views.latent import LatentRanks
from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.processes import Processes
from analyzers.incidents.job_views.progress import Progress
from analyzers.incidents.job_views.reported_stragglers import ReportedStragglers
from analyzers.incidents.job_views.role_readings import RoleReadings
from analyzers.incidents.job_views.standstills import Standstill, Why
from analyzers.incidents.job_views.step_rhythm import StepRhythm
from analyzers.incidents.job_views.traffic import SCOPES, Traffic
from analyzers.incidents.job_views.waits import OpenOperation, OpenOperations
from analyzers.incidents.job_views.witnesses import Testimony, Witnesses, testimony
from analyzers.incidents.messages import Received
from analyzers.incidents.room import Room
from analyzers.knowledge import Knowledge
from analyzers.knowledge.role_rules import RoleRules
from analyzers.model.clocks import moved
from analyzers.model.role_hardware import NodeGpus
from analyzers.model.role_look import Stall
from analyzers.model.roles import Numbering
from collectors.records import (
    Device,
    DeviceState,
    FlightRecorderDump,
    KernelEvent,
    LogEvent,
    Placement,
    ProcessState,
    Profile,
    RasCommunicator,
    Record,
    Ring,
    RoleState,
    Samples,
    StackDump,
    Steps,
    StragglerReports,
)
from collectors.records.identity import PLACED, name_rank, only, places

STUCK_SECONDS = 20.0  # in the kernel without any CPU time: a storage that stalls, or a driver
HELD_SECONDS = 2.0  # a process that was stopped for less may have been stopped by a reader of its stack
UNDER_WAY_SECONDS = 2.0  # a step may end this late after its job has lost a rank
MOST_DEVICES = 1_024  # of one record: of connections the agent reports the 256 with most bytes
BEFORE_SECONDS = 60.0  # events this much older than the attempt are not of it: logs begin with old lines
MOST_KNOWN = 4_096  # hosts of an attempt that are stored for the next engine
ORDINARY = frozenset({"nccl_warning", "nan"})
SERIOUS = frozenset({
    "xid", "sxid", "off_bus", "mce", "panic", "kernel_bug", "soft_lockup", "hard_lockup", "rcu_stall", "aer", "mlx5",
})  # fmt: skip


class JobView:
    """The input of the detectors. All instants are by the service's clock."""

    def __init__(
        self,
        job: str,
        attempt: int | None = None,
        knowledge: Knowledge | None = None,
        roles: RoleReadings | None = None,
        room: Room | None = None,
    ) -> None:
        """``knowledge`` holds the Xid tables: without them no kernel event is a symptom. ``roles``: shared by the attempts.

        ``room``: for ranks, shared by all views.
        """
        self.job, self.attempt = job, attempt
        self.roles = roles if roles is not None else RoleReadings()
        self.knowledge = knowledge or Knowledge()
        self.room = room if room is not None else Room()
        self.nodes: dict[str, NodeView] = {}
        self.first_at = float("inf")  # its first batch
        self.progress = Progress()
        self.role_rules: RoleRules | None = None  # of the knowledge, once they are needed
        self.stalls: tuple[object, list[Stall]] | None = None  # of its roles, and of what they were found
        self.numbering = Numbering()  # by it all that is kept by rank is kept by process
        self.processes = Processes(self.numbering)
        self.ranks, self.ended = self.processes.ranks, self.processes.ended
        self.waits = OpenOperations()
        self.traffic = Traffic()
        self.witnesses = Witnesses()
        self.burdens = Burdens(self.knowledge)
        self.gpus = NodeGpus()
        self.latent = LatentRanks()
        self.stragglers = ReportedStragglers()
        self.run_began_at = 0.0  # when most ranks were started anew
        self.logged = EventLog()  # failures in its logs
        self.hardware = EventLog()  # kernel events and device states of its nodes
        self.broken: dict[str, str] = {}  # detector → why it failed on this view, until that is reported

    @property
    def world_size(self) -> int | None:
        """Return how many ranks there are, where a process states it."""
        return self.processes.world_size

    def name(self, number: int) -> str:
        """Name a process by what it is kept by: ``rank 3``, or ``rollout rank 3`` where there are several roles."""
        role, rank = self.numbering.of(number)
        return name_rank(rank, role if self.numbering.several else "")

    def is_placed(self, number: int) -> bool:
        """Whether a process states no number: its place gave it one."""
        return self.numbering.of(number)[1] >= PLACED

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

    def has_begun_since(self, at: float) -> bool:
        """Whether its processes were started after an instant: it is a later run than one of then."""
        started = [
            node.here(one.started_at, node.last_received_at)
            for one in self.processes.by_rank.values()
            if one.started_at and (node := self.nodes.get(one.node)) is not None
        ]
        return bool(started) and min(started) > at

    def take(self, received: Received, records: Sequence[Record]) -> list[str]:
        """Apply one batch: its records of this job, and its node's kernel events, device states, samples and coverage.

        Return why records could not be applied: each costs itself.
        """
        at, wrong = received.received_at, list[str]()
        self.first_at = min(self.first_at, at)
        node = self.nodes.get(received.node)
        if node is None:
            node = self.nodes[received.node] = NodeView(received.node, self.room)
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
        self._note_standstills(node)
        self.latent.update(self.burdens, self.progress, at)
        return wrong

    def testimonies(self, now: float) -> list[Testimony]:
        """Return what each witness of the job's progress says."""
        waits, steps, traffic, others = self.waits, self.progress, self.traffic, self.witnesses
        looked_at = max(waits.looked_at, waits.counted_at, others.recorders.read_at or 0.0) or None
        moved_at = max(waits.moved_at, waits.changed_at, others.recorders.moved_at or 0.0) or None
        steps_silent = steps.at is not None and steps.silent_seconds > steps.allowed_seconds
        of_steps = Testimony(
            witness="steps",
            at=steps.at,
            state="unmeasured" if steps.at is None else "silent" if steps_silent else "alive",
        )
        return [
            of_steps,
            self._of_operations(testimony("operations", looked_at, moved_at, now), of_steps),
            testimony("traffic", traffic.until or None, traffic.moved_at, now),
            testimony("switches", others.switches.read_at, others.switches.moved_at, now),
            testimony("cpu", others.cpu.read_at, others.cpu.moved_at, now),
            testimony("gpu", others.gpu.read_at, others.gpu.moved_at, now),
            testimony("stacks", others.stacks.read_at, others.stacks.moved_at, now),
        ]

    def _of_operations(self, said: Testimony, steps: Testimony) -> Testimony:
        """Leave a silence out that only shows that nothing enters the rings: they do not see DDP's operations, for example."""
        if said.state != "silent" or self.outstanding or (said.at is not None and steps.state != "alive"):
            return said
        return msgspec.structs.replace(said, state="unmeasured")

    def document(self, now: float) -> dict[str, Any]:
        """Return what is known of its progress, as plain values."""
        said = [msgspec.to_builtins(one) for one in self.testimonies(now)]
        known = {"version": 1, "progress": self.progress.document(), "witnesses": said}
        known["latent"] = self.latent.document()
        known["stragglers"] = self.stragglers.document(self.ranks)
        if len(self.nodes) <= MOST_KNOWN:
            known["hosts"] = {"at": now, "nodes": sorted(self.nodes)}
        if self.run_began_at:
            known["run_began_at"] = self.run_began_at
        if self.ended and not self.processes.alive:
            known["ended_at"] = max(end.at for end in self.ended.values())
        return known

    def restore(self, document: dict[str, Any]) -> None:
        """Take over what an earlier engine had learned of this attempt."""
        self.progress.restore(document.get("progress", {}))
        self.latent.restore(document.get("latent", []))
        self.run_began_at = max(self.run_began_at, float(document.get("run_began_at", 0.0)))

    def _note_standstills(self, node: NodeView) -> None:
        """Keep what the processes say from being learned as the job's rhythm."""
        processes, known = self.processes, self.progress.standstills
        for held in (*processes.held.values(), *processes.continued):
            lasts = processes.held.get(held.rank) is held
            stopped = held.state == "T" and held.seconds >= HELD_SECONDS
            if stopped or held.seconds >= STUCK_SECONDS:
                key = f"rank {held.rank} {held.since:.3f}"
                until = None if lasts else max(held.until, node.reported_until)
                why: Why = "process" if held.state == "T" else "unknown"
                known.put(Standstill(key=key, since=held.since, until=until, why=why, nodes=(held.node,)))
        processes.continued.clear()
        began_at = node.here(processes.run_began_at, node.last_received_at) if processes.run_began_at else 0.0
        if began_at > self.run_began_at:
            self.run_began_at = began_at
            self.progress.forget(began_at)

    def _apply(self, record: Record, node: NodeView, at: float, before: float, looks: dict[int, float]) -> None:
        """Apply one record. ``before``: ``reported_until`` of its node before this batch; ``looks``: when rings were read."""
        if record.rank is not None:
            number = self.numbering.number(record.role, record.rank)
            if not node.has_room(number):
                return
            if number != record.rank:
                record = msgspec.structs.replace(record, rank=number)
        if isinstance(record, ProcessState):
            self.processes.look(record, node, at)
            self.witnesses.look(record, node, at)
            self.burdens.look(record, node, at)
            node.states_at = max(node.states_at or 0.0, node.here(record.at, at))
        elif isinstance(record, Samples):
            if len(record.devices) > MOST_DEVICES:
                return
            if record.scope in SCOPES:
                self.traffic.take(record, node, at, self.processes.pids.get(node.node, ()))
                if record.scope == "socket":
                    self.burdens.connections.take(record, node, at)
            else:
                self.witnesses.sample(record, node, at)
                self.burdens.sample(record, node, at)
        elif isinstance(record, Ring):
            self.burdens.ring(record, node, at)
            looked_at = self.waits.take(record, node, at, durations=not self.progress.reporters)
            if looked_at is not None and record.rank is not None:
                looks[record.rank] = looked_at
        elif isinstance(record, Steps):
            self.progress.take(record, node, before, at)
        elif isinstance(record, StragglerReports):
            if not self.numbering.several:  # of several roles it does not state whose ranks it counts
                self.stragglers.take(record, node.node, self.ranks)
        elif isinstance(record, Placement):
            seats = [(place, self.numbering.number(role, rank)) for place, role, rank in places(record)]
            kept = [place for place, number in seats if node.has_room(number)]
            self.processes.place(record if len(kept) == len(seats) else only(record, kept), node, at)
        elif isinstance(record, LogEvent):
            if record.event not in ORDINARY:
                self.logged.add(record, node, at, self.first_at - BEFORE_SECONDS)
        elif isinstance(record, KernelEvent | DeviceState):
            if record.state != "ok" if isinstance(record, DeviceState) else record.event in SERIOUS:
                self.hardware.add(record, node, at, self.first_at - BEFORE_SECONDS)
        elif isinstance(record, Device):
            self.burdens.device(record, node)
            self.gpus.take(record, node.node)
        elif isinstance(record, FlightRecorderDump):
            self.witnesses.record(record, node.here(record.at, at))
        elif isinstance(record, Profile):
            self.burdens.profile(record, node, at)
        elif isinstance(record, StackDump):
            self.witnesses.stack(record, node.here(record.at, at))
        elif isinstance(record, RoleState):  # by a collector: the directory's come by themselves
            self.roles.take(moved(record, node.offset), at)
        elif isinstance(record, RasCommunicator):
            self.waits.count(record, node, at)
