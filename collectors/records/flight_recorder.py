"""One rank's flight-recorder dump: a record with columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from collectors.records.record import FEW, MANY, Count, Integer, Members, Name, Record, Text

Columns = Annotated[dict[Name, bytes], FEW]

FLIGHT_RECORDER_COLUMNS: dict[str, str] = {
    "record_id": "<i8",  # order of recording within the rank
    "group": "<i4",  # index into strings: the process group's name
    "collective_seq": "<i8",  # per group, the same on every member: the only counter to compare across ranks
    "p2p_seq": "<i8",  # rank-local
    "op_id": "<i8",  # rank-local
    "pg_id": "<i8",  # rank-local: the key of pg_status
    "operation": "<i4",  # index into strings: "nccl:all_reduce", "nccl:send 0->3" (group-local ranks)
    "state": "<i1",  # 0 scheduled, 1 started, 2 completed
    "retired": "<i1",  # 1: the recorder no longer watches it (completed, or timed out on gloo)
    "is_p2p": "<i1",
    "created_ns": "<i8",  # UTC; -1 unset, for the three instants alike
    "started_ns": "<i8",
    "completed_ns": "<i8",
    "input_sizes": "<i4",  # index into strings: canonical text such as "[[2048,1,5120]]"
    "output_sizes": "<i4",
    "dtypes": "<i4",  # index into strings: "BFloat16" or "Float>Half" where input and output differ
    "timeout_ms": "<i8",  # -1 unset
    "frames": "<i4",  # index into strings: "function (file:line)" joined by newlines, innermost first; -1 none
}
"""Columns of ``FlightRecorderDump.columns`` and their little-endian types; all have ``count`` values."""

PG_STATUS_COLUMNS: dict[str, str] = {"pg_id": "<i8", "enqueued": "<i8", "started": "<i8", "completed": "<i8"}
"""Columns of ``FlightRecorderDump.pg_status``. Keys and values are rank-local: never compare them across ranks."""

STATES: tuple[str, ...] = ("scheduled", "started", "completed")
_WIDTHS = {"<i1": 1, "<i4": 4, "<i8": 8, "<f4": 4, "<f8": 8}


def check_columns(count: int, columns: Mapping[str, bytes], types: Mapping[str, str]) -> None:
    """Raise ``ValueError`` where a record states more rows than any of its columns has.

    A column that is missing or cut reads as unset, once a row: a count that nothing bears out would be memory for nothing.
    """
    if not count:
        return
    most = max((len(columns[name]) // _WIDTHS[kind] for name, kind in types.items() if name in columns), default=0)
    if count > most:
        raise ValueError(f"the record states {count:,} rows and its longest column has {most:,}")


class Group(msgspec.Struct, frozen=True):
    """A process group as one rank's dump describes it. ``members`` None: the dump does not list them (gloo)."""

    name: Text
    description: Text = ""
    members: Members | None = None


class FlightRecorderDump(Record, frozen=True, kw_only=True, tag="flight_recorder"):
    """One rank's PyTorch Flight Recorder dump, versions 2.0 to 2.10. ``at``: the file's modification time, if trusted."""

    version: Name = ""
    library_version: Name = ""
    pid: Integer | None = None
    groups: Annotated[tuple[Group, ...], MANY] = ()
    strings: Annotated[tuple[Text, ...], MANY] = ()
    count: Count = 0
    columns: Columns = {}  # FLIGHT_RECORDER_COLUMNS
    pg_status: Columns = {}  # PG_STATUS_COLUMNS
    truncated: bool = False  # salvaged from a damaged file: later entries are missing

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, FLIGHT_RECORDER_COLUMNS)
