"""The records that the engine keeps: the newest few of each node and source, packed, within a bound in bytes.

The choice depends on the batches alone, so a replay, which has only the batches of the incident, selects the records that the
running engine had. What the engine shed to stay within its bounds is the one exception: the cut of a judgement names it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from analyzers.incidents.rank_maps import Seat, is_refused, own_ranks
from analyzers.incidents.seats import seats_of
from analyzers.model.incident import Cut
from collectors.records import (
    AnyRecord,
    CollectiveTimings,
    CommandResult,
    Coverage,
    Device,
    DeviceState,
    FlightRecorderDump,
    KernelEvent,
    LogEvent,
    Members,
    Placement,
    ProcessState,
    Profile,
    RasCommunicator,
    RasPeerDead,
    Record,
    Ring,
    RoleState,
    Samples,
    StackDump,
    Steps,
    Unread,
    directory_sender,
)

MOST_KEPT = 20_000  # records of one node; the oldest go first
MOST_CONTEXT_BYTES = 1 << 20  # of one node: it is stored with the incident
KEPT_BYTES = 800  # that a kept record takes beside its bytes
ENDED = ("X", "Z")
STOPPED = "T"
CONTINUED = "continued"
"""Of each process, the last reading in which it was stopped and the one after it outlast the newest few, until the next pair."""

# The newest of each key: two rounds bring two stacks of a process each, and one more shows the time before.
# States are read every ten seconds, and those of a late node are compared with what the others showed then.
_MOST: dict[type[Record], int] = {
    Placement: 1, Device: 1, ProcessState: 6, StackDump: 5, Profile: 6, FlightRecorderDump: 2, Ring: 2, Steps: 3,
    CollectiveTimings: 2,
    DeviceState: 4, RasCommunicator: 2, RasPeerDead: 8, Coverage: 1, CommandResult: 16, KernelEvent: 200, LogEvent: 200,
    Unread: 50, RoleState: 1, Samples: 6,
}  # fmt: skip
MOST_STEPS_OF_LEAD = 30
"""Of one rank a node and job, the lowest that reports: two minutes, so that a late judgement still sees a spike that passed."""
MOST_LEADS = 64  # jobs of one node
ROLE_SPAN_SECONDS = 20.0
ROLE_SPANS = 20
"""Of one source on one instance of a role, the newest reading of each of so many spans: progress is judged over five minutes."""
OF_HARDWARE = frozenset({"gpu", "dcgm", "nvlink", "infiniband"})
"""Scopes of samples by which GPUs and ports are compared with their peers; the other samples have a window of their own."""
EVENTS = (KernelEvent, DeviceState, LogEvent)
OF_A_RUN = (LogEvent, ProcessState, Steps, StackDump, Profile, FlightRecorderDump, Ring, CollectiveTimings)
CONTEXT = (Placement, Device)  # sent once and then valid: an incident keeps those from before its records begin

_Key = tuple[type[Record], object]


class _Kept(NamedTuple):
    sequence: int
    place: int  # in its batch
    record: Packed
    is_stopped: bool = False


class Packed(NamedTuple):
    """A record as bytes. As an object it would take several times that, a hostile one twenty times."""

    job: str | None
    attempt: int | None
    data: bytes
    members: tuple[Members, ...]  # shared between thousands of records: they stay the objects that they are

    @property
    def size_bytes(self) -> int:
        """Return what it takes, member lists left out."""
        return KEPT_BYTES + len(self.data)


class PackedRecords(Collection[Record]):
    """Records that are objects only while one iterates: so a judgement unpacks them in its own process."""

    def __init__(
        self, first: Iterable[Record], packed: Iterable[Packed], refused: Mapping[str, frozenset[Seat]],
        wanted: Callable[[Record], bool],
    ) -> None:  # fmt: skip
        """``refused``: node → ranks of which its records are left out."""
        self._items: tuple[Record | Packed, ...] = (*first, *packed)
        self._refused, self._wanted = refused, wanted

    def __len__(self) -> int:
        """Return how many there are at most: what a node may not say is found while one iterates."""
        return len(self._items)

    def __iter__(self) -> Iterator[Record]:
        return filter(self._wanted, _without_hearsay(_unpacked(self._items), self._refused))

    def __contains__(self, item: object) -> bool:
        return any(record == item for record in self)


class Evidence:
    """The kept records of one node. ``shed``: all up to this sequence number were given up for want of room."""

    def __init__(self, most_bytes: int | None = None) -> None:
        """``most_bytes`` None: without a bound, in a replay, whose cuts name what was shed."""
        self.size_bytes = 0
        self.shed = 0
        self._most_bytes = most_bytes
        self._kept: dict[_Key, deque[_Kept]] = {}
        self._leads: dict[object, tuple[int, str]] = {}  # job and attempt → rank and source
        self._size = 0
        self._members: Counter[Members] = Counter()

    def add(self, sequence: int, records: Iterable[Record]) -> int:
        """Add a batch; batches come in the log's order. Return how many records were shed for it."""
        pack = _Packer()
        for place, record in enumerate(records):
            most = _MOST.get(type(record))
            if most is None or (isinstance(record, Samples) and record.scope not in OF_HARDWARE):
                continue
            key = type(record), _whose(record)
            kept = self._kept.setdefault(key, deque())
            if isinstance(record, Steps):
                most = self._most_steps(record)
            while len(kept) >= most:
                self._retire(key, kept)
            is_stopped = isinstance(record, ProcessState) and record.state == STOPPED
            kept.append(_Kept(sequence, place, packed := pack(record), is_stopped))
            self._count(packed, 1)
        if self._size > MOST_KEPT:
            self._drop(self._oldest(lambda size, _bytes: size > MOST_KEPT))
        return 0 if self._most_bytes is None else self.shed_to(self._most_bytes)

    def _retire(self, key: _Key, kept: deque[_Kept]) -> None:
        """Give up the oldest, unless it shows when a process was continued."""
        if key[0] is not ProcessState:
            self._pop(kept)
            return
        pair = self._kept.get(pair_key := (ProcessState, (CONTINUED, key[1])), deque())
        if kept[0].is_stopped and not kept[1].is_stopped:
            while pair:
                self._pop(pair)
        elif kept[0].is_stopped or not _is_open(pair):
            self._pop(kept)
            return
        self._kept[pair_key] = pair
        pair.append(kept.popleft())

    def _most_steps(self, steps: Steps) -> int:
        job = steps.job, steps.attempt
        mine = (-1, steps.source) if steps.rank is None else (steps.rank, "")
        if job not in self._leads and len(self._leads) >= MOST_LEADS:
            self._leads.clear()
        self._leads[job] = min(mine, self._leads.get(job, mine))
        return MOST_STEPS_OF_LEAD if mine == self._leads[job] else _MOST[Steps]

    def shed_to(self, most_bytes: int) -> int:
        """Give up the oldest batches until so many bytes are left; return how many records that were."""
        if self.size_bytes <= most_bytes:
            return 0
        before = self._size
        self.shed = self._oldest(lambda _size, size_bytes: size_bytes > most_bytes)[0]
        whole = self.shed, 1 << 62  # whole batches: their numbers name what was shed
        self._drop(whole, but=CONTEXT)
        if self.size_bytes > most_bytes:
            self._drop(whole)
        return before - self._size

    def forget(self, through: int) -> None:
        """Drop the records up to a sequence number, except for context."""
        self._drop((through, 1 << 62), but=CONTEXT)

    def since(self, after: int) -> Iterator[tuple[int, int, Record]]:
        """Yield (sequence, place, record) after a sequence number."""
        for one in self.packed_since(after):
            yield one.sequence, one.place, next(_unpacked((one.record,)))

    def packed_since(self, after: int) -> Iterator[_Kept]:
        """Yield the same, packed."""
        for (_, whose), kept in self._kept.items():
            # Without the reading before it, the one after a stop shows no more than any other that was given up.
            if not _is_pair(whose) or (kept[0].is_stopped and kept[0].sequence > after):
                yield from (one for one in kept if one.sequence > after)

    def stacks(self, after: int) -> Iterator[StackDump]:
        """Yield the stacks after a sequence number."""
        found = (
            one.record
            for key, kept in self._kept.items()
            if key[0] is StackDump
            for one in kept
            if one.sequence > after
        )
        yield from (one for one in _unpacked(found) if isinstance(one, StackDump))

    def context(self, through: int) -> Iterator[Record]:
        """Yield the context that was valid at a sequence number, the newest first as far as there is room."""
        found: list[_Kept] = []
        for key, kept in self._kept.items():
            if key[0] in CONTEXT:
                found += [one for one in kept if one.sequence <= through][-1:]
            elif key[0] is RoleState:  # what rests is compared with its own past
                found += [one for one in kept if one.sequence <= through]
        left, chosen = MOST_CONTEXT_BYTES, set[tuple[int, int]]()
        for one in sorted(found, reverse=True, key=lambda one: one[:2]):
            left -= len(one.record.data)
            if left >= 0:
                chosen.add(one[:2])
        yield from _unpacked(one.record for one in found if one[:2] in chosen)

    def _oldest(self, over: Callable[[int, int], bool]) -> tuple[int, int]:
        """Return up to which record the oldest must go for it to be over no more."""
        size, size_bytes, bound = self._size, self.size_bytes, (0, 0)
        for one in sorted((one for kept in self._kept.values() for one in kept), key=lambda one: one[:2]):
            if not over(size, size_bytes):
                break
            size, size_bytes, bound = size - 1, size_bytes - one.record.size_bytes, one[:2]
        return bound

    def _drop(self, bound: tuple[int, int], but: tuple[type[Record], ...] = ()) -> None:
        for key, kept in list(self._kept.items()):
            if key[0] in but:
                continue
            while kept and kept[0][:2] <= bound:
                self._pop(kept)
            if not kept:
                del self._kept[key]

    def _pop(self, kept: deque[_Kept]) -> None:
        self._count(kept.popleft().record, -1)

    def _count(self, packed: Packed, one: int) -> None:
        self._size += one
        self.size_bytes += one * packed.size_bytes
        for members in packed.members:
            self._members[members] += one
            if self._members[members] == (1 if one > 0 else 0):  # the first of this node that has it, or the last
                self.size_bytes += one * len(members.data)
            if not self._members[members]:
                del self._members[members]


