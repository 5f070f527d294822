"""One node as a job's view has it: its clock, and up to which instant it has told everything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from analyzers.incident import Received
from collectors.records import Record

APART_SECONDS = 1.0  # a clock that is further ahead or behind is corrected; nearer, it is the way that takes so long
NEWEST_OFFSETS = 8
LIVE_SECONDS = 15.0  # an agent seals a batch every ten seconds: what is older was kept while the service was away


@dataclass(slots=True)
class NodeView:
    """What a node's batches say of themselves. All instants are by the service's clock."""

    node: str
    last_received_at: float = 0.0
    last_sent_at: float | None = None
    told_until: float = 0.0  # everything that was read before is here
    offset: float = 0.0  # seconds by which its clock is ahead of the service's
    stacks_at: float | None = None  # the newest look at stacks
    answered_at: float | None = None  # the newest answer to a command
    working: frozenset[str] = frozenset()  # collectors that gave something in the newest minute that it told of
    failing: frozenset[str] = frozenset()  # and that failed, or did not come to an end
    _offsets: list[float] = field(default_factory=list)

    def take(self, received: Received, records: Iterable[Record]) -> None:
        """Take a batch of this node's."""
        raise NotImplementedError

    def here(self, at: float, latest: float) -> float:
        """Return an instant of the node's clock by the service's; nothing that was told is later than its coming."""
        return min(at - self.offset if abs(self.offset) > APART_SECONDS else at, latest)
