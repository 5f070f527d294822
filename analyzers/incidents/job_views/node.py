"""One node in a job's view: its clock, and the instant up to which all of its records are here."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from analyzers.incidents.messages import Received
from analyzers.incidents.room import Room
from collectors.records import (
    CommandResult,
    Coverage,
    KernelEvent,
    LogEvent,
    Members,
    Record,
    Samples,
    StackDump,
    Steps,
)

APART_SECONDS = 1.0  # a larger clock offset is corrected; a smaller one may be the time a batch takes
NEWEST_OFFSETS = 8
MOST_ABSENCES = 16
SET_SECONDS = 120.0  # no batch travels for so long: a lead that is larger by more is of a clock that was set since
LIVE_SECONDS = 15.0  # agents seal a batch every ten seconds: older records waited while the service was unreachable
FUTURE_SECONDS = 5.0
LATEST_AT = 1e11  # a later value is no instant
MOST_RANKS = 4_096  # of one job on one node: the agent reads no more processes
MOST_LISTS_BYTES = 4 << 20  # of the member lists that its ranks' operations refer to
PROBE = "probe"  # reports steps itself: no log is read for them
_OWN_STAMPS = (Steps, LogEvent, KernelEvent)  # their times are the logs', not the agent's
_TICK = struct.Struct("<d")
AGAIN_SECONDS = 300.0  # one that falls behind again within this goes on being behind
LUMP_SECONDS = 15.0  # agents send every ten: one whose readings reach further in one batch had stood, or was slow
READ_AGAIN_SECONDS = 10.0  # after which such an agent has read its logs again, and sent that
LOGS = "steps"  # the collector that reads them
LOG_SCOPE = "log"  # its samples: at each tick all that the job's logs held was read
LOG_EVERY_SECONDS = 5.0  # an agent that sends no such ticks reads its logs this often
OVERDUE_SECONDS = 120.0  # a reader that has not ended for longer, while its node reports, is not waited for
ABSENT_SECONDS = 45.0  # agents send every ten: a longer span that no reading falls into was not observed


@dataclass(slots=True)
class NodeView:
    """The newest state of a node. All instants are by the service's clock."""

    node: str
    room: Room = field(default_factory=Room)  # of all views
    last_received_at: float = 0.0
    last_sent_at: float | None = None  # by the node's own clock
    reported_until: float = 0.0  # all that its agent read before this is here
    behind_since: float | None = None  # it sends what its agent kept; None: its newest batch was read just before
    absences: list[tuple[float, float]] = field(default_factory=list)  # the newest spans that no agent observed
    offset: float = 0.0  # seconds by which its clock is ahead of the service's
    stacks_at: float | None = None  # the newest stacks
    answered_at: float | None = None  # the newest answer to a command
    states_at: float | None = None  # the newest process states
    working: frozenset[str] = frozenset()  # collectors that gave records in the newest reported minute
    failing: frozenset[str] = frozenset()  # and those that failed or did not end in time
    _logs_read_at: float | None = None  # the newest tick of its reader; None: it sends none
    _unread: tuple[float, float] | None = None  # a span after which its logs were perhaps not read yet
    _caught_up: tuple[float, float] = (0.0, 0.0)  # when it was behind last, and for how many seconds
    _offsets: list[float] = field(default_factory=list)
    _ranks: set[int] = field(default_factory=set)  # that it reports of
    _lists: dict[int, Members] = field(default_factory=dict)  # rank → of its open operation

    def take(self, received: Received, records: Sequence[Record]) -> None:
        """Apply a batch: how far it reaches, and the node's own state."""
        self.last_received_at = max(self.last_received_at, received.received_at)
        sent_at = received.sent_at
        if sent_at is not None and 0.0 < sent_at < LATEST_AT:
            # A batch is received after it was sent, so the largest lead is nearest to the clock offset.
            self._offsets = of_one_clock([*self._offsets[1 - NEWEST_OFFSETS :], sent_at - received.received_at])
            self.offset = max(self._offsets)
            self.last_sent_at = max(sent_at, self.last_sent_at or 0.0)
        else:
            sent_at = received.received_at + (self.offset if abs(self.offset) > APART_SECONDS else 0.0)
        oldest_at, newest_at = _span(records, sent_at)
        until = self._reaches_until(received.received_at, sent_at, newest_at)
        begin = self.here(sent_at if oldest_at is None else oldest_at, received.received_at)
        if self.reported_until and begin > self.reported_until + ABSENT_SECONDS:
            self.absences = [*self.absences[1 - MOST_ABSENCES :], (self.reported_until, begin)]
        if until is not None:
            self._reach(self.here(until, received.received_at))
        for record in records:
            self._read(record, received.received_at)
        if self._unread is not None and self.reported_until >= self._unread[1] + READ_AGAIN_SECONDS:
            self._unread = None

    @property
    def logs_until(self) -> float:
        """Return up to when the lines of its logs are here: their reader says it; on a busy node it is later than the others.

        Without its ticks: an agent that stood reads its collectors anew one after the other, so a batch that holds some of them
        has not the others.
        """
        if self._logs_read_at is not None:
            return max(self._logs_read_at, self.reported_until - OVERDUE_SECONDS)
        return (self.reported_until if self._unread is None else self._unread[0]) - LOG_EVERY_SECONDS

    def _reach(self, until: float) -> None:
        before, self.reported_until = self.reported_until, max(self.reported_until, until)
        if before and until > before + LUMP_SECONDS:
            self._unread = before, until

    def _read_logs(self, at: float) -> None:
        """Take it that its logs were read at an instant."""
        if self._logs_read_at is not None:
            self._logs_read_at = max(at, self._logs_read_at)
        if self._unread is not None:
            begin, end = max(at, self._unread[0]), self._unread[1]
            self._unread = (begin, end) if end > begin + LUMP_SECONDS else None

    def _reaches_until(self, received_at: float, sent_at: float, newest_at: float | None) -> float | None:
        """Return until when its agent's readings are here, by the node's clock; None: a batch of logs alone does not say it."""
        if newest_at is None:
            return sent_at if self.behind_since is None else None
        waited, was_behind = sent_at - newest_at > LIVE_SECONDS, self.behind_since is not None
        if waited and self.behind_since is None:
            # A node that sends old and new readings by turns delays its jobs no longer than one that stays behind.
            caught_up_at, seconds = self._caught_up
            self.behind_since = received_at - (seconds if received_at < caught_up_at + AGAIN_SECONDS else 0.0)
        elif not waited and self.behind_since is not None:
            self._caught_up, self.behind_since = (received_at, received_at - self.behind_since), None
        # The first batch that is in time again may have waited for some seconds too.
        return newest_at if waited or was_behind else sent_at

    @property
    def returned_at(self) -> float:
        """Return when its agent was back after the newest span without one; 0.0: there was none."""
        return self.absences[-1][1] if self.absences else 0.0

    def has_room(self, rank: int) -> bool:
        """Whether it reports this rank already, or has not reported as many as a node may have."""
        if rank not in self._ranks:
            if len(self._ranks) >= MOST_RANKS or not self.room.take(self.node, 1):
                return False
            self._ranks.add(rank)
        return True

    @property
    def ranks(self) -> int:
        """Return how many ranks it has reported."""
        return len(self._ranks)

    def listed(self, rank: int, members: Members | None) -> Members | None:
        """Return the members of a rank's operation, None where those of its ranks take more than a node may."""
        self._lists.pop(rank, None)
        if members is None or sum(len(one.data) for one in {*self._lists.values(), members}) > MOST_LISTS_BYTES:
            return None
        self._lists[rank] = members
        return members

    def here(self, at: float | None, latest: float) -> float:
        """Convert an instant of the node's clock to the service's; it is never later than ``latest``."""
        if at is None or not 0.0 < at < LATEST_AT:
            return latest
        return min(at - self.offset if abs(self.offset) > APART_SECONDS else at, latest)

    def impossible(self, at: float, latest: float) -> bool:
        """Whether an instant is out of range, or later than its batch."""
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
            if self._unread is not None and any(one.name == LOGS and one.runs <= one.failures for one in reports):
                self._unread = self._unread[0], self.reported_until
        elif isinstance(record, Steps) and record.told_by != PROBE and record.at is not None:
            self._read_logs(self.here(record.at, received_at))
        elif isinstance(record, Samples) and record.scope == LOG_SCOPE and len(record.ticks) >= _TICK.size:
            read_at = _TICK.unpack_from(record.ticks, len(record.ticks) - _TICK.size)[0]
            self._logs_read_at = max(self.here(read_at, received_at), self._logs_read_at or 0.0)


def of_one_clock(leads: list[float]) -> list[float]:
    """Return the leads without those from before the node's clock was set: they are far ahead of the newest."""
    return [lead for lead in leads if lead <= leads[-1] + SET_SECONDS]


def _span(records: Sequence[Record], sent_at: float) -> tuple[float | None, float | None]:
    """Return the oldest and the newest instant at which the agent read something, by the node's clock."""
    oldest, newest = None, None
    for record in records:
        first = last = record.at
        if first is None or last is None or isinstance(record, _OWN_STAMPS):
            continue
        if isinstance(record, Samples) and len(record.ticks) >= _TICK.size:
            first = _TICK.unpack_from(record.ticks)[0]
            last = _TICK.unpack_from(record.ticks, len(record.ticks) - _TICK.size)[0]
        if 0.0 < last <= sent_at + FUTURE_SECONDS:
            newest = last if newest is None else max(newest, last)
            oldest = first if oldest is None else min(oldest, first)
    return oldest, newest
