"""The newest signs of one node that other nodes may share. All of it is bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from analyzers.incidents.fleet.rules import Rules
from analyzers.incidents.messages import Received
from analyzers.knowledge import Knowledge, xids
from collectors.records import CollectorReport, Coverage, Device, DeviceState, KernelEvent, ProcessState, Record

MOST_EVENTS, MOST_MOUNTS, MOST_BLOCKED, MOST_PORTS, MOST_DOWNS = 64, 128, 256, 64, 8  # of one node
OLD_SECONDS = 900.0  # an event that is reported this late is history: an agent that starts reads the whole log
CPU_SECONDS = 0.05  # a process that used more in between is slow, not blocked
SAME_LOSS_SECONDS = 5.0  # the driver and the network service report the same loss once each
SAME_LOOK_SECONDS = 30.0  # states come every ten: one that is older than the newest batch by more was not seen again
DEAD = ("no_answer", "unreadable")
COLLECTORS_OF_EVIDENCE = ("stacks", "recorder")


class SignClass(NamedTuple):
    """A class of signs: its family (link, device, host, storage), and the subject where it is known."""

    family: str
    subject: str = ""


class Sign(NamedTuple):
    """One node shows something of a class."""

    at: float  # by our clock
    text: str
    source: str = ""


@dataclass(slots=True)
class _Mount:
    server: str = ""
    state: str = ""
    since: float = 0.0
    answered: bool = False  # it was ok before: a mount that was never readable is a matter of permissions


@dataclass(slots=True)
class _Port:
    """A port that lost its link; a single short loss is normal."""

    downs: deque[tuple[float, str, str]] = field(default_factory=lambda: deque(maxlen=MOST_DOWNS))  # at, text, source
    down: bool = False


class _Blocked(NamedTuple):
    since: float
    seen_at: float
    cpu_seconds: float
    channel: str
    who: str


@dataclass(slots=True)
class NodeSigns:
    """One node's memory."""

    events: deque[tuple[float, KernelEvent]] = field(default_factory=lambda: deque(maxlen=MOST_EVENTS))
    ports: dict[str, _Port] = field(default_factory=dict)
    mounts: dict[str, _Mount] = field(default_factory=dict)
    unanswering: dict[str, float] = field(default_factory=dict)  # file servers, by the kernel's log → since
    blocked: dict[int, _Blocked] = field(default_factory=dict)  # by pid
    driver: str = ""
    blind: str = ""  # why neither stacks nor recorders can be taken; empty: they can, or it is unknown

    def take(self, received: Received) -> None:
        """Take up a batch."""
        for record in received.records:
            if isinstance(record, KernelEvent):
                self._see_event(record, received)
            elif isinstance(record, ProcessState):
                self._see_process(record, received)
            elif isinstance(record, DeviceState):
                self._see_state(record, received)
            elif isinstance(record, Device):
                self._see_device(record)
            elif isinstance(record, Coverage):
                self.blind = explain_blindness(record)

    def _see_event(self, event: KernelEvent, received: Received) -> None:
        at, name = to_service_clock(event, received), event.device or event.pci or ""
        if event.event == "nfs_responding":
            self.unanswering.pop(name, None)
        elif event.event == "link_up":
            if (port := self.ports.get(name)) is not None:
                port.down = False
        elif received.received_at - at > OLD_SECONDS:
            return
        elif event.event == "nfs_not_responding":
            if len(self.unanswering) < MOST_MOUNTS:
                self.unanswering.setdefault(name, at)
        elif event.event == "link_down":
            if name in self.ports or len(self.ports) < MOST_PORTS:
                _lost(self.ports.setdefault(name, _Port()), at, event)
        else:
            self.events.append((at, event))

    def _see_process(self, process: ProcessState, received: Received) -> None:
        """Remember since when a process of a job has been in state D without using the processor."""
        if process.job is None:  # a host has processes of its own that wait for files
            return
        if process.state != "D":
            self.blocked.pop(process.pid, None)
            return
        at, cpu = to_service_clock(process, received), process.cpu_seconds or 0.0
        held = self.blocked.get(process.pid)
        if held is None and len(self.blocked) >= MOST_BLOCKED:
            self.blocked = {pid: one for pid, one in self.blocked.items() if one.seen_at >= at - SAME_LOOK_SECONDS}
            if len(self.blocked) >= MOST_BLOCKED:
                return
        since = held.since if held is not None and abs(cpu - held.cpu_seconds) <= CPU_SECONDS else at
        who = f"process {process.pid}" if process.rank is None else f"rank {process.rank}"
        seen_at = max(at, held.seen_at if held is not None else at)
        self.blocked[process.pid] = _Blocked(min(since, at), seen_at, cpu, process.wait_channel or "", who)

    def _see_state(self, state: DeviceState, received: Received) -> None:
        mount = self.mounts.get(state.device)
        if mount is None:
            if not state.device.startswith("/") or len(self.mounts) >= MOST_MOUNTS:  # a GPU's state
                return
            mount = self.mounts[state.device] = _Mount()
        if state.state not in DEAD or mount.state not in DEAD:
            mount.since = to_service_clock(state, received)
        mount.state = state.state
        mount.answered = mount.answered or state.state == "ok"

    def _see_device(self, device: Device) -> None:
        if device.type == "gpu":
            self.driver = device.attributes.get("driver_version", self.driver)
        elif device.type == "mount" and (device.id in self.mounts or len(self.mounts) < MOST_MOUNTS):
            self.mounts.setdefault(device.id, _Mount()).server = file_server(device.name)

    @property
    def servers(self) -> set[str]:
        """Return the file servers whose file systems are mounted here."""
        return {mount.server for mount in self.mounts.values() if mount.server}

    def shown(
        self, rules: Rules, knowledge: Knowledge, now: float, heard_at: float
    ) -> Iterator[tuple[SignClass, Sign]]:
        """Yield the node's signs now. ``heard_at``: when its newest batch came."""
        for at, event in self.events:
            if now - at <= rules.same_quiet_seconds and (found := _class_of(event, rules, knowledge)):
                yield found, Sign(at, event.text[:200] or event.event, event.source)
        for name, port in self.ports.items():
            lasts = port.down and heard_at - port.downs[-1][0] >= rules.link_lasting_seconds
            lost = [down for down in port.downs if now - down[0] <= rules.same_quiet_seconds]
            if lasts or len(lost) > 1:
                for at, text, source in lost or [port.downs[-1]]:
                    yield SignClass("link"), Sign(at, text or f"{name} lost its link", source)
        yield from self._storage(rules, now, heard_at)

    def _storage(self, rules: Rules, now: float, heard_at: float) -> Iterator[tuple[SignClass, Sign]]:
        """Yield the signs that a file server does not answer, once they have lasted."""
        latest = now - rules.storage_lasting_seconds
        for point, mount in self.mounts.items():
            dead = mount.state == "no_answer" or (mount.state == "unreadable" and mount.answered)
            if dead and mount.since <= latest:
                words = "does not answer" if mount.state == "no_answer" else "can no longer be read"
                yield SignClass("storage", mount.server), Sign(mount.since, f"{point} {words}", "host")
        for server, since in self.unanswering.items():
            if since <= latest:
                yield SignClass("storage", server), Sign(since, f"the kernel: file server {server} not responding")
        for process in self.blocked.values():
            seen = process.seen_at >= heard_at - SAME_LOOK_SECONDS
            lasted = process.seen_at - process.since >= rules.storage_lasting_seconds
            if seen and lasted and rules.file_systems.waited_for(process.channel):
                text = f"{process.who} blocked in {process.channel}, without using the processor"
                yield SignClass("storage", self._only_server()), Sign(process.since, text, "process")

    def _only_server(self) -> str:
        servers = self.servers
        return next(iter(servers)) if len(servers) == 1 else ""


