"""Flight-recorder dumps written by hand, a few entries each, so that a test shows the whole case that it judges."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from analyzers.model.window import last_activity_ns
from collectors.records import FLIGHT_RECORDER_COLUMNS, PG_STATUS_COLUMNS, FlightRecorderDump, Group, Members, Record

START_NS = 1_763_000_000_000_000_000
GAP_NS = 10_000_000  # entries are launched 10 ms apart, unless stated otherwise
SCHEDULED, STARTED, COMPLETED = 0, 1, 2
_CODES = {"<i8": "q", "<i4": "i", "<i1": "b"}
_TEXTS = ("group", "operation", "input_sizes", "output_sizes", "dtypes")


@dataclass(frozen=True)
class Entry:
    """One line of a recorder. ``at_s``: seconds after the start, else its place in the dump decides."""

    operation: str
    collective_seq: int
    group: str = "0"
    state: int = COMPLETED
    p2p_seq: int = 0
    op_id: int = 0
    is_p2p: bool = False
    retired: bool | None = None  # None: as the state says
    sizes: str = "[[8]]"
    dtypes: str = "Float"
    at_s: float | None = None
    timeout_ms: int = 600_000
    pg_id: int = 0


def call(sequence: int, state: int = COMPLETED, operation: str = "all_reduce", **more: object) -> Entry:
    """A collective of NCCL."""
    return Entry(f"nccl:{operation}", sequence, state=state, **more)  # type: ignore[arg-type]


def calls(*numbers: int, **more: object) -> tuple[Entry, ...]:
    """Collectives that ended, one a number."""
    return tuple(call(number, **more) for number in numbers)  # type: ignore[arg-type]


def transfer(text: str, number: int, state: int = SCHEDULED, **more: object) -> Entry:
    """A lone ``send 0->1`` or ``recv 1<-0``, in group-local ranks."""
    settings = {"collective_seq": 0, "p2p_seq": number, "is_p2p": True, "state": state, **more}
    return Entry(f"nccl:{text}", **settings)  # type: ignore[arg-type]


def group(name: str, *members: int, description: str = "") -> Group:
    """A communicator whose members are listed; without any, nobody lists them (gloo)."""
    return Group(name, description, Members.of(members) if members else None)


def dump(
    rank: int,
    entries: Iterable[Entry],
    groups: Iterable[Group] = (),
    status: Mapping[int, tuple[int, int]] | None = None,
    **more: object,
) -> FlightRecorderDump:
    """One rank's dump. ``status``: rank-local group number → last work (enqueued, completed)."""
    lines = list(entries)
    strings = sorted({getattr(line, _field(name)) for line in lines for name in _TEXTS})
    columns = {name: _packed(kind, _column(name, lines, strings)) for name, kind in FLIGHT_RECORDER_COLUMNS.items()}
    rows = [(key, enqueued, -1, completed) for key, (enqueued, completed) in (status or {}).items()]
    pg_status = {
        name: _packed(kind, [row[place] for row in rows])
        for place, (name, kind) in enumerate(PG_STATUS_COLUMNS.items())
    }
    known = {"source": f"_dump_{rank}", "version": "2.10", "rank": rank, "count": len(lines), "strings": tuple(strings)}
    return FlightRecorderDump(
        **{**known, "groups": tuple(groups), "columns": columns, "pg_status": pg_status if rows else {}, **more}  # type: ignore[arg-type]
    )


def dated(records: Iterable[Record]) -> list[Record]:
    """Return these with every dump taken five minutes after the newest entry of all: nothing moves, and it is known."""
    found = list(records)
    newest = max((last_activity_ns(one) for one in found if isinstance(one, FlightRecorderDump)), default=0)
    at = newest / 1e9 + 300.0
    return [replace(one, at=at) if isinstance(one, FlightRecorderDump) else one for one in found]


def _field(column: str) -> str:
    return "sizes" if column in ("input_sizes", "output_sizes") else column


def _packed(kind: str, values: list[int]) -> bytes:
    return array(_CODES[kind], values).tobytes()


def _column(name: str, lines: list[Entry], strings: list[str]) -> list[int]:
    if name in _TEXTS:
        return [strings.index(getattr(line, _field(name))) for line in lines]
    if name == "record_id":
        return list(range(len(lines)))
    if name.endswith("_ns"):
        return [_instant(name, place, line) for place, line in enumerate(lines)]
    if name == "retired":
        return [int(line.state == COMPLETED if line.retired is None else line.retired) for line in lines]
    if name == "frames":
        return [-1] * len(lines)
    return [int(getattr(line, name)) for line in lines]


def _instant(name: str, place: int, line: Entry) -> int:
    created = START_NS + (place * GAP_NS if line.at_s is None else round(line.at_s * 1e9))
    wanted = {"created_ns": SCHEDULED, "started_ns": STARTED, "completed_ns": COMPLETED}[name]
    return created + wanted * 1_000_000 if line.state >= wanted else -1
