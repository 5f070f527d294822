"""One node as a job's view has it: its clock, and up to which instant it has told everything."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from analyzers.incidents.messages import Received
from collectors.records import CommandResult, Coverage, KernelEvent, LogEvent, Record, Samples, StackDump, Steps

APART_SECONDS = 1.0  # a clock that is further ahead or behind is corrected; less may be the way that a batch takes
NEWEST_OFFSETS = 8
LIVE_SECONDS = 15.0  # agents seal a batch every ten seconds: older records waited while the service was away
FUTURE_SECONDS = 5.0
LATEST_AT = 1e11  # what is later is no instant
_OWN_STAMPS = (Steps, LogEvent, KernelEvent)  # theirs are the logs', not the agent's
_LAST_TICK = struct.Struct("<d")


@dataclass(slots=True)
class NodeView:
    """What a node's batches say of themselves. All instants are by the service's clock."""

    node: str
    last_received_at: float = 0.0
    last_sent_at: float | None = None  # by the node's own clock
    reported_until: float = 0.0  # what its agent read before this is here
    offset: float = 0.0  # seconds by which its clock is ahead of the service's
    stacks_at: float | None = None  # the newest look at stacks
    answered_at: float | None = None  # the newest answer to a command
    states_at: float | None = None  # the newest look at processes
    working: frozenset[str] = frozenset()  # collectors that gave something in the newest minute that it accounts for
    failing: frozenset[str] = frozenset()  # and those that failed or did not come to an end
    _offsets: list[float] = field(default_factory=list)

    def take(self, received: Received, records: Sequence[Record]) -> None:
        """Take up how far a batch reaches, and what the node says of itself."""
        self.last_received_at = max(self.last_received_at, received.received_at)
        sent_at = received.sent_at
        if sent_at is not None and 0.0 < sent_at < LATEST_AT:
            # No batch is received before it is sent: the largest lead is nearest to what the clocks differ by.
            self._offsets = [*self._offsets[1 - NEWEST_OFFSETS :], sent_at - received.received_at]
            self.offset = max(self._offsets)
            self.last_sent_at = max(sent_at, self.last_sent_at or 0.0)
        else:
            sent_at = received.received_at + (self.offset if abs(self.offset) > APART_SECONDS else 0.0)
        newest_at = _newest(records, sent_at)
        until = sent_at if newest_at is None or sent_at - newest_at <= LIVE_SECONDS else newest_at
        self.reported_until = max(self.reported_until, self.here(until, received.received_at))
        for record in records:
            self._read(record, received.received_at)

    def here(self, at: float | None, latest: float) -> float:
        """Return an instant of the node's clock by the service's: nothing is told before it happens."""
        if at is None or not 0.0 < at < LATEST_AT:
            return latest
        return min(at - self.offset if abs(self.offset) > APART_SECONDS else at, latest)

    def impossible(self, at: float, latest: float) -> bool:
        """Whether an instant is none, or is later than the batch that tells of it."""
        return not 0.0 < at < LATEST_AT or at - self.offset > latest + FUTURE_SECONDS

    def _read(self, record: Record, received_at: float) -> None:
        if isinstance(record, StackDump):
            self.stacks_at = max(self.stacks_at or 0.0, self.here(record.at, received_at))
        elif isinstance(record, CommandResult):
            self.answered_at = max(self.answered_at or 0.0, received_at)
        elif isinstance(record, Coverage):
            reports = record.collectors
            self.working = frozenset(one.name for one in reports if one.records)
            self.failing = frozenset(one.name for one in reports if one.failures or one.overran)


def _newest(records: Sequence[Record], sent_at: float) -> float | None:
    """Return the newest instant at which the agent read something, by the node's clock."""
    newest = -1.0
    for record in records:
        at = record.at
        if at is None or isinstance(record, _OWN_STAMPS):
            continue
        if isinstance(record, Samples) and len(record.ticks) >= _LAST_TICK.size:
            at = _LAST_TICK.unpack_from(record.ticks, len(record.ticks) - _LAST_TICK.size)[0]
        if newest < at <= sent_at + FUTURE_SECONDS:
            newest = at
    return newest if newest > 0.0 else None
