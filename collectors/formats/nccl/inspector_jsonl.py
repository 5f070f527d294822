"""NCCL Inspector's JSON lines, one an operation: a record with columns for each communicator of each process.

The profiler plugin of each process writes them; versions 4.0 to 4.3 of its format are read. To version 4.2 each line names its
communicator. Since 4.3 a marker line names it once, counts the lines that follow, and those have the operation alone:

    {"header": {…}, "metadata": {…}, "dump_stats": {"coll_records": 2, …}}     the marker
    {"coll_perf": {…}}                                                         two lines of its communicator

Only sequence numbers join an operation across ranks. Where there are too many operations to send, all ranks must keep the same
ones: those whose sequence a power of two divides.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from collectors.formats import Input, reader
from collectors.formats.text_lines import lines as text_lines
from collectors.records import ARRAY_CODES, TIMING_COLUMNS, CollectiveTimings, Outcome, Record, Unread, column_bytes

MOST_COMMUNICATORS = 10_000  # of one file
MOST_ROWS = 2_000_000  # of one file
ROWS_A_RECORD = 100_000
NAME_CHARACTERS = 200

Whole = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARACTERS)]
Microseconds = Annotated[float, msgspec.Meta(ge=0, le=9e15)]
Bandwidth = float | Name  # "nan": an operation that took no time
_NO_JSON = re.compile(rb":\s*-?(?:inf|nan)\b")  # as C prints a bandwidth of an operation that took no time


class _Header(msgspec.Struct):
    id: Name = ""
    rank: Whole | None = None
    n_ranks: Whole | None = None


class _Metadata(msgspec.Struct):
    dump_timestamp_us: Microseconds | None = None
    hostname: Name = ""
    pid: Whole | None = None


class _Trace(msgspec.Struct):
    coll_start_ts: Microseconds = 0
    p2p_start_ts: Microseconds = 0


class _Collective(msgspec.Struct):
    coll: Name
    coll_sn: Whole
    coll_msg_size_bytes: Whole = -1
    coll_exec_time_us: float = -1.0
    coll_busbw_gbs: Bandwidth = 0.0
    coll_timing_source: Name = ""
    event_trace_ts: _Trace = msgspec.field(default_factory=_Trace)


class _PointToPoint(msgspec.Struct):
    p2p: Name
    p2p_sn: Whole
    p2p_peer: Whole = -1
    p2p_msg_size_bytes: Whole = -1
    p2p_exec_time_us: float = -1.0
    p2p_busbw_gbs: Bandwidth = 0.0
    p2p_timing_source: Name = ""
    event_trace_ts: _Trace = msgspec.field(default_factory=_Trace)


Lines = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class _Stats(msgspec.Struct):
    coll_records: Lines = 0
    p2p_records: Lines = 0
    proxy_records: Lines = 0
    coll_dropped_since_last_dump: Lines = 0
    p2p_dropped_since_last_dump: Lines = 0

    @property
    def overwritten(self) -> int:
        """Return how many operations the plugin had no room for since the marker before."""
        return self.coll_dropped_since_last_dump + self.p2p_dropped_since_last_dump


class _Line(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    coll_perf: _Collective | None = None
    p2p_perf: _PointToPoint | None = None
    proxy_trace: msgspec.Raw = msgspec.Raw()
    dump_stats: _Stats | None = None


_decode = msgspec.json.Decoder(_Line).decode


class Marker(msgspec.Struct):
    """Whose the next ``left`` lines are: what the newest marker has stated."""

    header: _Header
    metadata: _Metadata
    left: int


@dataclass(slots=True)
class Communicator:
    """One process's operations in one communicator, in the order of the file."""

    id: str
    rank: int | None
    size: int | None
    pid: int | None
    host: str
    timing_source: str = ""
    strings: dict[str, int] = field(default_factory=dict)
    columns: dict[str, array[Any]] = field(
        default_factory=lambda: {name: array(ARRAY_CODES[code]) for name, code in TIMING_COLUMNS.items()}
    )

    def add(self, line: _Line) -> None:
        """Add an operation."""
        written_us = line.metadata.dump_timestamp_us
        row: tuple[Any, ...]
        if line.coll_perf is not None:
            perf = line.coll_perf
            row = (perf.coll, perf.coll_sn, perf.coll_msg_size_bytes, perf.coll_exec_time_us, perf.coll_busbw_gbs,
                   perf.event_trace_ts.coll_start_ts)  # fmt: skip
        elif line.p2p_perf is not None:
            pair = line.p2p_perf
            row = (_named(pair, self.rank), pair.p2p_sn, pair.p2p_msg_size_bytes, pair.p2p_exec_time_us,
                   pair.p2p_busbw_gbs, pair.event_trace_ts.p2p_start_ts)  # fmt: skip
        else:
            return
        operation, sequence, size, microseconds, gigabytes, start_us = row
        values = (
            self.strings.setdefault(operation, len(self.strings)), sequence, size, microseconds / 1e6,
            float("nan") if isinstance(gigabytes, str) else gigabytes * 1e9,
            int(start_us) * 1000 if start_us else -1, float("nan") if written_us is None else written_us / 1e6,
        )  # fmt: skip
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)

    def kept(self, every: int) -> list[int]:
        """Return the places of the operations whose sequence ``every`` divides."""
        return [place for place, sequence in enumerate(self.columns["sequence"]) if sequence % every == 0]

    def records(self, every: int = 1, **whose: Any) -> Iterator[CollectiveTimings]:
        """Yield the operations as records, those kept alone."""
        places = self.kept(every)
        for begin in range(0, len(places), ROWS_A_RECORD):
            part = places[begin : begin + ROWS_A_RECORD]
            written_at = self.columns["at"][part[-1]]
            at = written_at if written_at == written_at else None  # noqa: PLR0124 - NaN is not itself
            yield CollectiveTimings(
                **{"at": at, **whose}, communicator=self.id, size=self.size, communicator_rank=self.rank, pid=self.pid,
                timing_source=self.timing_source, strings=tuple(self.strings), count=len(part), every=every,
                written=len(self.columns["sequence"]) if every > 1 else 0,
                columns={name: _little_endian(column, part) for name, column in self.columns.items()},
            )  # fmt: skip


