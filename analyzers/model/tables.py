"""Dumps into one table. All ranks at once: a few array operations a column, not a few a dump."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from analyzers.model.recorder import GroupName, Ints, RecorderTable, Statuses, keyed, whole_values
from collectors.records import FLIGHT_RECORDER_COLUMNS, FlightRecorderDump, Group

_CODED = ("operation", "input_sizes", "dtypes")
_PLAIN = (
    *("collective_seq", "p2p_seq", "op_id", "is_p2p", "pg_id", "record_id"),
    *("timeout_ms", "state", "retired", "created_ns"),
)
_UNSET = {"state": 0, "retired": 0, "is_p2p": 0}


def tabulate(dumps: Iterable[FlightRecorderDump]) -> RecorderTable:
    """Concatenate dumps (one a rank, each with its rank known) into one table, by rank and order of recording."""
    ordered = sorted((dump for dump in dumps if dump.rank is not None), key=lambda dump: dump.rank or 0)
    ranks = np.array([dump.rank for dump in ordered], np.int64)
    number = np.repeat(np.arange(len(ordered)), [dump.count for dump in ordered])
    strings = _Strings.from_dumps(ordered)
    columns = {name: _column(ordered, name) for name in _PLAIN}
    columns |= {name: strings.codes[strings.places(number, _column(ordered, name))] for name in _CODED}
    columns["group"], columns["pair"], groups = _grouped(ordered, strings, number)
    columns["rank"] = ranks[number]
    if not _are_ordered(number, columns["record_id"]):
        order = np.lexsort((columns["record_id"], number))
        columns = {name: column[order] for name, column in columns.items()}
    return RecorderTable(
        tuple(ranks.tolist()),
        tuple(groups),
        tuple(strings.texts),
        columns,
        _statuses(ordered, ranks),
        frozenset(dump.rank for dump in ordered if dump.rank is not None and dump.truncated),
    )


def _are_ordered(number: Ints, record_id: Ints) -> bool:
    """Whether the entries of each dump are in their order, as recorders write them."""
    same = np.diff(number) == 0
    return not (same & (np.diff(record_id) < 0)).any()


def _column(dumps: Sequence[FlightRecorderDump], name: str) -> Ints:
    """Read one column of all dumps, as wide as it is there; where an old writer left it out, or a cut left it short: unset."""
    kind = np.dtype(FLIGHT_RECORDER_COLUMNS[name])
    unset, size = np.array([_UNSET.get(name, -1)], kind).tobytes(), kind.itemsize
    parts = ((dump.columns.get(name, b""), dump.count) for dump in dumps)
    whole = [part if len(part) == size * count else unset * count for part, count in parts]
    return np.frombuffer(b"".join(whole), kind)


def _all_strings(dumps: Sequence[FlightRecorderDump]) -> Iterator[str]:
    return chain.from_iterable(dump.strings for dump in dumps)


@dataclass(frozen=True)
class _Strings:
    """Every distinct text once. The strings of all dumps have places, one after the other, and each dump one more: of none."""

    texts: dict[str, int]  # text → its number
    codes: Ints  # each place's text, -1 for none
    counts: Ints  # each dump's number of strings
    first: Ints  # each dump's first place

    @classmethod
    def from_dumps(cls, dumps: Sequence[FlightRecorderDump]) -> _Strings:
        """Number the strings of all dumps."""
        counts = np.array([len(dump.strings) for dump in dumps], np.int64)
        texts = {text: number for number, text in enumerate(dict.fromkeys(_all_strings(dumps)))}
        ends = np.cumsum(counts + 1)
        codes = np.full(int(counts.sum()) + len(dumps), -1, np.int64)
        is_text = np.ones(len(codes), np.bool_)
        is_text[ends - 1] = False
        codes[is_text] = np.fromiter(map(texts.__getitem__, _all_strings(dumps)), np.int64, int(counts.sum()))
        return cls(texts, codes, counts, ends - counts - 1)

    def places(self, number: Ints, indices: Ints) -> Ints:
        """Return the places of (dump, index) pairs; that of none for an index that the dump does not have."""
        counts = self.counts[number]
        places = np.where((indices >= 0) & (indices < counts), indices, counts)
        places += self.first[number]
        return places


def _grouped(
    dumps: Sequence[FlightRecorderDump], strings: _Strings, number: Ints
) -> tuple[Ints, Ints, list[GroupName]]:
    """Number the communicators, and their pairs with a rank. A name alone is not an identity: its members belong to it."""
    of_row = strings.places(number, _column(dumps, "group"))
    used = np.zeros(len(strings.codes), np.bool_)
    used[of_row] = True
    places = np.flatnonzero(used)
    owners = np.searchsorted(strings.first, places, side="right") - 1
    names = list(strings.texts)
    groups: dict[GroupName, int] = {}
    seen: dict[tuple[int, str, int], int] = {}  # equal members are one object, as a rule: most groups are known by it
    codes, read = [], -1
    for owner, text in zip(owners.tolist(), strings.codes[places].tolist(), strict=True):
        if owner != read:
            read, listed = owner, {group.name: group for group in dumps[owner].groups}
        group = listed.get(names[text]) if text >= 0 else None
        key = (text, group.description, id(group.members)) if group else (text, "", 0)
        if key not in seen:
            seen[key] = groups.setdefault(_named(names[text], group), len(groups)) if text >= 0 else -1
        codes.append(seen[key])
    of_place = np.array(codes, np.int64)
    pairs = np.unique(keyed(owners, of_place), return_inverse=True)[1]
    in_row = (np.cumsum(used) - 1)[of_row]
    return of_place[in_row], pairs[in_row].astype(np.int64), list(groups)


def _named(name: str, group: Group | None) -> GroupName:
    members = group.members if group is not None and group.members is not None and len(group.members) else None
    return GroupName(name, group.description if group else "", members)


def _statuses(dumps: Sequence[FlightRecorderDump], ranks: Ints) -> Statuses:
    """Read the status counters of all dumps; one whose columns differ in length says nothing."""
    counts, keys, values = [], [], []
    for dump in dumps:
        key, value = dump.pg_status.get("pg_id", b""), dump.pg_status.get("completed", b"")
        count = len(key) // 8 if len(key) // 8 == len(value) // 8 else 0
        counts.append(count)
        keys.append(key[: 8 * count])
        values.append(value[: 8 * count])
    return Statuses(np.repeat(ranks, counts), whole_values(b"".join(keys)), whole_values(b"".join(values)))