def _is_pair(whose: object) -> bool:
    return isinstance(whose, tuple) and whose[:1] == (CONTINUED,)


def _is_open(pair: Sequence[_Kept]) -> bool:
    """Whether a pair lacks the reading after the stop."""
    return len(pair) == 1 and pair[0].is_stopped


def select_records(
    kept: Mapping[str, Evidence], nodes: Iterable[str], context: Sequence[Record], cut: Cut, job: str | None,
    attempt: int | None,
) -> PackedRecords:  # fmt: skip
    """Return the records that a judgement sees: the context, and the nodes' records of this attempt or of no job, in order.

    What the directory of the job's roles reports is among them.
    """
    nodes = {*nodes, directory_sender(job)} if job is not None else set(nodes)
    of_nodes = [
        (kept[node], max(cut.joined.get(node, cut.after), cut.shed.get(node, 0)))
        for node in sorted(nodes)
        if node in kept
    ]
    found = [one for evidence, after in of_nodes for one in evidence.packed_since(after)]
    found.sort(key=lambda one: one[:2])
    concerning = (one.record for one in found if concerns_job(one.record, job, attempt))
    refused = {node: seats_of(text) for node, text in cut.refused.items()}
    return PackedRecords(context, concerning, refused, lambda record: not _is_of_another_run(record, cut))


