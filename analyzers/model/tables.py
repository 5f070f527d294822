"""Dumps into one table. All ranks at once: a few array operations a column, not a few a dump."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from analyzers.model.recorder import GroupName, Ints, RecorderTable, keyed, whole_values
from collectors.records import FLIGHT_RECORDER_COLUMNS, FlightRecorderDump

_CODED = ("operation", "input_sizes", "output_sizes", "dtypes")
_PLAIN = tuple(name for name in FLIGHT_RECORDER_COLUMNS if name not in (*_CODED, "group", "frames"))
_UNSET = {"state": 0, "retired": 0, "is_p2p": 0}


def tabulate(dumps: Iterable[FlightRecorderDump]) -> RecorderTable:
    """Concatenate dumps (one a rank, each with its rank known) into one table, by rank and order of recording."""
    ordered = sorted((dump for dump in dumps if dump.rank is not None), key=lambda dump: dump.rank or 0)
    counts = np.array([dump.count for dump in ordered], np.int64)
    number = np.repeat(np.arange(len(ordered)), counts)
    strings = _Strings.from_dumps(ordered)
    columns = {name: _column(ordered, name) for name in _PLAIN}
    columns |= {name: strings.coded(number, _column(ordered, name)) for name in _CODED}
    columns["group"], groups = _grouped(ordered, number, _column(ordered, "group"))
    columns["rank"] = np.repeat(np.array([dump.rank for dump in ordered], np.int64), counts)
    columns["status_completed"] = _status_completed(ordered, number, columns["pg_id"])
    if not _are_ordered(number, columns["record_id"]):
        order = np.lexsort((columns["record_id"], number))
        columns = {name: column[order] for name, column in columns.items()}
    return RecorderTable(
        tuple(dump.rank for dump in ordered if dump.rank is not None),
        tuple(groups),
        tuple(strings.texts),
        columns,
        frozenset(dump.rank for dump in ordered if dump.rank is not None and dump.truncated),
    )


def _are_ordered(number: Ints, record_id: Ints) -> bool:
    """Whether the entries of each dump are in their order, as recorders write them."""
    same = np.diff(number) == 0
    return not (same & (np.diff(record_id) < 0)).any()


def _column(dumps: Sequence[FlightRecorderDump], name: str) -> Ints:
    """Read one column of all dumps; where an old writer left it out, or a cut left it short, it reads as unset."""
    kind = np.dtype(FLIGHT_RECORDER_COLUMNS[name])
    unset = np.array([_UNSET.get(name, -1)], kind).tobytes()
    parts = [dump.columns.get(name, b"") for dump in dumps]
    whole = [
        part if len(part) == kind.itemsize * dump.count else unset * dump.count
        for part, dump in zip(parts, dumps, strict=True)
    ]
    return np.frombuffer(b"".join(whole), kind).astype(np.int64)


@dataclass
class _Strings:
    """Every distinct text once; ``codes[starts[d] + i]`` is the number of dump d's string i."""

    texts: dict[str, int] = field(default_factory=dict)
    codes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    starts: Ints = field(default_factory=lambda: np.zeros(1, np.int64))

    @classmethod
    def from_dumps(cls, dumps: Sequence[FlightRecorderDump]) -> _Strings:
        """Number the strings of all dumps."""
        texts: dict[str, int] = {}
        codes = [texts.setdefault(text, len(texts)) for dump in dumps for text in dump.strings]
        starts = np.cumsum([0] + [len(dump.strings) for dump in dumps])
        return cls(texts, np.array(codes, np.int64), starts)

    def coded(self, number: Ints, indices: Ints) -> Ints:
        """Return the texts' numbers for (dump, index) pairs, -1 for an index that the dump does not have."""
        inside = (indices >= 0) & (indices < np.diff(self.starts)[number]) if len(number) else np.zeros(0, np.bool_)
        coded = np.full(len(indices), -1, np.int64)
        coded[inside] = self.codes[self.starts[number[inside]] + indices[inside]]
        return coded


def _grouped(dumps: Sequence[FlightRecorderDump], number: Ints, indices: Ints) -> tuple[Ints, list[GroupName]]:
    """Number the communicators. A name alone is not an identity: its members belong to it."""
    _, first, inverse = np.unique(keyed(number, indices), return_index=True, return_inverse=True)
    listed = [{group.name: group for group in dump.groups} for dump in dumps]
    groups: dict[GroupName, int] = {}
    codes = []
    for row in first:
        dump, index = int(number[row]), int(indices[row])
        if not 0 <= index < len(dumps[dump].strings):
            codes.append(-1)
            continue
        name = dumps[dump].strings[index]
        group = listed[dump].get(name)
        members = group.members if group is not None and group.members is not None and len(group.members) else None
        named = GroupName(name, group.description if group else "", members)
        codes.append(groups.setdefault(named, len(groups)))
    return np.array(codes, np.int64)[inverse] if len(indices) else np.zeros(0, np.int64), list(groups)


def _status_completed(dumps: Sequence[FlightRecorderDump], number: Ints, pg_id: Ints) -> Ints:
    """Return, per entry, the number of the last work that its group's status counter knows completed, -1 if unknown."""
    owner, keys, values = [], [], []
    for index, dump in enumerate(dumps):
        key, value = (whole_values(dump.pg_status.get(name, b"")) for name in ("pg_id", "completed"))
        if len(key) and len(key) == len(value):
            owner.append(np.full(len(key), index, np.int64))
            keys.append(key)
            values.append(value)
    if not owner or not len(number):
        return np.full(len(number), -1, np.int64)
    count = sum(map(len, owner))
    joined = keyed(np.concatenate([*owner, number]), np.concatenate([*keys, pg_id]))
    known, wanted = joined[:count], joined[count:]
    order = np.argsort(known, kind="stable")
    place = np.clip(np.searchsorted(known[order], wanted), 0, count - 1)
    return np.where(known[order][place] == wanted, np.concatenate(values)[order][place], -1)
