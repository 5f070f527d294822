"""A fleet for tests: nodes that ship staggered, jobs that run on them, and the loop that looks every ten seconds."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from analyzers.incidents.fleet import Fleet, FleetReport, SharedIncident
from analyzers.incidents.fleet.node_activity import NodeActivity
from analyzers.incidents.messages import Alarm, Received
from analyzers.knowledge import Knowledge, parse
from analyzers.model.incident import Incident, Symptom
from collectors.records import Device, DeviceState, KernelEvent, Record
from service.packaged_knowledge import load

START = 1_790_000_000.0
SHIP_SECONDS = 10.0
FOUR_SWITCHES = """
[domains.switch]
leaf-0 = ["n0[0-9]", "n1[0-5]"]
leaf-1 = ["n1[6-9]", "n2?", "n3[01]"]
leaf-2 = ["n3[2-9]", "n4[0-7]"]
leaf-3 = ["n4[89]", "n5?", "n6?"]
"""


@dataclasses.dataclass
class Job:
    """Where a job runs, as the watch's view of it says."""

    job: str
    attempt: int | None = 1
    ranks: dict[int, str] = dataclasses.field(default_factory=dict)
    world_size: int | None = None
    first_at: float | None = None
    ended: dict[int, object] = dataclasses.field(default_factory=dict)


class World:
    """Nodes that ship every ten seconds, staggered, jobs that run on them, and the loop that looks every ten."""

    def __init__(self, nodes: int = 64, site: str = "", jobs: Sequence[tuple[str, Iterable[int]]] = ()) -> None:
        packaged = load()
        documents = {"fleet": (Path(__file__).parents[2] / "analyzers/knowledge/fleet.toml").read_text()}
        tables = {**packaged.tables, **parse(documents, {"fleet": site}).tables}
        self.knowledge = Knowledge(tables, "sha256:of this test")
        self.fleet = Fleet(self.knowledge)
        self.names = [f"n{number:02d}" for number in range(nodes)]
        self.seen: dict[str, NodeActivity] = {}
        self.now = START
        self.cut: set[str] = set()
        self.skew: dict[str, float] = {}
        self.reported: dict[str, list[Record]] = {}  # with the node's next batch
        self.jobs: dict[str, Job] = {}
        for job, members in jobs:
            self.jobs[job] = view = Job(job)
            view.ranks = dict(enumerate(self.names[number] for number in members))
            view.world_size, view.first_at = len(view.ranks), START - 3600.0
        self.reports: list[FleetReport] = []
        self.alarms: list[Alarm] = []
        self.every_second: Callable[[World], None] = lambda world: None

    def run(self, seconds: int) -> FleetReport:
        """Let time pass; return the newest report."""
        for _ in range(seconds):
            self.now += 1.0
            self.every_second(self)
            for number, name in enumerate(self.names):
                if int(self.now + number) % int(SHIP_SECONDS) == 0 and name not in self.cut:
                    self._ship(name, self.now + number / 1000)
            if int(self.now) % 10 == 0:
                self.look()
        return self.reports[-1]

    def look(self) -> FleetReport:
        """Look now, at what came so far."""
        self.reports.append(self.fleet.look(self.jobs, self.seen, self.now + 0.9))
        self.alarms += self.reports[-1].alarms
        return self.reports[-1]

    def _ship(self, name: str, at: float) -> None:
        sent_at = at - 0.05 + self.skew.get(name, 0.0)
        received = Received(
            sequence=0, received_at=at, node=name, sent_at=sent_at, records=tuple(self.reported.pop(name, ()))
        )
        self.seen.setdefault(name, NodeActivity(at)).take(received)
        self.fleet.take(received)

    def tell(self, name: str, *records: Record) -> None:
        """Give a node something to tell: instants are our clock's, and are written by the node's."""
        skew = self.skew.get(name, 0.0)
        shifted = [
            record if record.at is None else msgspec.structs.replace(record, at=record.at + skew) for record in records
        ]
        self.reported.setdefault(name, []).extend(msgspec.structs.replace(record, node=name) for record in shifted)

    @property
    def opened(self) -> dict[str, SharedIncident]:
        """Every infrastructure incident there was, as it was reported last."""
        return {shared.key: shared for report in self.reports for shared in report.shared}

    @property
    def over(self) -> dict[str, str]:
        """Every incident that ended, and why."""
        return {key: why for report in self.reports for key, why in report.over.items()}


def only(world: World) -> SharedIncident:
    """The one infrastructure incident that there was."""
    assert len(world.opened) == 1, {key: one.symptom.text for key, one in world.opened.items()}
    return next(iter(world.opened.values()))


def evicts_nobody(shared: SharedIncident) -> bool:
    """Nothing is to be done to a node, and none is named."""
    document = shared.verdict
    named = {entry.kind for entry in (*document.culprits, *document.suspects)}
    return document.action.kind == "none" and not document.action.nodes and not named & {"node", "rank", "device"}


def incident(job: str | None, detector: str, at: float, nodes: tuple[str, ...]) -> Incident:
    """A job's incident with one symptom."""
    symptom = Symptom(kind="hang", detector=detector, at=at, text="", nodes=nodes)
    return Incident(
        id="inc-1", kind="hang", job=job, attempt=1, opened_at=at, onset_at=at, symptoms=(symptom,), after=0
    )


def mounted(world: World, server: str, names: Iterable[str], point: str = "/data") -> None:
    """Mount a server's file system, as an agent tells of it."""
    for name in names:
        attributes = {"type": "nfs4", "source": f"{server}:/export"}
        world.tell(
            name,
            Device(type="mount", id=point, name=f"{server}:/export", attributes=attributes),
            DeviceState(device=point, state="ok", at=world.now),
        )


def unanswering(world: World, names: Iterable[str], state: str = "no_answer") -> None:
    """Let the mount change how it answers."""
    for name in names:
        world.tell(name, DeviceState(device="/data", state=state, at=world.now))


def links_down(world: World, names: Iterable[str]) -> None:
    """Let these nodes lose a link each, within a few seconds."""
    for number, name in enumerate(names):
        world.tell(
            name,
            KernelEvent(event="link_down", device="ib0", text="mlx5_core: ib0: Link down", at=world.now - number % 7),
        )
