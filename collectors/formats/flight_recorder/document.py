"""A Flight Recorder document, however it was serialised, becomes one record with columns.

Nothing in the document is trusted: each column is first built the fast way, which only well-typed values survive, and
otherwise value by value, where what does not fit becomes "unset". Versions 2.0 to 2.10 differ in which fields they have.
"""

from __future__ import annotations

import marshal
from array import array
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

from collectors.formats import Input
from collectors.formats.flight_recorder.groups import (
    LONGEST_TEXT,
    MOST_GROUPS,
    P2P,
    Entry,
    groups_of,
    process_group,
    rank_of,
    text_of,
)
from collectors.records import FLIGHT_RECORDER_COLUMNS, FlightRecorderDump, Outcome, Unread, column_bytes

Values = Sequence[Any]

# What an entry holds, each under its newest name and those of older versions.
FIELDS: dict[str, tuple[str, ...]] = {
    "record_id": ("record_id", "id"),
    "process_group": ("process_group", "pg_id"),
    "collective_seq": ("collective_seq_id", "seq_id"),
    "p2p_seq": ("p2p_seq_id",),
    "op_id": ("op_id",),
    "pg_id": ("pg_id",),
    "operation": ("profiling_name",),
    "state": ("state",),
    "retired": ("retired",),
    "is_p2p": ("is_p2p",),
    "created_ns": ("time_created_ns",),
    "started_ns": ("time_discovered_started_ns",),
    "completed_ns": ("time_discovered_completed_ns",),
    "input_sizes": ("input_sizes",),
    "output_sizes": ("output_sizes",),
    "input_dtypes": ("input_dtypes",),
    "output_dtypes": ("output_dtypes",),
    "timeout_ms": ("timeout_ms",),
}
INT64 = 1 << 63
DUMP_BYTES = 64 << 20  # a pickle or JSON document is held whole while it is read
LONGEST_STACK = 1 << 16
MOST_FRAMES = 1000
STATE_CODES = {"scheduled": 0, "started": 1, "completed": 2}
# The library version was "nccl_version" up to 2.9 and "comm_lib_version" from 2.10 on.
LIBRARY_VERSIONS = ("comm_lib_version", "nccl_version")
DUMPED_WITHIN_SECONDS = 7 * 86400.0  # of its newest entry; a later modification time is that of a copy


def record(document: object, input: Input, *, truncated: bool = False) -> Iterator[FlightRecorderDump | Unread]:
    """Yield the dump that a document holds, then what in it could not be used."""
    if not isinstance(document, dict) or not _is_dump(document):
        yield unread(input, "it is no Flight Recorder dump: it has neither entries nor pg_config nor pg_status")
        return
    listed = document.get("entries")
    entries: list[Entry] = listed if type(listed) is list else []
    if not all(type(entry) is dict for entry in entries):
        entries = [entry for entry in entries if type(entry) is dict]
        strange = len(listed) - len(entries) if isinstance(listed, list) else 0
        yield unread(input, f"{strange:,} of its entries are not entries and were left out", "damaged")
    texts = Texts()
    columns = _columns(entries, texts)
    groups = groups_of(document, entries, columns["group"])
    yield FlightRecorderDump(
        source=input.source,
        at=_written_at(input.at, columns["created_ns"]),
        rank=rank_of(input, groups, entries),
        node=input.node,
        version=text_of(document.get("version", "")),
        library_version=next((text_of(document[key]) for key in LIBRARY_VERSIONS if key in document), ""),
        groups=groups,
        strings=tuple(texts.index),
        count=len(entries),
        columns={name: column_bytes(columns[name]) for name in FLIGHT_RECORDER_COLUMNS},
        pg_status=_pg_status(document.get("pg_status")),
        truncated=truncated,
    )


def _is_dump(document: dict[Any, Any]) -> bool:
    return any(key in document for key in ("entries", "pg_config", "pg_status")) or (
        "version" in document and any(key in document for key in LIBRARY_VERSIONS)
    )


