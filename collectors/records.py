"""The record vocabulary: one immutable reading by a collector or a reader.

Every record says where it came from (``source``), when (``at``, UTC seconds, where the source has it) and, where known,
whose it is (node, job, attempt, rank). What comes by the thousand is one record with *columns*: raw little-endian bytes
under a name, so that a dump of 2,000 collectives costs no object per collective and numpy can look at it without a copy.

Grow, never retype: a new field is optional, a changed meaning gets a new name, an unknown kind is kept and skipped.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

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


class Members:
    """The member ranks of a process group, sorted as the source gave them, as int32 little-endian bytes.

    One object is shared by every group of every dump that has the same members (``intern``): the world group of a
    16,384-rank job would otherwise be repeated in each of its 16,384 dumps. The block codec writes each distinct value
    once.
    """

    __slots__ = ("data",)
    _interned: dict[bytes, Members] = {}

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, ranks: Iterable[int]) -> Members:
        """Intern the members given as integers."""
        from array import array

        return cls.intern(array("i", ranks).tobytes())

    @classmethod
    def intern(cls, data: bytes) -> Members:
        """Return the one shared object for these bytes."""
        found = cls._interned.get(data)
        if found is None:
            found = cls._interned[data] = cls(data)
        return found

    def ranks(self) -> tuple[int, ...]:
        """Return the members as integers, in the source's order."""
        return tuple(memoryview(self.data).cast("i"))

    def __len__(self) -> int:
        return len(self.data) // 4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Members) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Members({list(self.ranks()[:8])}{'…' if len(self) > 8 else ''})"


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What every record has. ``at`` and ``received_at`` are UTC seconds since 1970, ``monotonic_at`` since boot."""

    source: str = ""  # "dumps/_dump_7", "dumps.tar:a/b.json", "kern.log:812": path, member, line
    at: float | None = None
    monotonic_at: float | None = None
    boot_id: str | None = None
    received_at: float | None = None
    node: str | None = None
    job: str | None = None
    attempt: int | None = None
    rank: int | None = None
    role: str | None = None
    phase: str | None = None
    step: int | None = None


class Group(msgspec.Struct, frozen=True):
    """A process group as one rank's dump describes it. ``members`` None: the dump does not say (gloo)."""

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


class Frame(msgspec.Struct, frozen=True):
    """One stack frame; ``file`` as the tool printed it, ``line`` 0 where it has none (C frames)."""

    function: str
    file: str = ""
    line: int = 0


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a process; frames innermost first."""

    frames: tuple[Frame, ...] = ()
    name: str | None = None
    os_thread_id: int | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    main: bool = False


class StackDump(Record, frozen=True, kw_only=True, tag="stacks"):
    """The stacks of one process, by py-spy, faulthandler or gdb."""

    tool: str = ""
    pid: int | None = None
    parent_pid: int | None = None
    command: str = ""
    threads: tuple[Thread, ...] = ()


class ProcessState(Record, frozen=True, kw_only=True, tag="process"):
    """One row of a process table. ``state`` is ps's letter: R, S, D, T, t, Z, X, I."""

    pid: int
    state: str = ""
    wait_channel: str | None = None
    elapsed_seconds: float | None = None
    command: str = ""


class KernelEvent(Record, frozen=True, kw_only=True, tag="kernel_event"):
    """One event of the kernel's log."""

    event: str  # xid sxid off_bus aer mlx5 oom_kill soft_lockup hung_task segfault link_down link_up pcie_power gpu_identity…
    text: str = ""
    code: int | None = None  # Xid or SXid number
    pci: str | None = None  # normalised "0000:9b:00" (domain:bus:device, lower case)
    gpu_uuid: str | None = None
    pid: int | None = None
    process: str | None = None
    severity: str | None = None  # the line's own word: "fatal", "nonfatal", "link fatal", "corrected"…
    unit: str | None = None  # NVLink 5 sub-component: "RLW_RXPIPE", "NETIR_LINK_EVT"…
    link: int | None = None
    status: tuple[int, ...] = ()  # NVLink 5 registers: intrinfo, error status, debug data…
    device: str | None = None  # "mlx5_0", "ib6", "nvidia-nvswitch3"
    seconds: float | None = None  # how long it was stuck or blocked
    repeats: int = 1  # the same event, folded by the reader ("message repeated n times")
    yearless_at: float | None = None  # seconds since 1 January: syslog has no year, and nothing dated the file


class LogEvent(Record, frozen=True, kw_only=True, tag="log_event"):
    """One event of a job's log: a traceback, a watchdog's timeout, an exit."""

    event: str  # traceback watchdog_timeout watchdog_abort exit torchrun_failure oom cuda_error connection_closed nccl_error…
    text: str = ""
    exception: str | None = None  # "RuntimeError"
    message: str | None = None
    frames: tuple[Frame, ...] = ()  # innermost first, as everywhere
    exit_code: int | None = None
    signal: int | None = None
    pid: int | None = None
    local_rank: int | None = None
    group: str | None = None
    sequence: int | None = None
    operation: str | None = None
    elapsed_ms: int | None = None
    timeout_ms: int | None = None
    last_enqueued: int | None = None
    last_completed: int | None = None
    peer: str | None = None  # "10.0.0.7:4242"
    first: bool | None = None  # the launcher says: this one failed first


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a communicator as NCCL RAS sees it; ``rank`` is the communicator's own numbering."""

    rank: int
    host: str = ""
    pid: int | None = None
    gpu: int | None = None
    init_state: int | None = None
    async_error: int | None = None
    aborted: bool = False
    counts: dict[str, int] = {}  # operation → launched
    missing: bool = False
    unresponsive: bool = False
    dead: bool = False


class RasCommunicator(Record, frozen=True, kw_only=True, tag="ras_communicator"):
    """One communicator in a NCCL RAS report. Identity: (hash, secondary_hash)."""

    hash: str = ""
    secondary_hash: str = ""
    size: int = 0
    status: str | None = None  # text form: RUNNING, INIT, FINALIZE, UNKNOWN/NOCOMM
    errors: str | None = None  # text form: OK, MISMATCH, INCOMPLETE
    ranks: tuple[RasRank, ...] = ()
    warnings: tuple[str, ...] = ()


class RasPeerDead(Record, frozen=True, kw_only=True, tag="ras_peer_dead"):
    """NCCL RAS lost a process: unreachable for 60 s."""

    host: str = ""
    pid: int | None = None
    gpus: tuple[int, ...] = ()


class Placement(Record, frozen=True, kw_only=True, tag="placement"):
    """Which node each rank runs on: ``nodes[i]`` hosts ``ranks[i]``. From a hosts file, a hostlist or a live agent."""

    ranks: Members | None = None
    nodes: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    world_size: int | None = None


class Unread(Record, frozen=True, kw_only=True, tag="unread"):
    """A file, or a part of one, that gave no record: never silently dropped, never guessed."""

    reason: str
    outcome: Literal["unrecognised", "damaged", "refused", "empty", "limit"] = "unrecognised"
    offset: int | None = None


AnyRecord = (
    FlightRecorderDump
    | StackDump
    | ProcessState
    | KernelEvent
    | LogEvent
    | RasCommunicator
    | RasPeerDead
    | Placement
    | Unread
)
"""Every kind of record there is; the block codec and ``faulthound read`` speak exactly these."""