def _is_of_another_run(record: Record, cut: Cut) -> bool:
    """Whether a record is of the processes that ran before or later under the same number, of a pause, or an event of the next.

    What a node's kernel reported before is of every run; an event that names an attempt is of that one.
    """
    if record.at is None:
        return False
    at = record.at - cut.offsets.get(record.node or "", 0.0)
    if cut.began_at is not None and isinstance(record, OF_A_RUN) and at < cut.began_at:
        return True
    if cut.ended_at is not None and isinstance(record, OF_A_RUN) and at >= cut.ended_at:
        return True
    if isinstance(record, StackDump | Profile) and any(begin < at < end for begin, end in cut.pauses):
        return True
    return cut.until is not None and record.attempt is None and isinstance(record, EVENTS) and at > cut.until


NO_SEATS: frozenset[Seat] = frozenset()


def _without_hearsay(records: Iterable[Record], refused: Mapping[str, frozenset[Seat]]) -> Iterator[Record]:
    """Leave out what a node says of ranks that it claimed while others hosted them. ``refused``: by node."""
    for record in records:
        foreign = refused.get(record.node or "", NO_SEATS)
        if not foreign or not is_refused(record, foreign):
            yield own_ranks(record, foreign) if foreign and isinstance(record, Placement) else record


def concerns_job(record: Record | Packed, job: str | None, attempt: int | None) -> bool:
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
        case StackDump() | Profile() | Ring():
            return record.pid if record.pid is not None else (record.job, record.role, record.rank)
        case FlightRecorderDump() | Steps():
            return (record.job, record.attempt, record.role, record.rank, record.source if record.rank is None else "")
        case CollectiveTimings():
            return (record.communicator, record.pid)
        case Placement():
            return (record.job, record.attempt)
        case Device():
            return (record.type, record.id)
        case DeviceState():
            return record.device
        case Samples():
            return (record.scope, record.type, record.source)
        case RasCommunicator():
            return (record.hash, record.secondary_hash)
        case KernelEvent():
            return record.event
        case RoleState():
            span = int((record.at or 0.0) // ROLE_SPAN_SECONDS) % ROLE_SPANS
            return (record.job, record.attempt, record.role, record.instance, record.source, span, record.state)
    return None


class _Packer:
    """Packs records; member lists stay beside them."""

    def __init__(self) -> None:
        self._members: list[Members] = []
        self._encode = msgspec.msgpack.Encoder(enc_hook=self._number).encode

    def __call__(self, record: Record) -> Packed:
        self._members = []
        data = self._encode(record)
        return Packed(record.job, record.attempt, data, tuple(self._members))

    def _number(self, value: Any) -> int:
        if not isinstance(value, Members):
            raise TypeError(f"a record holds a {type(value).__name__}, which no block can")
        self._members.append(value)
        return len(self._members) - 1


def _unpacked(items: Iterable[Record | Packed]) -> Iterator[Record]:
    """Yield the records again, each with its own member lists."""
    members: tuple[Members, ...] = ()

    def listed(_kind: type, number: Any) -> Any:
        return members[number]

    decode = msgspec.msgpack.Decoder(AnyRecord, dec_hook=listed).decode
    for item in items:
        if isinstance(item, Packed):
            members = item.members
            yield decode(item.data)
        else:
            yield item