def whole(input: Input) -> bytes | Unread:
    """Return all of a dump's bytes, or an ``Unread`` where they are more than a dump may have."""
    data = input.stream.read(DUMP_BYTES + 1)
    if len(data) > DUMP_BYTES:
        return unread(input, f"a dump is read up to {DUMP_BYTES:,} bytes: dump fewer entries", "limit")
    return data


def unread(input: Input, reason: str, outcome: Outcome = "unrecognised", offset: int | None = None) -> Unread:
    """Say why a dump, or a part of one, was not used."""
    return Unread(source=input.source, rank=input.rank, node=input.node, reason=reason, outcome=outcome, offset=offset)


class Texts:
    """The distinct strings of one dump, in the order they first appear."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def add(self, text: str) -> int:
        """Return the index of a string."""
        return self.index.setdefault(text, len(self.index))

    def of(self, values: Values) -> array[int]:
        """Return the index of each name, whatever its type. Only strings are looked up: hashing may cost anything."""
        if set(map(type, values)) - {str}:
            values = [text_of(value) for value in values]
        known = {value: self.add(text_of(value)) for value in dict.fromkeys(values)}
        return array("i", map(known.__getitem__, values))

    def shapes(self, *columns: Values) -> list[array[int]]:
        """Return the indices of input sizes, output sizes and types; few differ, so they are looked up by their bytes."""
        found: dict[bytes, tuple[int, int, int]] = {}
        rows = []
        for parts in zip(*columns, strict=True):
            try:
                key = marshal.dumps(parts, 2)  # version 2 writes no references: equal values give equal bytes
            except ValueError:  # nested deeper than any shape
                key = b""
            row = found.get(key)
            if row is None:
                row = found[key] = self._shape(*parts) if key else self._shape(None, None, None, None)
            rows.append(row)
        return [array("i", [row[number] for row in rows]) for number in range(3)]

    def _shape(
        self, given: object, returned: object, given_types: object, returned_types: object
    ) -> tuple[int, int, int]:
        return self.add(_sizes(given)), self.add(_sizes(returned)), self.add(_dtypes(given_types, returned_types))


def _sizes(value: object) -> str:
    return text_of(value).replace(" ", "")


def _dtypes(given: object, returned: object) -> str:
    first, second = (_type_list(value) for value in (given, returned))
    return first if first == second or not second else f"{first}>{second}"


def _type_list(value: object) -> str:
    if not isinstance(value, (list, tuple)):
        return text_of(value)
    distinct = list(dict.fromkeys(map(text_of, value)))
    return ",".join(distinct)[:LONGEST_TEXT]


def integer(value: object) -> int:
    """Return an integer that fits eight bytes, or -1: strings of digits and whole floats count."""
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if len(text) < 20 and text.lstrip("-").isdecimal() else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < INT64 else None
    return int(value) if isinstance(value, int) and -INT64 <= value < INT64 else -1


def _integers(values: Values) -> array[int]:
    try:
        return array("q", values)
    except (TypeError, OverflowError):
        return array("q", map(integer, values))


def _instants(values: Values) -> array[int]:
    """Return UTC nanoseconds; None, 0 (as JSON writes None) and negative values are -1."""
    try:
        column = array("q", [value or -1 for value in values])
    except (TypeError, OverflowError):
        column = array("q", [integer(value) or -1 for value in values])
    return column if not column or min(column) >= -1 else array("q", [max(value, -1) for value in column])


def _flags(values: Values) -> array[int]:
    if set(map(type, values)) <= {bool}:
        return array("b", values)
    return array("b", map(_flag, values))


def _flag(value: object) -> bool:
    return value.lower() in ("true", "1") if isinstance(value, str) else value is True or value == 1


def _p2p(values: Values, operations: Values) -> array[int]:
    """Return which entries are sends and receives; in the oldest versions only the operation's name shows it."""
    if None not in values:
        return _flags(values)
    pairs = zip(values, operations, strict=True)
    return _flags([P2P.search(text_of(name)) is not None if value is None else value for value, name in pairs])