def _named(pair: _PointToPoint, rank: int | None) -> str:
    """Name a send or receive as the flight recorder does, with ranks of the communicator: ``Send 0->3``."""
    arrow = "<-" if pair.p2p.lower().startswith("recv") else "->"
    return f"{pair.p2p} {'?' if rank is None else rank}{arrow}{pair.p2p_peer}"


def _little_endian(column: array[Any], places: list[int]) -> bytes:
    part = column if len(places) == len(column) else array(column.typecode, map(column.__getitem__, places))
    return column_bytes(part)


@dataclass(slots=True)
class InspectorOperations:
    """What lines gave.

    ``damaged``: those that were no operation; ``nameless``: without a marker before them; ``over``: beyond the bounds.
    ``overwritten``: operations that the plugin had no room for until it wrote. ``marker``: whose the next lines are.
    """

    communicators: list[Communicator] = field(default_factory=list)
    damaged: int = 0
    nameless: int = 0
    over: int = 0
    overwritten: int = 0
    marker: Marker | None = None

    def reasons(self) -> Iterator[tuple[str, Outcome]]:
        """Yield what of the lines was not read, and why."""
        if self.over:
            yield (
                f"{self.over:,} operations are not read: {MOST_ROWS:,} or {MOST_COMMUNICATORS:,} communicators are the most",
                "limit",
            )
        if self.overwritten:
            yield (
                f"{self.overwritten:,} operations are not here: the plugin overwrote them before it wrote them",
                "limit",
            )
        if self.nameless:
            yield f"{self.nameless:,} operations have no marker before them that names their communicator", "damaged"
        if self.damaged:
            yield f"{self.damaged:,} lines are no operation of NCCL Inspector", "damaged"


