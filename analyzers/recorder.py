"""All ranks' flight-recorder entries as one set of columns, with group names and operations coded across ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collectors.records import FLIGHT_RECORDER_COLUMNS, PG_STATUS_COLUMNS, FlightRecorderDump, Members

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
_CODED = ("group", "operation", "input_sizes", "output_sizes", "dtypes")
_PLAIN = tuple(name for name in FLIGHT_RECORDER_COLUMNS if name not in (*_CODED, "frames"))


@dataclass(frozen=True)
class GroupName:
    """One communicator as dumps name it. ``members`` None: no dump lists them (gloo)."""

    name: str
    description: str
    members: Members | None


@dataclass(frozen=True)
class RecorderTable:
    """n entries of all dumps, ordered by rank and then by recording; every column is int64 of shape (n,).

    ``group`` indexes ``groups``; ``operation``, ``input_sizes``, ``output_sizes``, ``dtypes`` index ``strings``.
    ``status_completed`` is what the rank's own status counter says of the entry's group.
    """

    ranks: tuple[int, ...]  # that have a dump, sorted
    groups: tuple[GroupName, ...]
    strings: tuple[str, ...]
    columns: dict[str, Ints]

    def __getitem__(self, name: str) -> Ints:
        return self.columns[name]

    def __len__(self) -> int:
        return len(self.columns["rank"])

    @cached_property
    def finished(self) -> Mask:
        """Mark what the rank itself saw end: completed, or retired (all that gloo ever says)."""
        done: Mask = (self["state"] == 2) | (self["retired"] == 1)
        return done

    @cached_property
    def is_p2p(self) -> Mask:
        """Mark sends and receives."""
        p2p: Mask = self["is_p2p"] == 1
        return p2p

    @cached_property
    def rank_index(self) -> Ints:
        """Return each row's position in ``ranks``."""
        return np.searchsorted(np.asarray(self.ranks, np.int64), self["rank"]).astype(np.int64)

    @cached_property
    def gloo(self) -> Mask:
        """Mark gloo's entries: no sends or receives, no states, ``retired`` for whatever ended."""
        marks = np.array([text.startswith("gloo:") for text in self.strings] + [False], np.bool_)
        gloo: Mask = marks[self["operation"]]
        return gloo

    def where_operation(self, wanted: Callable[[str], bool]) -> Mask:
        """Mark the rows whose operation, without its backend, is wanted."""
        marks = np.array([wanted(text.rpartition(":")[2]) for text in self.strings] + [False], np.bool_)
        found: Mask = marks[self["operation"]]  # -1, no operation, reads the False at the end
        return found

    def operation(self, row: int) -> str:
        """Return an entry's operation without its backend: ``all_reduce``, ``send 0->3``."""
        return self.strings[int(self["operation"][row])].partition(":")[2] or self.strings[int(self["operation"][row])]


@dataclass(frozen=True)
class Pairs:
    """The (rank, group) pairs that occur, sorted: a matrix of 16,384 ranks by as many groups would be mostly empty."""

    keys: Ints  # rank * span + group
    span: int
    of_row: Ints  # shape (n,): each row's pair
    group: Ints  # each pair's group, -1 for none

    @classmethod
    def of(cls, table: RecorderTable) -> Pairs:
        """Find the pairs of a table."""
        span = len(table.groups) + 2
        keys, of_row = np.unique(table["rank"] * span + table["group"] + 1, return_inverse=True)
        return cls(keys, span, of_row.astype(np.int64), keys % span - 1)

    def highest(self, values: Ints, rows: Mask) -> Ints:
        """Return each pair's highest value among the chosen rows, -1 where there is none."""
        highest = np.full(len(self.keys), -1, np.int64)
        np.maximum.at(highest, self.of_row[rows], values[rows])
        return highest

    def looked_up(self, values: Ints, ranks: Ints, group: int) -> Ints:
        """Return the values of (each rank, group), -1 for pairs that do not occur."""
        keys = ranks * self.span + group + 1
        place = np.clip(np.searchsorted(self.keys, keys), 0, max(len(self.keys) - 1, 0))
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        return np.where(self.keys[place] == keys, values[place], -1)


