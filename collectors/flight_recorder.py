"""A Flight Recorder document, however it was serialised, becomes one record with columns.

Nothing in the document is trusted: each column is first built the fast way, which only well-typed values survive, and
otherwise value by value, where what does not fit becomes "unset". Versions 2.0 to 2.10 differ in which fields they have.
"""

from __future__ import annotations

import marshal
import re
import sys
from array import array
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Literal

from collectors.naming import trailing_number
from collectors.readers import Input
from collectors.records import FLIGHT_RECORDER_COLUMNS, FlightRecorderDump, Group, Members, Unread

Entry = dict[str, Any]

INT64 = 1 << 63
LONGEST_TEXT = 4096  # of a name, a type or a size list: longer ones are cut
LONGEST_STACK = 1 << 16
MOST_GROUPS = 100_000
MOST_MEMBERS = 4_000_000
GROUPS_ASKED = 32  # the smallest of a rank's groups say whose dump it is
STATE_CODES = {"scheduled": 0, "started": 1, "completed": 2}
# The library version was "nccl_version" up to 2.9 and "comm_lib_version" from 2.10 on.
LIBRARY_VERSIONS = ("comm_lib_version", "nccl_version")
_P2P = re.compile(r"(?:^|:)(?:send|recv) (\d{1,7})(?:->|<-)\d")
RANKS_REMEMBERED_BYTES = 64 << 20
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
    groups = _groups(document, entries, columns["group"])
    yield FlightRecorderDump(
        source=input.source,
        at=_written_at(input.at, columns["created_ns"]),
        rank=_rank(input, groups, entries),
        node=input.node,
        version=_text(document.get("version", "")),
        library_version=next((_text(document[key]) for key in LIBRARY_VERSIONS if key in document), ""),
        groups=groups,
        strings=tuple(texts.index),
        count=len(entries),
        columns={name: _little_endian(columns[name]) for name in FLIGHT_RECORDER_COLUMNS},
        pg_status=_pg_status(document.get("pg_status")),
        truncated=truncated,
    )


def _is_dump(document: dict[Any, Any]) -> bool:
    return any(key in document for key in ("entries", "pg_config", "pg_status")) or (
        "version" in document and any(key in document for key in LIBRARY_VERSIONS)
    )


Outcome = Literal["unrecognised", "damaged", "refused", "empty", "limit"]


def unread(input: Input, reason: str, outcome: Outcome = "unrecognised", offset: int | None = None) -> Unread:
    """Say why a dump, or a part of one, was not used."""
    return Unread(source=input.source, rank=input.rank, node=input.node, reason=reason, outcome=outcome, offset=offset)


class Texts:
    """The distinct strings of one dump, in the order they first appear."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self._known: dict[str, int] = {}
        self._sizes: dict[bytes, tuple[int, int, int]] = {}

    def add(self, text: str) -> int:
        """Return the index of a string."""
        return self.index.setdefault(text, len(self.index))

    def of(self, value: object) -> int:
        """Return the index of a name, whatever its type. Only strings are looked up: hashing may cost anything."""
        if type(value) is not str:
            return self.add(_text(value))
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = self.add(_text(value))
        return found

    def shapes(self, entry: Entry) -> tuple[int, int, int]:
        """Return the indices of an entry's input sizes, output sizes and types; few differ, so they are looked up."""
        get = entry.get
        parts = (get("input_sizes"), get("output_sizes"), get("input_dtypes"), get("output_dtypes"))
        try:
            key = marshal.dumps(parts, 2)  # version 2 writes no references: equal values give equal bytes
        except ValueError:
            return self.add(""), self.add(""), self.add("")
        found = self._sizes.get(key)
        if found is None:
            found = self.add(_sizes(parts[0])), self.add(_sizes(parts[1])), self.add(_dtypes(parts[2], parts[3]))
            self._sizes[key] = found
        return found


def _text(value: object, most: int = LONGEST_TEXT) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        try:
            value = str(value)
        except (ValueError, RecursionError):  # an integer of thousands of digits, or lists nested as deep
            return "?"
    if len(value) > most:
        value = value[:most] + "…"
    # A pickle may hold half a surrogate pair, which no UTF-8 can carry.
    return value if value.isascii() else value.encode(errors="replace").decode()


def _sizes(value: object) -> str:
    return _text(value).replace(" ", "")


def _dtypes(given: object, returned: object) -> str:
    first, second = (_type_list(value) for value in (given, returned))
    return first if first == second or not second else f"{first}>{second}"


def _type_list(value: object) -> str:
    if not isinstance(value, (list, tuple)):
        return _text(value)
    distinct = list(dict.fromkeys(map(_text, value)))
    return ",".join(distinct)[:LONGEST_TEXT]


