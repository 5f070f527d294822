"""Who waited how long for whom in collectives: durations of NCCL Inspector, joined by communicator, operation and sequence.

In an operation that ends on all members together, the member that comes last does not wait: its own record is the shortest,
and about the transfer itself. What another's record is longer is how long that one waited. No clock is compared with another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.slow.grouping import Floats, Ints
from collectors.records import TIMING_COLUMNS, CollectiveTimings

_TOGETHER = ("allreduce", "allgather", "reducescatter", "alltoall", "barrier")
"""Operations that no member can end before all have come; a broadcast's root, for one, may."""
_ON_HOST = "collective_cpu"
"""Timings of the host's calls: a call returns before its device is there, and shows no wait."""
MOST_COLUMNS = 4_000  # operations of one communicator that are compared, evenly spread over its time
FEWEST_KNOWN = 0.75  # of the members that were seen, in an operation that is compared


@dataclass(frozen=True, slots=True, order=True)
class TimedProcess:
    """Who recorded. Of files often no rank is known, only the host and the process id."""

    rank: int  # -1: not known
    node: str
    pid: int

    @property
    def name(self) -> str:
        """Name it for people."""
        if self.rank >= 0:
            return f"rank {self.rank}"
        return f"process {self.pid} of {self.node}" if self.node else f"process {self.pid}"


@dataclass(frozen=True)
class Collectives:
    """The operations of one communicator. ``seconds``: (members, operations), NaN where there is no record.

    ``scale``: how many operations there were for each that is here. ``span``: seconds from the first to the last by a
    member's own clock; NaN where no record shows it.
    """

    id: str
    size: int
    members: tuple[int, ...]  # indices of processes
    seconds: Floats
    bytes: Ints
    operation: tuple[str, ...]
    scale: float
    span: float
    sources: tuple[str, ...]  # of the members' records

    @property
    def whole(self) -> bool:
        """Whether every member left records."""
        return len(self.members) >= self.size

    @property
    def shape(self) -> tuple[int, tuple[tuple[str, int], ...]]:
        """Return what communicators with the same duty have in common: their size, and the kinds of their operations."""
        return self.size, tuple(sorted(set(zip(self.operation, self.bytes.tolist(), strict=True))))


@dataclass(frozen=True)
class Arrivals:
    """All communicators. ``processes``: who is in them; ``number``: of a communicator's rank, the index of its process.

    ``on_host``: how many records show no wait, and are not here.
    """

    processes: tuple[TimedProcess, ...]
    communicators: tuple[Collectives, ...]
    number: dict[tuple[str, int], int]
    on_host: int


def join(records: Sequence[CollectiveTimings]) -> Arrivals:
    """Join the records of all ranks."""
    usable = [record for record in records if record.timing_source != _ON_HOST]
    by_id: dict[str, list[CollectiveTimings]] = {}
    for record in usable:
        by_id.setdefault(record.communicator, []).append(record)
    ranks = _ranks(by_id)
    processes = sorted({_process(record, ranks) for record in usable})
    number = {process: index for index, process in enumerate(processes)}
    found = (_collectives(id, own, ranks, number) for id, own in sorted(by_id.items()))
    places = {
        (record.communicator, record.communicator_rank): number[_process(record, ranks)]
        for record in usable
        if record.communicator_rank is not None
    }
    communicators = tuple(one for one in found if one is not None)
    return Arrivals(tuple(processes), communicators, places, len(records) - len(usable))


def _owner(record: CollectiveTimings) -> tuple[str, int]:
    return record.node or record.source, -1 if record.pid is None else record.pid


def _ranks(by_id: dict[str, list[CollectiveTimings]]) -> dict[tuple[str, int], int]:
    """Return the job's rank of each process: its record's, else its number in the communicator of the whole job.

    That is the largest, has every process in it, and of the others no member is missing. Of a job of which only some ranks
    left records, a smaller communicator may have all of those in it, and its numbers are not the job's.
    """
    found = {_owner(record): record.rank for records in by_id.values() for record in records if record.rank is not None}
    if found:
        return found
    own = {
        id: {_owner(record): record.communicator_rank for record in records if record.communicator_rank is not None}
        for id, records in by_id.items()
    }
    sizes = {id: max((record.size or 0 for record in records), default=0) for id, records in by_id.items()}
    owners = {_owner(record) for records in by_id.values() for record in records}
    for id in sorted(own, key=lambda one: (-sizes[one], one))[:1]:
        others_whole = all(len(own[other]) == sizes[other] for other in own if other != id)
        if own[id].keys() == owners and len(set(own[id].values())) == len(owners) <= sizes[id] and others_whole:
            return own[id]
    return {}


def _process(record: CollectiveTimings, ranks: dict[tuple[str, int], int]) -> TimedProcess:
    return TimedProcess(ranks.get(_owner(record), -1), record.node or "", -1 if record.pid is None else record.pid)


