"""Events of logs and devices that may be the beginning of something: the newest, each once."""

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
    """An event with the instant at which it happened, by the service's clock, and the node that told it."""

    at: float
    node: str
    event: LoggedEvent


class EventLog:
    """Bounded, by instant; an event that is told twice is there once."""

    def __init__(self) -> None:
        self.entries: list[SeenEvent] = []
        self.judged: tuple[Symptom, ...] | None = None  # what these were found to be; None: there is something new
        self._keys: set[tuple[object, ...]] = set()

    def add(self, event: LoggedEvent, node: NodeView, received_at: float, since: float) -> None:
        """Take an event that is not older than ``since``: a log tells at first of yesterday."""
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
