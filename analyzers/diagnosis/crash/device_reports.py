"""What the kernel or a tool reports of a device beside a crash: more than a program's own fault, or only that."""

from __future__ import annotations

from analyzers.knowledge import Knowledge, xids
from analyzers.model.window import Window
from collectors.records import DeviceState, KernelEvent


def shows_device(window: Window, knowledge: Knowledge) -> bool:
    """Return whether anything is reported of a device that no program causes."""
    shown = (event for event in window.records_of(KernelEvent) if event.pci is not None)
    return any(not is_of_program(event, knowledge) for event in shown) or any(window.records_of(DeviceState))


def is_of_program(event: KernelEvent, knowledge: Knowledge) -> bool:
    """Whether it is an Xid that a program's own fault causes, or the end of its channel, which follows any."""
    if event.event != "xid" or event.code is None:
        return False
    return event.code == xids.CHANNEL_RESET or xids.xid(knowledge, event.code).role == "application"
