"""Events of logs and devices that may begin an incident: the newest, each once."""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass

from analyzers.incidents.job_views.node import NodeView
from analyzers.model.incident import Symptom
from collectors.records import DeviceState, KernelEvent, LogEvent

MOST_EVENTS = 256
LoggedEvent = LogEvent | KernelEvent | DeviceState


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An event with its instant by the service's clock, and the node that reported it."""

    at: float
    node: str
    event: LoggedEvent


class EventLog:
    """Events ordered by instant, bounded; an event that is reported twice is kept once."""

    def __init__(self) -> None:
        self.entries: list[SeenEvent] = []
        self.judged: tuple[Symptom, ...] | None = None  # the symptoms of these; None: there is a new event
        self._keys: set[tuple[object, ...]] = set()

    def add(self, event: LoggedEvent, node: NodeView, received_at: float, since: float) -> None:
        """Add an event unless it is older than ``since``: the first lines of a log may be of yesterday."""
        impossible = event.at is None or node.impossible(event.at, received_at)
        at = received_at if impossible else node.here(event.at, received_at)
        key = _key(event, node.node)
        if at < since or key in self._keys:
            return
        self._keys.add(key)
        self.judged = None
        insort(self.entries, SeenEvent(at, node.node, event), key=lambda one: one.at)
        while len(self.entries) > MOST_EVENTS:
            gone = self.entries.pop(0)
            self._keys.discard(_key(gone.event, gone.node))


def _key(event: LoggedEvent, node: str) -> tuple[object, ...]:
    if isinstance(event, LogEvent):
        return node, event.source, event.event, event.rank, event.at
    if isinstance(event, KernelEvent):
        return node, event.event, event.code, event.pci, event.text, event.at
    return node, event.device, event.state, event.at