def integer(value: object) -> int:
    """Return an integer that fits eight bytes, or -1: strings of digits and whole floats count."""
    if isinstance(value, str):
        text = value.strip()
        value = int(text) if len(text) < 20 and text.lstrip("-").isdecimal() else None
    if isinstance(value, float):
        value = int(value) if value.is_integer() and abs(value) < INT64 else None
    return int(value) if isinstance(value, int) and -INT64 <= value < INT64 else -1


def _integers(entries: list[Entry], key: str, *others: str) -> array[int]:
    try:
        return array("q", map(itemgetter(key), entries))
    except (KeyError, TypeError, OverflowError):
        return array("q", [integer(_first(entry, key, *others)) for entry in entries])


def _first(entry: Entry, *keys: str) -> object:
    return next((entry[key] for key in keys if key in entry), None)


def _instants(entries: list[Entry], key: str) -> array[int]:
    """Return UTC nanoseconds; None, 0 (as JSON writes None) and negative values are -1."""
    try:
        column = array("q", [entry.get(key) or -1 for entry in entries])
    except (TypeError, OverflowError):
        column = array("q", [integer(entry.get(key)) or -1 for entry in entries])
    return column if not column or min(column) >= -1 else array("q", [max(value, -1) for value in column])


def _flags(entries: list[Entry], key: str, otherwise: Callable[[Entry], bool]) -> array[int]:
    try:
        column = array("b", map(itemgetter(key), entries))
    except (KeyError, TypeError, OverflowError):
        return array("b", [_flag(entry[key]) if key in entry else otherwise(entry) for entry in entries])
    return column if not column or (min(column) >= 0 and max(column) <= 1) else array("b", map(bool, column))


def _flag(value: object) -> bool:
    return value.lower() in ("true", "1") if isinstance(value, str) else value is True or value == 1


def _never(_: Entry) -> bool:
    return False


def _named_p2p(entry: Entry) -> bool:
    return _P2P.search(_text(entry.get("profiling_name"))) is not None


def _columns(entries: list[Entry], texts: Texts) -> dict[str, array[int]]:
    shapes = list(map(texts.shapes, entries))
    return {
        "record_id": _integers(entries, "record_id", "id"),
        "group": array("i", [texts.of(_process_group(entry)[0]) for entry in entries]),
        "collective_seq": _integers(entries, "collective_seq_id", "seq_id"),
        "p2p_seq": _integers(entries, "p2p_seq_id"),
        "op_id": _integers(entries, "op_id"),
        "pg_id": _integers(entries, "pg_id"),
        "operation": array("i", [texts.of(entry.get("profiling_name")) for entry in entries]),
        "state": array("b", map(_state, entries)),
        "retired": _flags(entries, "retired", _never),
        "is_p2p": _flags(entries, "is_p2p", _named_p2p),
        "created_ns": _instants(entries, "time_created_ns"),
        "started_ns": _instants(entries, "time_discovered_started_ns"),
        "completed_ns": _instants(entries, "time_discovered_completed_ns"),
        "input_sizes": array("i", [shape[0] for shape in shapes]),
        "output_sizes": array("i", [shape[1] for shape in shapes]),
        "dtypes": array("i", [shape[2] for shape in shapes]),
        "timeout_ms": _integers(entries, "timeout_ms"),
        "frames": _frames(entries, texts),
    }


def _state(entry: Entry) -> int:
    state = entry.get("state")
    return STATE_CODES.get(state, 0) if type(state) is str else 0


def _process_group(entry: Entry) -> tuple[object, object]:
    """Return name and description: a pair in every version seen; a lone value counts as the name."""
    value = entry.get("process_group")
    if isinstance(value, (tuple, list)):
        return (value[0], value[1]) if len(value) > 1 else (value[0] if value else None, "")
    return (entry.get("pg_id") if value is None else value), ""


def _frames(entries: list[Entry], texts: Texts) -> array[int]:
    # torch writes each distinct frame once and refers to it afterwards, so the objects' identities name a stack.
    known: dict[tuple[int, ...], int] = {}

    def one(frames: object) -> int:
        if not frames or not isinstance(frames, list):
            return -1
        key = tuple(map(id, frames))
        found = known.get(key)
        if found is None:
            found = known[key] = texts.add(_text("\n".join(_frame(frame) for frame in frames[:1000]), LONGEST_STACK))
        return found

    return array("i", [one(entry.get("frames")) for entry in entries])


def _frame(frame: object) -> str:
    if not isinstance(frame, dict):
        return _text(frame)
    return f"{_text(frame.get('name'))} ({_text(frame.get('filename'))}:{_text(frame.get('line'))})"


