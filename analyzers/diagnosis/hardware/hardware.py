"""From kernel events to findings: which device is faulty, which only echo it, and which ports and hosts are in trouble."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from msgspec.structs import replace

from analyzers.diagnosis.hardware import applications, devices, hosts, ports
from analyzers.diagnosis.hardware.occurrences import UTC, coalesce, instant_of, of_kind
from analyzers.diagnosis.hardware.passed import GPU_EVENTS, OF_DISKS, OF_MEMORY, outlived, without_passed
from analyzers.diagnosis.hardware.places import Places, is_of_log
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Finding
from analyzers.model.topology import Topology
from analyzers.model.window import Window, last_activity_ns
from collectors.records import Device, DeviceState, KernelEvent, LogEvent

# A kernel log keeps weeks. An event this far from the job's last own sign of life is another story; the bounds leave
# room for stamps without a zone, which may be off by half a day.
STALE_SECONDS = 86_400.0
LATER_SECONDS = 54_000.0


def analyze(window: Window, topology: Topology, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield a finding per faulty device, link or host that the kernel logs show; nothing for ordinary lines."""
    events: Sequence[KernelEvent] = events_of(window)
    if not events:
        return
    last_sign_at = _last_sign_at(window)
    places = Places(window, topology)
    elsewhere, events = _parted(events, places.is_elsewhere)
    claimed = [one for finding in _claims(elsewhere, window, places, knowledge) for one in finding.suspects]
    yield from devices.rejecting(claimed, devices.OF_NO_NODE)
    strangers, events = _parted(events, lambda event: event.event == "xid" and places.is_strangers(event))
    yield from devices.not_the_jobs(coalesce(strangers), places, knowledge, devices.OF_A_STRANGER)
    unused, events = _parted(events, lambda event: event.event in ("xid", "off_bus") and places.is_unused(event))
    yield from devices.not_the_jobs(coalesce(unused), places, knowledge, devices.OF_NO_RANK)
    timely, old = _parted(events, lambda event: _timely(event, last_sign_at))
    passed, open_still = outlived(timely, window, places, knowledge)
    apart = {id(event) for event in (*passed, *open_still)}
    yield from _claims([event for event in timely if id(event) not in apart], window, places, knowledge)
    yield from map(devices.of_another_hour, _claims(open_still, window, places, knowledge))
    yield from devices.not_the_jobs(coalesce(of_kind(passed, *GPU_EVENTS)), places, knowledge, devices.OUTLIVED)
    of_hosts = hosts.findings(list(of_kind(passed, *OF_DISKS, *OF_MEMORY)), places)
    yield from devices.rejecting((one for finding in of_hosts for one in finding.suspects), devices.OUTLIVED)
    yield from devices.not_the_jobs(coalesce(of_kind(old, *GPU_EVENTS)), places, knowledge, devices.OUT_OF_TIME)


def _parted(
    events: Iterable[KernelEvent], holds: Callable[[KernelEvent], bool]
) -> tuple[list[KernelEvent], list[KernelEvent]]:
    """Return the events of which something holds, and the others."""
    parts: tuple[list[KernelEvent], list[KernelEvent]] = ([], [])
    for event in events:
        parts[not holds(event)].append(event)
    return parts


def _claims(timely: list[KernelEvent], window: Window, places: Places, knowledge: Knowledge) -> Iterator[Finding]:
    """Yield what these events say of devices, ports and hosts."""
    if not timely:
        return
    occurrences = coalesce(of_kind(timely, *GPU_EVENTS))
    missing = _missing(timely)
    faulty = list(devices.findings(occurrences, places, knowledge, missing))
    yield from faulty or [
        *applications.findings(occurrences, window, places, knowledge),
        *devices.origins(occurrences),
    ]
    yield from ports.findings(timely, places, missing)
    alone = not window.live and all(isinstance(record, KernelEvent) for record in window.records)
    of_lines = not window.live and all(
        isinstance(record, KernelEvent | LogEvent) or is_of_log(record) for record in window.records
    )
    yield from hosts.findings(without_passed(timely, window), places, alone=alone, of_lines=of_lines)


def _timely(event: KernelEvent, last_sign_at: float | None) -> bool:
    at = instant_of(event)
    if last_sign_at is None or at.clock != UTC or at.seconds is None:
        return True
    return -STALE_SECONDS <= at.seconds - last_sign_at <= LATER_SECONDS


def _last_sign_at(window: Window) -> float | None:
    """Return the newest instant that the job's own logs and dumps mention; file times are not trusted for this."""
    logged = [event.at for event in window.records_of(LogEvent) if event.at is not None]
    dumped = [last_activity_ns(dump) / 1e9 for dump in window.dumps]
    return max([*logged, *(at for at in dumped if at > 0)], default=None)


