"""When the newest batches of a node came, by the receipt clock, and how far its own clock is ahead."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from analyzers.incidents.job_views.node import of_one_clock
from analyzers.incidents.messages import Received

OFFSET_BATCHES = 8


@dataclass(slots=True)
class NodeActivity:
    """The newest batches of a node."""

    last_received_at: float
    last_sent_at: float | None = None
    leads: deque[float] = field(default_factory=lambda: deque(maxlen=OFFSET_BATCHES))
    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=OFFSET_BATCHES))

    def take(self, event: Received) -> None:
        """Note when a batch was sent and received."""
        if event.received_at > self.last_received_at:
            self.intervals.append(event.received_at - self.last_received_at)
        self.last_received_at = max(self.last_received_at, event.received_at)
        if event.sent_at is not None:
            self.last_sent_at = event.sent_at
            self.leads.append(event.sent_at - event.received_at)

    @property
    def offset(self) -> float:
        """Seconds by which its clock is ahead of ours: a batch is received after it was sent, so the largest lead."""
        return max(of_one_clock(list(self.leads))) if self.leads else 0.0
