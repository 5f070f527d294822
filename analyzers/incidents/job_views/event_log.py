"""Events of logs and devices that may begin an incident: the newest, each once."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

import msgspec

from analyzers.incidents.job_views.node import NodeView
from analyzers.model.incident import Symptom
from collectors.records import DeviceState, KernelEvent, LogEvent

MOST_EVENTS = 256
MOST_BYTES = 1 << 20  # of them together
TEXT_CHARACTERS = 2_000
LoggedEvent = LogEvent | KernelEvent | DeviceState


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event with its instant by the service's clock, and the node that reported it."""

    at: float
    node: str
    event: LoggedEvent
    size_bytes: int


class EventLog:
    """Events ordered by instant, bounded; an event that is reported twice is kept once."""

    def __init__(self) -> None:
        self.entries: list[SeenEvent] = []
        self.judged: tuple[Symptom, ...] | None = None  # the symptoms of these; None: there is a new event
        self._keys: set[tuple[object, ...]] = set()
        self._bytes = 0

    def add(self, event: LoggedEvent, node: NodeView, received_at: float, since: float) -> None:
        """Add an event unless it is older than ``since``: the first lines of a log may be of yesterday."""
        impossible = event.at is None or node.impossible(event.at, received_at)
        at = received_at if impossible else node.here(event.at, received_at)
        key = _key(event, node.node)
        if at < since or key in self._keys:
            return
        self._keys.add(key)
        self.judged = None
        event = _short(event)
        size_bytes = len(msgspec.msgpack.encode(event, enc_hook=lambda members: members.data))
        insort(self.entries, SeenEvent(at, node.node, event, size_bytes), key=lambda one: one.at)
        self._bytes += size_bytes
        while len(self.entries) > MOST_EVENTS or self._bytes > MOST_BYTES:
            gone = self.entries.pop(0)
            self._bytes -= gone.size_bytes
            self._keys.discard(_key(gone.event, gone.node))


def _short(event: LoggedEvent) -> LoggedEvent:
    """Return the event without what no detector reads: the evidence has it whole."""
    if not isinstance(event, LogEvent) or not (
        event.frames or max(len(event.text), len(event.message or "")) > TEXT_CHARACTERS
    ):
        return event
    message = None if event.message is None else event.message[:TEXT_CHARACTERS]
    return msgspec.structs.replace(event, frames=(), text=event.text[:TEXT_CHARACTERS], message=message)


def _key(event: LoggedEvent, node: str) -> tuple[object, ...]:
    if isinstance(event, LogEvent):
        return node, event.source, event.event, event.rank, event.at
    if isinstance(event, KernelEvent):
        return node, event.event, event.code, event.pci, event.text, event.at
    return node, event.device, event.state, event.at