def gather(lines: Iterable[str | bytes], marker: Marker | None = None) -> InspectorOperations:
    """Read lines; a line that is damaged costs itself. ``marker``: the newest of the lines before these."""
    found: dict[tuple[str, int | None, int | None, str, str], Communicator] = {}
    gathered, rows = InspectorOperations(marker=marker), 0
    for text in lines:
        if not text.strip():
            continue
        if (line := _owned(gathered, text)) is None or line.header is None:
            continue
        timed = (
            line.coll_perf.coll_timing_source
            if line.coll_perf
            else line.p2p_perf.p2p_timing_source
            if line.p2p_perf
            else ""
        )
        key = (line.header.id, line.header.rank, line.metadata.pid, line.metadata.hostname, timed)
        if rows >= MOST_ROWS or (key not in found and len(found) >= MOST_COMMUNICATORS):
            gathered.over += 1
            continue
        if key not in found:
            found[key] = Communicator(key[0], key[1], line.header.n_ranks, key[2], key[3], timed)
        found[key].add(line)
        rows += 1
    gathered.communicators = list(found.values())
    return gathered


def _owned(gathered: InspectorOperations, text: str | bytes) -> _Line | None:
    """Return the operation of a line, with the communicator that it or the newest marker names; None: there is none."""
    line = _decoded(text)
    if line is None:
        gathered.damaged += 1
        _adopt(gathered.marker)
        return None
    if line.header is not None:
        gathered.marker = None if line.dump_stats is None else _marker(line.header, line.metadata, line.dump_stats)
        if line.dump_stats is not None:
            gathered.overwritten += line.dump_stats.overwritten
    elif (marker := _adopt(gathered.marker)) is not None:
        line.header, line.metadata = marker.header, marker.metadata
    if line.coll_perf is None and line.p2p_perf is None:
        gathered.damaged += line.header is None and not bytes(line.proxy_trace)
        return None  # a marker, or a kind that is not read
    gathered.nameless += line.header is None
    return line if line.header is not None else None


def _marker(header: _Header, metadata: _Metadata, stats: _Stats) -> Marker:
    return Marker(header, metadata, stats.coll_records + stats.p2p_records + stats.proxy_records)


def _adopt(marker: Marker | None) -> Marker | None:
    """Count one line of a marker's; return it where that line is still its."""
    if marker is None or not marker.left:
        return None
    marker.left -= 1
    return marker


def _decoded(text: str | bytes) -> _Line | None:
    try:
        return _decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        pass
    try:
        data = text.encode() if isinstance(text, str) else text
        return _decode(_NO_JSON.sub(b':"nan"', data)) if _NO_JSON.search(data) else None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def thinned(communicators: Iterable[Communicator], most: int) -> int:
    """Return the smallest power of two that leaves at most so many operations of all communicators."""
    sequences = [sequence for each in communicators for sequence in each.columns["sequence"]]
    every = 1
    while sum(1 for sequence in sequences if sequence % every == 0) > most and every < 1 << 62:
        every *= 2
    return every


def _sniff(head: bytes, _source: str) -> int:
    ours = any(name in head for name in (b'"coll_perf"', b'"p2p_perf"', b'"dump_stats"'))
    return 95 if ours and b'"header"' in head and head.lstrip()[:1] == b"{" else 0


@reader(
    "inspector_jsonl",
    made_by="NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1",
    gives="the time and bandwidth of each collective of each rank, by communicator and sequence",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield the operations of each communicator of each process in the file."""
    gathered = gather(text for _, text in text_lines(input.stream))
    for each in gathered.communicators:
        yield from each.records(source=input.source, node=each.host or input.node, rank=input.rank)
    for reason, outcome in gathered.reasons():
        yield Unread(source=input.source, reason=reason, outcome=outcome)