def _collectives(
    id: str, records: list[CollectiveTimings], ranks: dict[tuple[str, int], int], number: dict[TimedProcess, int]
) -> Collectives | None:
    """Return one communicator; None where fewer than two members share operations."""
    members: dict[int, str] = {}
    names: dict[str, int] = {}
    parts: list[tuple[int, dict[str, NDArray[np.generic]]]] = []
    for record in records:
        columns = _columns(record, names)
        if len(columns["sequence"]):
            member = number[_process(record, ranks)]
            members.setdefault(member, record.source)
            parts.append((member, columns))
    if len(members) < 2:
        return None
    place = {member: row for row, member in enumerate(sorted(members))}
    row = np.concatenate([np.full(len(columns["sequence"]), place[member]) for member, columns in parts])
    joined = {name: np.concatenate([columns[name] for _, columns in parts]) for name in parts[0][1]}
    key, first, column = np.unique(
        np.column_stack([joined["sequence"], joined["operation"]]), axis=0, return_index=True, return_inverse=True
    )
    seconds = np.full((len(members), len(key)), np.nan)
    seconds[row, column.ravel()] = joined["seconds"]
    kept = np.flatnonzero(np.isfinite(seconds).sum(axis=0) >= max(2.0, FEWEST_KNOWN * len(members)))
    thinned = kept[:: max(1, -(-len(kept) // MOST_COLUMNS))]
    if not len(thinned):
        return None
    texts = list(names)
    return Collectives(
        id, max((record.size or 0 for record in records), default=0), tuple(sorted(members)), seconds[:, thinned],
        joined["bytes"][first][thinned].astype(np.int64), tuple(texts[code] for code in key[thinned, 1].tolist()),
        max(record.every for record in records) * len(kept) / len(thinned), _span(row, joined),
        tuple(members[member] for member in sorted(members)),
    )  # fmt: skip


def _columns(record: CollectiveTimings, names: dict[str, int]) -> dict[str, NDArray[np.generic]]:
    """Return the rows of operations that all members end together, with one number for each operation's name."""
    read: dict[str, NDArray[np.generic]] = {}
    for name, code in TIMING_COLUMNS.items():
        column = _whole(record, name)
        read[name] = np.full(record.count, np.nan if code == "<f8" else -1, code) if column is None else column
    together = [text.lower().replace("_", "") in _TOGETHER for text in record.strings]
    operation = read["operation"].astype(np.int64)
    seconds = read["seconds"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        sound = np.isfinite(seconds) & (seconds > 0) & (seconds < 1e6) & (operation >= 0)
    sound &= operation < len(together)
    sound[sound] = np.array(together or [False])[operation[sound]]
    kinds = zip(record.strings, together, strict=True)
    codes = np.array([names.setdefault(text, len(names)) if keep else -1 for text, keep in kinds] or [-1], np.int64)
    kept = {name: column[sound] for name, column in read.items()}
    kept["operation"] = codes[operation[sound]]
    return kept


def _whole(record: CollectiveTimings, name: str) -> NDArray[np.generic] | None:
    """Return a column of a record, None where it is cut or absent."""
    code, data = TIMING_COLUMNS[name], record.columns.get(name, b"")
    return np.frombuffer(data, code) if len(data) == record.count * np.dtype(code).itemsize else None


def _span(row: Ints, joined: dict[str, NDArray[np.generic]]) -> float:
    """Return the median of what the members' records span; NaN where none is known."""
    spans = []
    for member in np.unique(row).tolist():
        own = row == member
        spans.append(span_of(*(joined[name][own].astype(np.float64) for name in ("started_ns", "at", "seconds"))))
    known = [one for one in spans if np.isfinite(one)]
    return float(np.median(known)) if known else float("nan")


def times_of(record: CollectiveTimings) -> tuple[Floats, Floats, Floats]:
    """Return a record's starts in nanoseconds, instants of writing, and seconds; NaN where the column is cut."""
    read = []
    for name in ("started_ns", "at", "seconds"):
        column = _whole(record, name)
        read.append(np.full(record.count, np.nan) if column is None else column.astype(np.float64))
    return read[0], read[1], read[2]


def span_of(started_ns: Floats, at: Floats, seconds: Floats) -> float:
    """Return the seconds from the first operation to the last, by when they started, else by when they were written.

    A plugin that writes only at the end writes all at one instant: less than what the operations themselves take is no span.
    """
    least = 0.5 * float(np.nansum(seconds))
    for values, unit in ((started_ns, 1e9), (at, 1.0)):
        with np.errstate(invalid="ignore"):
            known = values[np.isfinite(values) & (values > 0)]
        length = float(np.ptp(known)) / unit if len(known) else 0.0
        if length > least:
            return length
    return float("nan")


def waits(one: Collectives, least: Floats) -> Iterator[tuple[int, int, float]]:
    """Yield how long each member waited in total for which other: (who, for whom, seconds), as indices of processes.

    ``least``: seconds of each operation below which a longer record is no wait, but noise.
    """
    last = np.nanargmin(one.seconds, axis=0)
    shortest = np.nanmin(one.seconds, axis=0)
    waited = np.nan_to_num(one.seconds - shortest)
    waited = np.where(waited > least, waited, 0.0) * one.scale
    for blamed in np.unique(last).tolist():
        total = waited[:, last == blamed].sum(axis=1)
        yield from (
            (one.members[who], one.members[blamed], float(total[who])) for who in np.flatnonzero(total > 0).tolist()
        )