def _lost(port: _Port, at: float, event: KernelEvent) -> None:
    port.down = True
    if not port.downs or abs(at - port.downs[-1][0]) > SAME_LOSS_SECONDS:
        port.downs.append((at, event.text[:200], event.source))


def _class_of(event: KernelEvent, rules: Rules, knowledge: Knowledge) -> SignClass | None:
    """Return the class of an event, None where machines cannot share its cause."""
    family = rules.events.get(event.event) or rules.events.get(f"{event.event} {event.severity}")
    if family is None:
        return None
    if event.event in ("xid", "off_bus"):
        code = event.code or (79 if event.event == "off_bus" else 0)
        # Applications cause Xids on all their nodes at once, and the echoes of one fault are Xids on others.
        return SignClass(family, f"Xid {code}") if xids.xid(knowledge, code).role == "primary" else None
    return SignClass(family, "" if family == "link" else event.event.replace("_", " "))


def explain_blindness(coverage: Coverage) -> str:
    """Say why an agent can take neither stacks nor recorders; empty where it can take one of them, or that is unknown."""
    reports = [report for report in coverage.collectors if report.name in COLLECTORS_OF_EVIDENCE]
    if not reports or not all(map(_idle, reports)):
        return ""
    return "; ".join(f"{report.name}: {report.error or 'nothing to read'}" for report in reports)[:300]


def _idle(report: CollectorReport) -> bool:
    """Whether it ran in its minute and could give nothing: without a reason, no reading was due."""
    unable = report.failures + report.overran > 0 or (report.nothing > 0 and report.error != "")
    return report.records == 0 and unable


def file_server(source: str) -> str:
    """Return the file server of what is mounted.

    >>> server_of("filer1:/home"), server_of("10.0.0.1@tcp:10.0.0.2@tcp:/scratch"), server_of("[fe80::1]:/x")
    ('filer1', '10.0.0.1@tcp:10.0.0.2@tcp', '[fe80::1]')
    """
    return source.rpartition(":/")[0] or source


def to_service_clock(record: Record, received: Received) -> float:
    """Convert a record's time to our clock: its age when the batch was sent, counted back from the batch's receipt.

    Both instants of that age are the node's, so a wrong clock cancels out; an instant in the future becomes now.
    """
    if record.at is None or received.sent_at is None:
        return received.received_at
    return received.received_at - max(0.0, received.sent_at - record.at)
