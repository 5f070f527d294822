"""The probe's rings as flight-recorder dumps, for what no recorder holds: gloo's transfers, and ranks without a dump.

    the rank's dump    what its ring adds
    of gloo            its sends and receives, which gloo does not record, and the members of its groups
    of NCCL            nothing: that recorder knows more than the host does
    none, or empty     all of it: the ring stands for the dump

A ring is taken as of one instant, its dump's or, where there is none, that of the job's newest dump or ring: what was
entered later is left out, what was left later is still inside. Without dumps the instant is never after the first
operation that failed, for with that the job's end began. A ring that was read long before the instant shows nothing of
it. One whose rank was still moving then, or of which collectives are known to be missing (DDP's buckets are C++'s),
proves nothing by what it lacks: it adds nothing to a dump, and what stands for one is marked as truncated.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from analyzers.model.recorder import Ints, Mask, whole_values
from collectors.records import FLIGHT_RECORDER_COLUMNS, RING_COLUMNS, FlightRecorderDump, Group, Members, Ring

FRESH_SECONDS = 30.0  # three ordinary rounds of the agent; the clocks of nodes differ too
STILL_SECONDS = 5.0  # a ring that had not moved for so long was not read in the middle of things
MOST_COMPARED = 8  # dumps of a group that are asked what they call a collective
BYTES = "Byte"  # the type that a ring's sizes are in


@dataclass(frozen=True, slots=True)
class _Rows:
    """The entries of one ring as of an instant, in the order of entering."""

    ring: Ring
    at: float
    columns: dict[str, Ints]
    whole: bool  # nothing happened that is not in it

    def only(self, rows: Mask) -> _Rows:
        """Return some of the entries."""
        return _Rows(self.ring, self.at, {name: column[rows] for name, column in self.columns.items()}, self.whole)

    @property
    def is_p2p(self) -> Mask:
        """Mark sends and receives."""
        p2p: Mask = self.columns["p2p_seq"] > 0
        return p2p


def with_rings(dumps: Sequence[FlightRecorderDump], rings: Sequence[Ring]) -> tuple[FlightRecorderDump, ...]:
    """Return one dump a rank, by rank: those given, with what the rings of the same attempt add."""
    by_rank = _by_rank(rings)
    if not by_rank:
        return tuple(dumps)
    of_rank = {dump.rank: dump for dump in dumps if dump.rank is not None}
    every = [ring for found in by_rank.values() for ring in found]
    instant, listed = _instant(dumps, every), _listed(every)
    merged, stand_ins = {}, []
    for rank in sorted(of_rank.keys() | by_rank.keys()):
        dump, found = of_rank.get(rank), by_rank.get(rank, [])
        at = instant if dump is None or dump.at is None else dump.at
        if dump is not None and (dump.count or not any(ring.backend == "gloo" for ring in found)):
            merged[rank] = _filled(_with_transfers(dump, found, at), listed) if _gloo(dump) else dump
        elif (rows := _as_of(found, at)) is not None:
            stand_ins.append(rows)
        elif dump is not None:
            merged[rank] = dump
    real = dict(merged)
    for rows in stand_ins:
        stands = _dump_of(rows)
        merged[stands.rank or 0] = _in_their_words(stands, real)
    return tuple(merged[rank] for rank in sorted(merged))


def _by_rank(rings: Iterable[Ring]) -> dict[int, list[Ring]]:
    """Sort the rings by rank, those of each rank's newest process only: the rank may have had others before."""
    by_rank: dict[int, list[Ring]] = defaultdict(list)
    for ring in rings:
        whole = all(len(ring.columns.get(name, b"")) == ring.count * np.dtype(kind).itemsize for name, kind in _NEEDED)
        if ring.rank is not None and ring.count and ring.at is not None and whole:
            by_rank[ring.rank].append(ring)
    for rank, found in by_rank.items():
        newest = max(found, key=lambda ring: (_moved_ns(ring), ring.at or 0.0, ring.source))
        by_rank[rank] = sorted(
            (r for r in found if r.pid == newest.pid), key=lambda r: (r.at or 0.0, r.count, r.source)
        )
    return by_rank


_NEEDED = tuple((name, kind) for name, kind in RING_COLUMNS.items() if name != "failed")


def _column(ring: Ring, name: str) -> Ints:
    kind = np.dtype(RING_COLUMNS[name])
    data = ring.columns.get(name, b"")
    if len(data) != kind.itemsize * ring.count:
        return np.zeros(ring.count, np.int64)
    return np.frombuffer(data, kind).astype(np.int64)


