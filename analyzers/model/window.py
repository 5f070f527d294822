"""An immutable slice of an attempt's records, as columns that an analyzer can compute on."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.model.clocks import aligned
from analyzers.model.recorder import RecorderTable, whole_values
from analyzers.model.rings import with_rings
from analyzers.model.roles import by_role
from analyzers.model.tables import tabulate
from collectors.records import (
    FLIGHT_RECORDER_COLUMNS,
    STEP_COLUMNS,
    Coverage,
    Device,
    FlightRecorderDump,
    KernelEvent,
    LogEvent,
    OpTimings,
    Placement,
    ProcessState,
    Record,
    Ring,
    Steps,
)

R = TypeVar("R", bound=Record)
T = TypeVar("T")


@dataclass(frozen=True)
class Window:
    """The records judged together, in a canonical order that does not depend on how they arrived.

    ``dumps``: the newest flight-recorder dump of each rank, with what the probe's ring adds, or the ring in its place.
    ``earlier_dumps``: older ones of the same attempt, as they were, and those after which the job went on.
    """

    records: tuple[Record, ...] = ()
    dumps: tuple[FlightRecorderDump, ...] = ()
    earlier_dumps: tuple[FlightRecorderDump, ...] = ()
    job: str | None = None
    attempt: int | None = None
    other_attempts: tuple[int, ...] = ()
    offsets: Mapping[str, float] = field(default_factory=dict)  # node → seconds that were taken from its instants
    live: bool = False
    since: float | None = None  # the opening of the incident: a stack from then on is of what is judged
    round_at: float | None = None  # when the newest evidence round was asked for
    onset: float | None = None  # since when it stands still or has ended, where that is known
    # Role → its own window, where roles share rank numbers; this one has all their records then, and no dumps.
    parts: Mapping[str, Window] = field(default_factory=dict)

    def records_of(self, kind: type[R]) -> tuple[R, ...]:
        """Return the records of one kind, in the window's order."""
        kinds = [one for one in self._by_type if issubclass(one, kind)]
        if len(kinds) == 1:
            return self._by_type[kinds[0]]  # type: ignore[return-value]
        return tuple(record for record in self.records if isinstance(record, kind)) if kinds else ()

    def has_gpus(self, nodes: Collection[str] = ()) -> bool | None:
        """Return whether these nodes have GPUs, or any where none is given; None where neither an agent nor a trace shows it."""
        if any(one.type == "gpu" and (not nodes or one.node in nodes) for one in self.records_of(Device)):
            return True
        looks = [one for one in self.records_of(Coverage) if not nodes or one.node in nodes]
        if looked := [one for look in looks for one in look.collectors if one.name == "gpu" and one.runs]:
            return any(one.nothing < one.runs for one in looked)
        # The profiler lists the devices that it finds; other traces may leave them out.
        traces = [one for one in self.records_of(OpTimings) if one.told_by == "kineto"]
        found = [bool(one.device_model) for one in traces if not nodes or one.node in nodes]
        return any(found) if found else None

    @cached_property
    def kinds(self) -> frozenset[str]:
        """Return the kinds of records that are here, by their tag."""
        return frozenset(str(kind.__struct_config__.tag) for kind in self._by_type)

    @cached_property
    def _by_type(self) -> dict[type[Record], tuple[Record, ...]]:
        found: dict[type[Record], list[Record]] = defaultdict(list)
        for record in self.records:
            found[type(record)].append(record)
        return {kind: tuple(records) for kind, records in found.items()}

    def once(self, make: Callable[..., T], *of: object) -> T:
        """Return ``make(window, *of)``, made once for these very objects. Several analyzers read it, and none changes it."""
        key = (make, *map(id, of))
        if key not in self._made:
            self._made[key] = of, make(self, *of)  # what it was made of is kept: its id stays its own
        made: T = self._made[key][1]
        return made

    @cached_property
    def _made(self) -> dict[tuple[object, ...], tuple[object, Any]]:
        return {}

    @cached_property
    def recorder(self) -> RecorderTable:
        """Return the entries of ``dumps`` as one table."""
        return tabulate(self.dumps)

    @cached_property
    def source_of(self) -> dict[int, str]:
        """Map each rank with a flight-recorder dump to the file it came from."""
        return {dump.rank: dump.source for dump in self.dumps if dump.rank is not None}

    @cached_property
    def launched_before(self) -> frozenset[int]:
        """Return the ranks whose status counters show launches, though their dump may hold no entry any more."""
        return frozenset(
            dump.rank
            for dump in self.dumps
            if dump.rank is not None and np.any(whole_values(dump.pg_status.get("enqueued", b"")) > 0)
        )

    @classmethod
    def build(
        cls,
        records: Iterable[Record],
        attempt: int | None = None,
        offsets: Mapping[str, float] = MappingProxyType({}),
        *,
        live: bool = False,
        since: float | None = None,
        round_at: float | None = None,
        onset: float | None = None,
    ) -> Window:
        """Order the records, choose the attempt (default: the newest) and pick each rank's newest dump.

        ``offsets``: node → seconds by which its clock is ahead of the service's; its records are moved to that.
        ``live``: agents report a job that goes on: the dump of a node that has fallen silent is out of date, and so is one
        after which the other ranks have gone on.
        ``since``: when the incident opened. A rank that is silent in a later evidence round still stands where it was seen.
        ``onset``: since when the job stands still, or has ended. What a rank did before is no evidence of where it stands.
        """
        everything = tuple(map(_not_ahead, aligned(records, offsets) if offsets else records))
        attempts = sorted({record.attempt for record in everything if record.attempt is not None})
        chosen = attempt if attempt is not None else (attempts[-1] if attempts else None)
        kept = [record for record in everything if record.attempt is None or record.attempt == chosen]
        kept = _ordered(kept)
        silent = silent_nodes(kept) if live else {}
        job = next((record.job for record in kept if record.job), None)
        others = tuple(number for number in attempts if number != chosen)
        whole = cls((), (), (), job, chosen, others, offsets, live, since, round_at, onset)
        if parts := by_role(kept):
            judged = {role: whole._with(records, silent) for role, records in parts.items()}
            return replace(whole, records=tuple(kept), parts=judged)
        return whole._with(kept, silent)

    def _with(self, kept: list[Record], silent: Mapping[str, float]) -> Window:
        """Return this window with records in which a rank is one process."""
        kept = _of_their_own(kept, hosts(kept, silent, live=self.live))
        dumped = [record for record in kept if isinstance(record, FlightRecorderDump) and record.node not in silent]
        newest, earlier = _newest_a_rank(dumped)
        if self.live and (outdated := outdated_ranks(newest)):
            earlier += [dump for dump in newest if dump.rank in outdated]
            newest = [dump for dump in newest if dump.rank not in outdated]
        dumps = with_rings(
            newest, [record for record in kept if isinstance(record, Ring) and record.node not in silent]
        )
        return replace(self, records=tuple(kept), dumps=dumps, earlier_dumps=tuple(earlier))