def _missing(events: list[KernelEvent]) -> tuple[str, ...]:
    undated = next((event for event in events if event.at is None and event.yearless_at is not None), None)
    if undated is None:
        return ()
    file = undated.source.rpartition(":")[0]
    return (f"the year of {file}: its lines carry none, so they cannot be set beside other logs in time",)


OFF_BUS_XID = 79
SAME_XID_SECONDS = 15.0  # the library is asked every ten seconds, so it reports an Xid that much later than the log
NO_HANDLE = "Unable to determine the device handle: Unknown Error"  # nvidia-smi, of a GPU that the driver cannot open
LIBRARY = "nvml"  # the source of what a live agent read from the library

Xid = tuple[str | None, str | None, int | None]  # node, PCI address, code


def events_of(window: Window) -> tuple[KernelEvent, ...]:
    """Return the kernel's events and, where the library alone saw them, its Xids and lost GPUs."""
    logged = window.records_of(KernelEvent)
    in_log = _instants(logged)
    seen = (*(event for event in logged if event.source == LIBRARY), *_lost(window))
    logged = _with_node(logged)
    known = {(event.node, event.pci) for event in logged}
    stated = _with_node((*logged, *_reported(window)))[len(logged) :]
    return (
        *(event for event in logged if event.source != LIBRARY),
        *(event for event in seen if not _logged(event, in_log)),
        *(event for event in stated if (event.node, event.pci) not in known),
    )


def _with_node(events: Sequence[KernelEvent]) -> tuple[KernelEvent, ...]:
    """Give a line that names no node the one that the same file names for the same GPU, where it names one only.

    A paste of dmesg, syslog and nvidia-smi of one machine has its GPU with the host's name and without.
    """
    nodes: dict[tuple[str, str], set[str]] = defaultdict(set)
    for event in events:
        if event.node and event.pci:
            nodes[_file(event), event.pci].add(event.node)
    return tuple(
        replace(event, node=next(iter(found)))
        if event.node is None and len(found := nodes.get((_file(event), event.pci or ""), set())) == 1
        else event
        for event in events
    )


def _file(event: KernelEvent) -> str:
    """Return the file of an event; a source may end in a line's number."""
    name, _, line = event.source.rpartition(":")
    return name if line.isdecimal() else event.source


def _lost(window: Window) -> Iterator[KernelEvent]:
    """Yield an event per GPU that became lost; while it stays so, an agent that starts again reports nothing new."""
    pci = {(device.node, device.id): device.pci for device in window.records_of(Device)}
    before: dict[tuple[str | None, str], str] = {}
    for state in window.records_of(DeviceState):
        key = (state.node, state.device)
        if state.state == "lost" != before.get(key):
            yield KernelEvent(
                event="off_bus",
                code=OFF_BUS_XID,
                pci=state.pci or pci.get(key),
                gpu_uuid=state.device,
                device=state.device,  # it distinguishes two without an address
                text=f"the driver's library reports GPU {state.device}: {state.text or 'lost'}",
                source=state.source,
                node=state.node,
                at=state.at,
                monotonic_at=state.monotonic_at,
                boot_id=state.boot_id,
            )
        before[key] = state.state


_EVENTS = {"reset_required": "gpu_needs_reset", "memory_failed": "gpu_rows_spent", "memory_pending": "gpu_uncorrected",
           "memory_counted": "gpu_counted", "fabric_not_ready": "fabric_not_ready"}  # fmt: skip
"""State in a report of nvidia-smi → the event that the kernel's log might have had of it."""


def _reported(window: Window) -> Iterator[KernelEvent]:
    """Yield an event per GPU that nvidia-smi cannot open, or reports as failed; what the kernel says of that GPU says more.

    A count that several reports have is not of now by itself: its growth is (gray).
    """
    written: set[tuple[str | None, str]] = set()
    states = window.records_of(DeviceState)
    reports = Counter((state.node, state.device) for state in states)
    for state in states:
        key = (state.node, state.device)
        if state.state == "memory_counted" and reports[key] > 1:
            continue
        lost = "gpu_lost" if state.state == "unreadable" and state.text == NO_HANDLE else None
        event = lost or (_EVENTS.get(state.state) if state.source != LIBRARY else None)
        if event is not None and state.pci and key not in written:
            written.add(key)
            yield KernelEvent(
                event=event, pci=state.pci, text=state.text, source=state.source, node=state.node, at=state.at
            )


def _instants(logged: tuple[KernelEvent, ...]) -> dict[Xid, list[float]]:
    """Return when the kernel's own log has each Xid of each GPU."""
    found: dict[Xid, list[float]] = defaultdict(list)
    for event in logged:
        if event.event in ("xid", "off_bus") and event.source != LIBRARY and event.at is not None:
            found[event.node, event.pci, event.code].append(event.at)
    return found


def _logged(event: KernelEvent, in_log: dict[Xid, list[float]]) -> bool:
    same = in_log.get((event.node, event.pci, event.code), ())
    return event.at is not None and any(abs(event.at - at) <= SAME_XID_SECONDS for at in same)