class _RankTexts:
    """The texts that ``ranks`` fields held, parsed: the world's is 104 kB in each of a 16,384-rank job's dumps."""

    def __init__(self) -> None:
        self._known: dict[str, Members | None] = {}
        self._held = 0

    def members(self, text: str) -> Members | None:
        if text not in self._known:
            if self._held > RANKS_REMEMBERED_BYTES:
                self._known.clear()
                self._held = 0
            self._held += len(text)
            self._known[text] = _parse_ranks(text)
        return self._known[text]


_rank_texts = _RankTexts()


def members(value: object) -> Members | None:
    """Return the ranks that "[0, 1]" names, one object for equal lists; None: it names none."""
    if isinstance(value, (list, tuple)):
        value = ",".join(map(_text, value[:MOST_MEMBERS]))
    return _rank_texts.members(value) if isinstance(value, str) else None


def _parse_ranks(text: str) -> Members | None:
    inner = text.strip().removeprefix("[").removesuffix("]")
    if not inner.strip():
        return None
    try:
        ranks = array("i", map(int, inner.split(",")))
    except (ValueError, OverflowError):
        return None
    return Members.intern(_little_endian(ranks)) if min(ranks) >= 0 else None


def _groups(document: dict[Any, Any], entries: list[Entry], group_column: array[int]) -> tuple[Group, ...]:
    """Return the groups of pg_config, then those that only entries name, as all do on gloo."""
    found: dict[str, Group] = {}
    config = document.get("pg_config")
    for key, value in list(config.items())[:MOST_GROUPS] if isinstance(config, dict) else ():
        if isinstance(value, dict):
            name = _text(value.get("name", key))
            found[name] = Group(name, _text(value.get("desc")), members(value.get("ranks")))
    for entry in dict(zip(group_column, entries, strict=True)).values():
        name, description = map(_text, _process_group(entry))
        if name and name not in found and len(found) < MOST_GROUPS:
            found[name] = Group(name, description)
    return tuple(found.values())


def _pg_status(status: object) -> dict[str, bytes]:
    """Return the counters of each group; whole numbers in a pickle are strings in JSON."""
    if not isinstance(status, dict):
        return {}
    rows = [(key, value) for key, value in list(status.items())[:MOST_GROUPS] if isinstance(value, dict)]
    columns = {"pg_id": array("q", [integer(key) for key, _ in rows])}
    for name in ("enqueued", "started", "completed"):
        columns[name] = array("q", [integer(value.get(f"last_{name}_collective")) for _, value in rows])
    return {name: _little_endian(column) for name, column in columns.items()}


def _written_at(at: float | None, created_ns: array[int]) -> float | None:
    """Return the file's modification time if the dump can have been written then: not before, nor long after, an entry."""
    if at is None or not created_ns or max(created_ns) < 0:
        return at
    age_seconds = at - max(created_ns) / 1e9
    return at if -1.0 <= age_seconds <= DUMPED_WITHIN_SECONDS else None


def _rank(input: Input, groups: tuple[Group, ...], entries: list[Entry]) -> int | None:
    """Return whose dump it is: what its name says, if its groups agree; else what its content says.

    A rank's pg_config lists the groups it belongs to, and a send or receive names it by its place in its group. PyTorch
    ends every dump's name in the rank, whatever prefix the user chose; such a number counts only if all groups hold it.
    """
    smallest = sorted((group.members for group in groups if group.members), key=len)[:GROUPS_ASKED]
    if input.rank is not None and (not smallest or any(_holds(members, input.rank) for members in smallest)):
        return input.rank
    told = _told_by_sends(groups, entries)
    if len(told) == 1:
        return told.pop()
    last = trailing_number(input.source)
    if input.rank is None and last is not None and smallest and all(_holds(members, last) for members in smallest):
        return last
    common = set.intersection(*(set(members.ranks()) for members in smallest)) if smallest else set()
    return common.pop() if len(common) == 1 else input.rank


def _holds(members: Members, rank: int) -> bool:
    return rank in memoryview(members.data).cast("i")


def _told_by_sends(groups: tuple[Group, ...], entries: list[Entry]) -> set[int]:
    ranks_of = {group.name: group.members.ranks() for group in groups if group.members}
    told = set()
    for entry in entries:
        found = _P2P.search(_text(entry.get("profiling_name")))
        ranks = ranks_of.get(_text(_process_group(entry)[0]), ()) if found else ()
        if found and int(found[1]) < len(ranks):
            told.add(ranks[int(found[1])])
    return told


def _little_endian(column: array[int]) -> bytes:
    if sys.byteorder == "big":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()