SILENT_SECONDS = 45.0  # agents send every ten seconds
WILD_SECONDS = 3_600.0
APART_SECONDS = 5.0  # dumps so far apart are of two rounds of evidence
SKEW_SECONDS = 1.0  # that a clock may be off: larger offsets were taken out


def silent_nodes(records: Iterable[Record]) -> dict[str, float]:
    """Return the nodes that have stopped reporting, with the instant of their last report.

    What the service received is as old as its receipt, whatever a node says of the time. Elsewhere one wild clock does not
    count: it would make all other nodes silent. Nor does a line's own stamp: logs are written in other time zones.
    """
    newest: dict[str, float] = {}
    for record in records:
        if record.node is None:
            continue
        if record.received_at is not None:
            newest[record.node] = max(newest.get(record.node, 0.0), record.received_at)
        elif not isinstance(record, LogEvent | KernelEvent):
            newest[record.node] = max(newest.get(record.node, 0.0), record.at or 0.0)
    ordered = sorted(newest.values())
    until = max((at for at in ordered if at <= ordered[len(ordered) // 2] + WILD_SECONDS), default=0.0)
    return {node: at for node, at in newest.items() if until - at > SILENT_SECONDS}


def placed(records: Iterable[Record], silent: Collection[str]) -> dict[int, set[str]]:
    """Return on which nodes each rank is placed by their own newest report: one each, as a rule.

    A rank that runs elsewhere by now was left behind by a node that has fallen silent.
    """
    newest: dict[str, Placement] = {}
    for record in records:
        if isinstance(record, Placement) and record.node is not None:
            held = newest.get(record.node)
            if held is None or (held.at or 0.0) <= (record.at or 0.0):
                newest[record.node] = record
    found: dict[int, set[str]] = defaultdict(set)
    for node in sorted(newest, key=lambda name: name in silent):
        of_node = newest[node]
        for rank, where in zip(of_node.ranks.ranks() if of_node.ranks else (), of_node.nodes, strict=False):
            if node not in silent or rank not in found:
                found[rank].add(where)
    return dict(found)


def hosts(records: Sequence[Record], silent: Collection[str], *, live: bool) -> dict[int, set[str]]:
    """Return on which nodes each rank is, of the ranks whose nodes have sent their records themselves.

    Live by their newest placements, which the engine has freed of what a node only claims; in a recording the first that
    was received holds. Where no placement names a rank, it is where its process was seen first. Files have no senders.
    """
    sent = records if live else [record for record in records if record.received_at is not None]
    if live:
        found = placed(sent, silent)
    else:
        found = {}
        for placement in sorted((one for one in sent if isinstance(one, Placement)), key=_received):
            for rank, node in zip(placement.ranks.ranks() if placement.ranks else (), placement.nodes, strict=False):
                found.setdefault(rank, {node})
    rows = (
        one
        for one in sent
        if isinstance(one, ProcessState)
        and one.parent_pid is None
        and one.received_at is not None
        and one.rank not in found
    )
    for row in sorted(rows, key=_received):
        if row.rank is not None and row.node is not None:
            found.setdefault(row.rank, {row.node})
    return found


def _received(record: Record) -> tuple[bool, float, str]:
    """Order records by their receipt; what no node has sent, a declaration, comes first."""
    return record.node is not None, record.received_at or 0.0, record.node or ""


def _not_ahead(record: Record) -> Record:
    """Return a record that is not later than its receipt."""
    if record.at is None or record.received_at is None or record.at <= record.received_at:
        return record
    return msgspec.structs.replace(record, at=record.received_at)


def _of_their_own(records: list[Record], on: Mapping[int, set[str]]) -> list[Record]:
    """Leave out what a node reports of a rank that is on others: it cannot know."""
    return [
        record
        for record in records
        if record.rank is None or record.node is None or record.node in on.get(record.rank, (record.node,))
    ]


def _ordered(records: list[Record]) -> list[Record]:
    """Sort canonically; records of one place and instant, as the parts of one line may be, by their content."""
    by_type: dict[str, list[tuple[tuple[float, int, str], Record]]] = defaultdict(list)
    for record in records:
        by_type[type(record).__name__].append((_place(record), record))
    ordered: list[Record] = []
    for name in sorted(by_type):
        placed = sorted(by_type[name], key=_FIRST)
        for _, alike in groupby(placed, key=_FIRST):
            same = [record for _, record in alike]
            ordered.extend(sorted(same, key=_content) if len(same) > 1 else same)
    return ordered


def _content(record: Record) -> bytes:
    return msgspec.msgpack.encode(record, enc_hook=lambda value: value.data)  # Members, the one type of our own


_FIRST = itemgetter(0)


def _place(record: Record) -> tuple[float, int, str]:
    return record.at if record.at is not None else -1.0, -1 if record.rank is None else record.rank, record.source


def last_activity_ns(dump: FlightRecorderDump) -> int:
    """Return the newest instant that a dump's entries mention, -1 for an empty dump."""
    data = whole_values(dump.columns.get("created_ns", b""))
    return int(data.max()) if len(data) else -1


def newest_step_at(steps: Steps) -> float | None:
    """Return when the newest step of a series was reported, UTC seconds; None where its lines have no time."""
    at = step_instants(steps)
    return float(at.max()) if len(at) else steps.at


def step_instants(steps: Steps) -> NDArray[np.float64]:
    """Return when steps of a series were reported, UTC seconds; lines without a time, and what a cut left, are dropped."""
    data, size = steps.columns.get("at", b""), np.dtype(STEP_COLUMNS["at"]).itemsize
    at: NDArray[np.float64] = np.frombuffer(data[: len(data) // size * size], STEP_COLUMNS["at"])
    known: NDArray[np.float64] = at[np.isfinite(at)]
    return known


def outdated_ranks(newest: Sequence[FlightRecorderDump]) -> frozenset[int]:
    """Return the ranks after whose newest dump most others went on: they launched later what ended, in a later round.

    A rank that is stopped, or whose agent is slow, answers an early round and none of the later ones. What its dump waits for,
    or lacks, is of the past then; beside dumps of now it would accuse any rank, itself or another.
    """
    known = [(dump.rank, dump.at, _last_end(dump)) for dump in newest if dump.rank is not None and dump.at is not None]
    ats = np.array([at for _, at, _ in known])
    moved = np.sort([min(at - APART_SECONDS, done - SKEW_SECONDS) for _, at, done in known])
    later = len(known) - np.searchsorted(moved, ats, side="right")
    return frozenset(one[0] for one, count in zip(known, later, strict=True) if 2 * count > len(newest) - 1)


def _last_end(dump: FlightRecorderDump) -> float:
    """Return when the last operation that ended was launched; what is launched may still run ahead of the others."""
    created, state, retired = (
        whole_values(dump.columns.get(name, b""), FLIGHT_RECORDER_COLUMNS[name])
        for name in ("created_ns", "state", "retired")
    )
    if not len(created) == len(state) == len(retired):
        return -math.inf
    ended = created[(state == 2) | (retired == 1)]
    return float(ended.max()) / 1e9 if len(ended) else -math.inf


def _newest_a_rank(
    dumps: list[FlightRecorderDump],
) -> tuple[list[FlightRecorderDump], list[FlightRecorderDump]]:
    """Split into each rank's newest dump and the rest; a dump whose rank is unknown is of no use and is left out."""
    by_rank: dict[int, list[FlightRecorderDump]] = defaultdict(list)
    for dump in dumps:
        if dump.rank is not None:
            by_rank[dump.rank].append(dump)
    newest, earlier = [], []
    for rank in sorted(by_rank):
        ordered = by_rank[rank]
        if len(ordered) > 1:
            ordered = sorted(
                ordered, key=lambda dump: (dump.at or 0.0, last_activity_ns(dump), dump.count, dump.source)
            )
        newest.append(ordered[-1])
        earlier.extend(ordered[:-1])
    return newest, earlier