def ring_values(ring: Ring, name: str) -> list[int]:
    """Return the values of a column, as many as are whole."""
    data, kind = ring.columns.get(name, b""), np.dtype(RING_COLUMNS[name])
    values: list[int] = np.frombuffer(data, kind, len(data) // kind.itemsize).tolist()
    return values


def _moved_ns(ring: Ring) -> int:
    """Return when the rank last entered or left something."""
    return int(max(_column(ring, "entered_ns").max(initial=-1), _column(ring, "left_ns").max(initial=-1)))


def _instant(dumps: Sequence[FlightRecorderDump], rings: Sequence[Ring]) -> float:
    """Return the instant that a ring without a dump is taken as of, UTC seconds."""
    dumped = [dump.at for dump in dumps if dump.at is not None and dump.count]
    if dumped:
        return max(dumped)
    failed = [_column(ring, "left_ns")[_column(ring, "failed") == 1] for ring in rings]
    first = min((int(left.min()) for left in failed if len(left)), default=None)
    newest = max(ring.at or 0.0 for ring in rings)
    return newest if first is None else min(newest, (first - 1) / 1e9)


def _as_of(rings: Sequence[Ring], instant: float, went_on_ns: int = -1) -> _Rows | None:
    """Return the first ring that was read at the instant or later, or else the last before it, as of the instant.

    ``went_on_ns``: the newest thing that the rank is known to have done by another source.
    """
    after = [ring for ring in rings if (ring.at or 0.0) >= instant]
    if not after and (not rings or instant - (rings[-1].at or 0.0) > FRESH_SECONDS):
        return None
    ring = after[0] if after else rings[-1]
    at = min(ring.at or 0.0, instant)
    columns = {name: _column(ring, name) for name in RING_COLUMNS}
    until_ns = round(at * 1e9)
    rows = np.flatnonzero(columns["entered_ns"] <= until_ns)
    rows = rows[np.argsort(columns["entered_ns"][rows], kind="stable")]
    columns = {name: column[rows] for name, column in columns.items()}
    left = columns["left_ns"]
    columns["left_ns"] = np.where(left > until_ns, -1, left)
    # A light read holds the newest entries and older ones that are still inside: one that was left before the instant
    # shows that the newest begin before it, so that none is missing between.
    whole = bool((columns["left_ns"] >= 0).any()) or (not ring.overwritten and len(rows) == ring.count)
    if not after:
        whole = whole and at - _moved_ns(ring) / 1e9 >= STILL_SECONDS and went_on_ns <= until_ns
    return _Rows(ring, at, columns, whole) if len(rows) else None


def _listed(rings: Iterable[Ring]) -> dict[tuple[str, Members], Group]:
    return {(group.name, group.members): group for ring in rings for group in ring.groups if group.members is not None}


def _gloo(dump: FlightRecorderDump) -> bool:
    return any(text.startswith("gloo:") for text in dump.strings)


def _with_transfers(dump: FlightRecorderDump, rings: Sequence[Ring], at: float) -> FlightRecorderDump:
    """Add a ring's sends and receives to a dump of gloo, by the instant of entering."""
    created = whole_values(dump.columns.get("created_ns", b""))
    rows = _as_of(rings, at, int(created.max(initial=-1)))
    if rows is None or not rows.whole or len(created) != dump.count:
        return dump
    texts = _Texts(dump.strings)
    # Both then tell of one span: what a job does while it starts is no part of the rhythm that a hang is held against.
    recent = (rows.columns["entered_ns"] >= created.min(initial=np.iinfo(np.int64).max)) | (rows.columns["left_ns"] < 0)
    added = _recorder_columns(rows.only(rows.is_p2p & recent), texts)
    count = dump.count + len(added["created_ns"])
    order = np.concatenate((np.maximum.accumulate(created), added["created_ns"]))
    place = np.empty(count, np.int64)
    place[np.argsort(order, kind="stable")] = np.arange(count)
    columns = {}
    for name, kind in FLIGHT_RECORDER_COLUMNS.items():
        own = dump.columns.get(name, b"")
        if len(own) == np.dtype(kind).itemsize * dump.count:
            columns[name] = own + added[name].astype(kind).tobytes()
    columns["record_id"] = place.astype("<i8").tobytes()
    # Gloo's op_id runs ahead of its collectives by the sends and receives that it does not show: now they are there.
    columns["op_id"] = np.full(count, -1, "<i8").tobytes()
    return msgspec.structs.replace(dump, strings=tuple(texts.numbers), count=count, columns=columns)


def _filled(dump: FlightRecorderDump, listed: Mapping[tuple[str, Members], Group]) -> FlightRecorderDump:
    """Give the groups of a dump of gloo the members that any ring lists for a group of that name and this rank."""
    own = {group.name: group for group in dump.groups}
    for (name, members), group in listed.items():
        if dump.rank in members.ranks() and (name not in own or not own[name].members):
            own[name] = group
    return msgspec.structs.replace(dump, groups=tuple(own.values()))


class _Texts:
    """A dump's strings, and those that are added."""

    def __init__(self, strings: Iterable[str] = ()) -> None:
        self.numbers: dict[str, int] = {}
        for place, text in enumerate(strings):  # a text may stand there twice: its place is what counts
            self.numbers[text if text not in self.numbers else f"{text}#{place}"] = place

    def coded(self, texts: Iterable[str]) -> Ints:
        """Return the texts' numbers."""
        return np.array([self.numbers.setdefault(text, len(self.numbers)) for text in texts], np.int64)


def _recorder_columns(rows: _Rows, texts: _Texts) -> dict[str, Ints]:
    """Return a ring's entries as the recorder would have them. What was left has ended, how is not known: as in gloo."""
    ring, count = rows.ring, len(rows.columns["group"])
    strings = dict(enumerate(ring.strings))
    prefix = "gloo" if ring.backend == "gloo" else "host"
    columns = {name: np.full(count, -1, np.int64) for name in FLIGHT_RECORDER_COLUMNS}
    columns["record_id"] = np.arange(count, dtype=np.int64)
    columns["group"] = texts.coded(strings.get(int(index), "?") for index in rows.columns["group"])
    operations = (strings.get(int(index), "?") for index in rows.columns["operation"])
    columns["operation"] = texts.coded(f"{prefix}:{operation}" for operation in operations)
    sizes = texts.coded(f"[[{int(size)}]]" for size in rows.columns["bytes"])
    columns["input_sizes"] = columns["output_sizes"] = sizes
    columns["dtypes"] = texts.coded([BYTES] * count)
    columns["collective_seq"], columns["p2p_seq"] = rows.columns["collective_seq"], rows.columns["p2p_seq"]
    columns["state"] = np.zeros(count, np.int64)
    columns["retired"] = (rows.columns["left_ns"] >= 0).astype(np.int64)
    columns["is_p2p"] = rows.is_p2p.astype(np.int64)
    columns["created_ns"] = rows.columns["entered_ns"]
    return columns


def _dump_of(rows: _Rows) -> FlightRecorderDump:
    """Let a ring stand for its rank's dump."""
    ring, texts = rows.ring, _Texts()
    columns = _recorder_columns(rows, texts)
    return FlightRecorderDump(
        source=ring.source,
        at=rows.at,
        boot_id=ring.boot_id,
        node=ring.node,
        job=ring.job,
        attempt=ring.attempt,
        rank=ring.rank,
        role=ring.role,
        pid=ring.pid,
        groups=ring.groups,
        strings=tuple(texts.numbers),
        count=len(columns["created_ns"]),
        columns={name: columns[name].astype(kind).tobytes() for name, kind in FLIGHT_RECORDER_COLUMNS.items()},
        truncated=not rows.whole or bool(ring.unseen_groups),
    )


def _in_their_words(stands: FlightRecorderDump, real: Mapping[int, FlightRecorderDump]) -> FlightRecorderDump:
    """Call collectives what the recorders of the group's other members call them.

    The two do not use the same words (gloo records a reduce-scatter as all_reduce) nor the same sizes (elements, bytes):
    what was only worded otherwise must not seem a rank that called something else.
    """
    texts, columns = _Texts(stands.strings), _columns_of(stands)
    for group in stands.groups:
        members = group.members.ranks() if group.members is not None else ()
        calls: dict[int, tuple[str, ...]] = {}
        for dump in [real[member] for member in members if member in real][:MOST_COMPARED]:
            calls = _calls(dump, group.name) | calls
        rows = (columns["group"] == texts.numbers.get(group.name, -1)) & (columns["is_p2p"] == 0)
        for row in np.flatnonzero(rows):
            words = calls.get(int(columns["collective_seq"][row]))
            if words is not None:
                columns["operation"][row], columns["input_sizes"][row], columns["dtypes"][row] = texts.coded(words)
    packed = {name: columns[name].astype(kind).tobytes() for name, kind in FLIGHT_RECORDER_COLUMNS.items()}
    return msgspec.structs.replace(stands, strings=tuple(texts.numbers), columns=packed)


def _columns_of(dump: FlightRecorderDump) -> dict[str, Ints]:
    """Return a dump's columns; those that are missing or cut are unset."""
    columns = {}
    for name, kind in FLIGHT_RECORDER_COLUMNS.items():
        data = dump.columns.get(name, b"")
        whole = len(data) == np.dtype(kind).itemsize * dump.count
        columns[name] = np.frombuffer(data, kind).astype(np.int64) if whole else np.full(dump.count, -1, np.int64)
    return columns


def _calls(dump: FlightRecorderDump, group: str) -> dict[int, tuple[str, ...]]:
    """Return what a dump calls each collective of a group: sequence → (operation, sizes, type)."""
    columns, strings = _columns_of(dump), dict(enumerate(dump.strings))
    found = {}
    for row in np.flatnonzero(columns["is_p2p"] == 0):
        if strings.get(int(columns["group"][row])) == group:
            words = tuple(strings.get(int(columns[name][row]), "") for name in ("operation", "input_sizes", "dtypes"))
            found[int(columns["collective_seq"][row])] = words
    return found
