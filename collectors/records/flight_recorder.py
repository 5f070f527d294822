"""One rank's flight-recorder dump: a record with columns."""

from __future__ import annotations

import msgspec

from collectors.records.record import Members, Record

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


class Group(msgspec.Struct, frozen=True):
    """A process group as one rank's dump describes it. ``members`` None: the dump does not list them (gloo)."""

    name: str
    description: str = ""
    members: Members | None = None


class FlightRecorderDump(Record, frozen=True, kw_only=True, tag="flight_recorder"):
    """One rank's PyTorch Flight Recorder dump, versions 2.0 to 2.10. ``at``: the file's modification time, if trusted."""

    version: str = ""
    library_version: str = ""
    pid: int | None = None
    groups: tuple[Group, ...] = ()
    strings: tuple[str, ...] = ()
    count: int = 0
    columns: dict[str, bytes] = {}  # FLIGHT_RECORDER_COLUMNS
    pg_status: dict[str, bytes] = {}  # PG_STATUS_COLUMNS
    truncated: bool = False  # salvaged from a damaged file: later entries are missing
