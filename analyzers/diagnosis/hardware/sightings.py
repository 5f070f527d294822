"""Xids and lost GPUs that the GPU library reported, as kernel events: one fact counts once, whichever source has it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from analyzers.model.window import Window
from collectors.records import Device, DeviceState, KernelEvent

OFF_BUS_XID = 79
SAME_XID_SECONDS = 15.0  # the library is asked every ten seconds, so it reports an Xid that much later than the log
LIBRARY = "nvml"  # the source of what a live agent read from the library

Xid = tuple[str | None, str | None, int | None]  # node, PCI address, code


def events(window: Window) -> tuple[KernelEvent, ...]:
    """Return the kernel's events and, where the library alone saw them, its Xids and lost GPUs."""
    logged = window.records_of(KernelEvent)
    in_log = _instants(logged)
    seen = (*(event for event in logged if event.source == LIBRARY), *_lost(window))
    return (
        *(event for event in logged if event.source != LIBRARY),
        *(event for event in seen if not _logged(event, in_log)),
    )


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