def _states(values: Values) -> array[int]:
    return array("b", [STATE_CODES.get(value, 0) if type(value) is str else 0 for value in values])


def _values(entries: list[Entry]) -> dict[str, Values]:
    """Return the fields of the entries, each as one sequence; None where an entry lacks it."""
    if not entries:
        return dict.fromkeys(FIELDS, ())
    try:
        rows = map(itemgetter(*(names[0] for names in FIELDS.values())), entries)
        return dict(zip(FIELDS, zip(*rows, strict=True), strict=True))
    except KeyError:
        return {field: [_first(entry, names) for entry in entries] for field, names in FIELDS.items()}


def _columns(entries: list[Entry], texts: Texts) -> dict[str, array[int]]:
    values = _values(entries)
    sizes = texts.shapes(*(values[name] for name in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes")))
    return {
        "record_id": _integers(values["record_id"]),
        "group": texts.of([process_group(value)[0] for value in values["process_group"]]),
        "collective_seq": _integers(values["collective_seq"]),
        "p2p_seq": _integers(values["p2p_seq"]),
        "op_id": _integers(values["op_id"]),
        "pg_id": _integers(values["pg_id"]),
        "operation": texts.of(values["operation"]),
        "state": _states(values["state"]),
        "retired": _flags(values["retired"]),
        "is_p2p": _p2p(values["is_p2p"], values["operation"]),
        "created_ns": _instants(values["created_ns"]),
        "started_ns": _instants(values["started_ns"]),
        "completed_ns": _instants(values["completed_ns"]),
        "input_sizes": sizes[0],
        "output_sizes": sizes[1],
        "dtypes": sizes[2],
        "timeout_ms": _integers(values["timeout_ms"]),
        "frames": _frames(entries, texts),
    }


def _frames(entries: list[Entry], texts: Texts) -> array[int]:
    # torch writes each distinct frame once and refers to it afterwards, so the objects' identities name a stack.
    known: dict[tuple[int, ...], int] = {}

    def one(frames: object) -> int:
        if not isinstance(frames, list) or not frames:
            return -1
        key = tuple(map(id, frames))
        found = known.get(key)
        if found is None:
            found = known[key] = texts.add(text_of("\n".join(map(_frame, frames[:MOST_FRAMES])), LONGEST_STACK))
        return found

    return array("i", [one(entry["frames"]) if "frames" in entry else -1 for entry in entries])


def _frame(frame: object) -> str:
    if not isinstance(frame, dict):
        return text_of(frame)
    return f"{text_of(frame.get('name'))} ({text_of(frame.get('filename'))}:{text_of(frame.get('line'))})"


def _pg_status(status: object) -> dict[str, bytes]:
    """Return the counters of each group; whole numbers in a pickle are strings in JSON."""
    if not isinstance(status, dict):
        return {}
    rows = [(key, value) for key, value in list(status.items())[:MOST_GROUPS] if isinstance(value, dict)]
    columns = {"pg_id": array("q", [integer(key) for key, _ in rows])}
    for name in ("enqueued", "started", "completed"):
        columns[name] = array("q", [integer(value.get(f"last_{name}_collective")) for _, value in rows])
    return {name: column_bytes(column) for name, column in columns.items()}


def _written_at(at: float | None, created_ns: array[int]) -> float | None:
    """Return the file's modification time if the dump can have been written then: not before, nor long after, an entry."""
    if at is None or not created_ns or max(created_ns) < 0:
        return at
    age_seconds = at - max(created_ns) / 1e9
    return at if -1.0 <= age_seconds <= DUMPED_WITHIN_SECONDS else None


def _first(entry: Entry, names: tuple[str, ...]) -> object:
    return next((entry[name] for name in names if name in entry), None)