def keyed(*columns: Ints) -> Ints:
    """Return one integer per row that is equal where all columns are; ordered by the first column, then the next."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low, span = int(column.min(initial=0)), int(column.max(initial=0)) - int(column.min(initial=0)) + 1
        if int(key.max(initial=0)) > np.iinfo(np.int64).max // max(span, 1) - 1:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
        key = key * span + (column - low)
    return key


class _Codes:
    """Gives equal values equal numbers, across dumps."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self._index: dict[object, int] = {}

    def code(self, value: object) -> int:
        found = self._index.get(value)
        if found is None:
            found = self._index[value] = len(self.values)
            self.values.append(value)
        return found


def tabulate(dumps: Iterable[FlightRecorderDump]) -> RecorderTable:
    """Concatenate dumps (one a rank, each with its rank known) into one table."""
    texts, groups = _Codes(), _Codes()
    parts: dict[str, list[Ints]] = {name: [] for name in (*_PLAIN, *_CODED, "rank", "status_completed")}
    ordered = sorted((dump for dump in dumps if dump.rank is not None), key=lambda dump: dump.rank or 0)
    for dump in ordered:
        _append(dump, texts, groups, parts)
    columns = {name: np.concatenate(arrays) if arrays else np.zeros(0, np.int64) for name, arrays in parts.items()}
    return RecorderTable(
        tuple(dump.rank for dump in ordered if dump.rank is not None),
        tuple(group for group in groups.values if isinstance(group, GroupName)),
        tuple(str(text) for text in texts.values),
        columns,
    )


def _append(dump: FlightRecorderDump, texts: _Codes, groups: _Codes, parts: dict[str, list[Ints]]) -> None:
    read = {name: _column(dump, name) for name in (*_PLAIN, *_CODED)}
    order = np.argsort(read["record_id"], kind="stable")
    text_codes = np.fromiter((texts.code(text) for text in dump.strings), np.int64, len(dump.strings))
    group_codes = _group_codes(dump, groups, read["group"])
    for name in _PLAIN:
        parts[name].append(read[name][order])
    for name in _CODED:
        table = group_codes if name == "group" else text_codes
        parts[name].append(_looked_up(table, read[name][order]))
    parts["rank"].append(np.full(dump.count, dump.rank, np.int64))
    parts["status_completed"].append(_status_completed(dump, read["pg_id"][order]))


def _status_completed(dump: FlightRecorderDump, pg_id: Ints) -> Ints:
    """Return, per entry, the number of the last work that its group's status counter knows completed, -1 if unknown."""
    keys = np.frombuffer(dump.pg_status.get("pg_id", b""), PG_STATUS_COLUMNS["pg_id"])
    values = np.frombuffer(dump.pg_status.get("completed", b""), PG_STATUS_COLUMNS["completed"])
    if not len(keys) or len(keys) != len(values):
        return np.full(len(pg_id), -1, np.int64)
    order = np.argsort(keys, kind="stable")
    place = np.clip(np.searchsorted(keys[order], pg_id), 0, len(keys) - 1)
    return np.where(keys[order][place] == pg_id, values[order][place], -1)


def _column(dump: FlightRecorderDump, name: str) -> Ints:
    """Read one column; one that an old or foreign writer left out, or cut short, reads as unset."""
    data = np.frombuffer(dump.columns.get(name, b""), FLIGHT_RECORDER_COLUMNS[name])
    if len(data) == dump.count:
        return data.astype(np.int64)
    unset = 0 if name in ("state", "retired", "is_p2p") else -1
    return np.full(dump.count, unset, np.int64)


def _group_codes(dump: FlightRecorderDump, groups: _Codes, used: Ints) -> Ints:
    """Map the dump's string indices to group codes. A name alone is not an identity: its members belong to it."""
    listed = {group.name: group for group in dump.groups}
    codes = np.full(len(dump.strings), -1, np.int64)
    for index in np.unique(used):
        if 0 <= index < len(dump.strings):
            name = dump.strings[index]
            group = listed.get(name)
            members = group.members if group is not None and group.members is not None and len(group.members) else None
            codes[index] = groups.code(GroupName(name, group.description if group else "", members))
    return codes


def _looked_up(table: Ints, indices: Ints) -> Ints:
    if not len(table):
        return np.full(len(indices), -1, np.int64)
    return np.where((indices >= 0) & (indices < len(table)), table[np.clip(indices, 0, len(table) - 1)], -1)
