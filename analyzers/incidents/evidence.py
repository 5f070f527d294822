"""The records that the engine keeps: the newest few of each node and source.

The choice depends on the batches alone, so a replay, which has only the batches of the incident, selects the records that the
running engine had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from analyzers.incidents.hosting import own_ranks
from analyzers.model.incident import Cut
from analyzers.model.ranges import numbers
from collectors.records import (
    CollectiveTimings,
    CommandResult,
    Coverage,
    Device,
    DeviceState,
    FlightRecorderDump,
    KernelEvent,
    LogEvent,
    Placement,
    ProcessState,
    RasCommunicator,
    RasPeerDead,
    Record,
    Ring,
    StackDump,
    Steps,
    Unread,
)

MOST_KEPT = 20_000  # records of one node; the oldest go first
ENDED = ("X", "Z")

# The newest of each key: two rounds bring two stacks of a process each, and one more shows the time before.
_MOST: dict[type[Record], int] = {
    Placement: 1, Device: 1, ProcessState: 3, StackDump: 5, FlightRecorderDump: 2, Ring: 2, Steps: 3, CollectiveTimings: 2,
    DeviceState: 4, RasCommunicator: 2, RasPeerDead: 8, Coverage: 1, CommandResult: 16, KernelEvent: 200, LogEvent: 200,
    Unread: 50,
}  # fmt: skip
CONTEXT = (Placement, Device)  # sent once and then valid: an incident keeps those from before its records begin

_Key = tuple[type[Record], object]


class _Kept(NamedTuple):
    sequence: int
    place: int  # in its batch
    record: Record | bytes  # stacks are many, and packed: objects would take ten times the memory


class Evidence:
    """The kept records of one node."""

    def __init__(self) -> None:
        self._kept: dict[_Key, deque[_Kept]] = {}
        self._size = 0

    def add(self, sequence: int, records: Iterable[Record]) -> None:
        """Add a batch; batches come in the log's order."""
        for place, record in enumerate(records):
            most = _MOST.get(type(record))
            if most is None:  # samples have a window of their own
                continue
            kept = self._kept.setdefault((type(record), _whose(record)), deque(maxlen=most))
            self._size += len(kept) < most
            kept.append(_Kept(sequence, place, _packed(record)))
        if self._size > MOST_KEPT:
            self._shrink()

    def forget(self, through: int) -> None:
        """Drop the records up to a sequence number, except for context."""
        for key, kept in list(self._kept.items()):
            if key[0] in CONTEXT:
                continue
            while kept and kept[0].sequence <= through:
                kept.popleft()
                self._size -= 1
            if not kept:
                del self._kept[key]

    def since(self, after: int) -> Iterator[tuple[int, int, Record]]:
        """Yield (sequence, place, record) after a sequence number."""
        for kept in self._kept.values():
            for one in kept:
                if one.sequence > after:
                    yield one.sequence, one.place, _unpacked(one.record)

    def context(self, through: int) -> Iterator[Record]:
        """Yield the context that was valid at a sequence number."""
        for key, kept in self._kept.items():
            if key[0] in CONTEXT:
                newest = [one for one in kept if one.sequence <= through]
                yield from (_unpacked(one.record) for one in newest[-1:])

    def _shrink(self) -> None:
        oldest = sorted((one.sequence, one.place) for kept in self._kept.values() for one in kept)
        bound = oldest[self._size - MOST_KEPT - 1]
        for key, kept in list(self._kept.items()):
            while kept and kept[0][:2] <= bound:
                kept.popleft()
                self._size -= 1
            if not kept:
                del self._kept[key]


def select_records(
    kept: Mapping[str, Evidence], nodes: Iterable[str], context: Sequence[Record], cut: Cut, job: str | None,
    attempt: int | None,
) -> tuple[Record, ...]:  # fmt: skip
    """Return the records that a judgement sees: the context, and the nodes' records of this attempt or of no job, in order."""
    of_nodes = [(kept[node], cut.joined.get(node, cut.after)) for node in sorted(set(nodes)) if node in kept]
    found = [one for evidence, after in of_nodes for one in evidence.since(after)]
    found.sort(key=lambda one: one[:2])
    concerns = (record for _, _, record in found if concerns_job(record, job, attempt))
    return tuple(_without_hearsay((*context, *concerns), cut))


def _without_hearsay(records: Iterable[Record], cut: Cut) -> Iterator[Record]:
    """Leave out what a node says of ranks that it claimed while others hosted them."""
    refused = {node: numbers(text) for node, text in cut.refused.items()}
    for record in records:
        foreign = refused.get(record.node or "", frozenset())
        if record.rank not in foreign:
            yield own_ranks(record, foreign) if foreign and isinstance(record, Placement) else record


def concerns_job(record: Record, job: str | None, attempt: int | None) -> bool:
    """Whether a record is of this attempt, or of its node and so of all jobs on it. ``job`` None: every record is."""
    if job is None:
        return True
    if record.job is None and isinstance(record, RasCommunicator | RasPeerDead):
        return False  # it answered for a job, and for which is not known
    return record.job in (None, job) and (attempt is None or record.attempt in (None, attempt))


def _whose(record: Record) -> object:
    """Return the subject of a record: later records of the same subject replace it."""
    match record:
        case ProcessState():
            # The states before and after a kill for memory are needed to recognise it: some of each count are kept.
            return (record.pid, record.state in ENDED, record.oom_kills_total)
        case StackDump() | Ring():
            return record.pid if record.pid is not None else (record.job, record.rank)
        case FlightRecorderDump() | Steps():
            return (record.job, record.attempt, record.rank, record.source if record.rank is None else "")
        case CollectiveTimings():
            return (record.communicator, record.pid)
        case Placement():
            return (record.job, record.attempt)
        case Device():
            return (record.type, record.id)
        case DeviceState():
            return record.device
        case RasCommunicator():
            return (record.hash, record.secondary_hash)
        case KernelEvent():
            return record.event
    return None


def _packed(record: Record) -> Record | bytes:
    return msgspec.msgpack.encode(record) if isinstance(record, StackDump) else record


def _unpacked(record: Record | bytes) -> Record:
    return record if isinstance(record, Record) else msgspec.msgpack.decode(record, type=StackDump)
