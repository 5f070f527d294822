"""The record vocabulary: one immutable reading by a collector or a reader.

Every record has where it came from (``source``), when (``at``, UTC seconds, where the source has it) and, where known,
whose it is (node, job, attempt, rank). What comes by the thousand is one record with *columns*: raw little-endian bytes
under a name, so that a dump of 2,000 collectives costs no object per collective and numpy can look at it without a copy.

Grow, never retype: a new field is optional, a changed meaning gets a new name, an unknown kind is kept and skipped.
"""

from collectors.records.agent_reports import CollectorReport, CommandResult, Coverage
from collectors.records.collectives import (
    COUNTED,
    HASH_COLUMNS,
    OP_COLUMNS,
    OWN_COLUMNS,
    RING_COLUMNS,
    STEP_COLUMNS,
    TIMING_COLUMNS,
    CollectiveTimings,
    OpTimings,
    RasCommunicator,
    RasPeerDead,
    RasRank,
    Ring,
    Steps,
)
from collectors.records.events import ACCOUNT, ENGINE_DIED, OF_SERVICES, UNIT_STARTED, WHOLE_TEXT, KernelEvent, LogEvent
from collectors.records.flight_recorder import (
    FLIGHT_RECORDER_COLUMNS,
    PG_STATUS_COLUMNS,
    STATES,
    FlightRecorderDump,
    Group,
)
from collectors.records.metrics import NOT_READ, Device, DeviceState, Samples, pci_address
from collectors.records.processes import (
    BESIDE,
    Frame,
    Hop,
    Placement,
    ProcessState,
    Profile,
    SocketWait,
    StackDump,
    StackShare,
    Thread,
)
from collectors.records.record import (
    ARRAY_CODES,
    DIRECTORY,
    Damaged,
    Members,
    Outcome,
    Record,
    Unread,
    column_bytes,
    directory_sender,
    is_directory,
    of_sender,
)
from collectors.records.role_states import RoleStanding, RoleState
from collectors.records.straggler_reports import STRAGGLER_COLUMNS, StragglerReports

AnyRecord = (
    FlightRecorderDump
    | StackDump
    | Profile
    | ProcessState
    | KernelEvent
    | LogEvent
    | RasCommunicator
    | RasPeerDead
    | Placement
    | RoleState
    | Samples
    | Device
    | DeviceState
    | Ring
    | Steps
    | CollectiveTimings
    | OpTimings
    | StragglerReports
    | Coverage
    | CommandResult
    | Unread
)
"""Every kind of record; the block codec and ``faulthound read`` know exactly these."""

__all__ = [
    "ACCOUNT",
    "ARRAY_CODES",
    "BESIDE",
    "COUNTED",
    "DIRECTORY",
    "ENGINE_DIED",
    "FLIGHT_RECORDER_COLUMNS",
    "HASH_COLUMNS",
    "NOT_READ",
    "OF_SERVICES",
    "OP_COLUMNS",
    "OWN_COLUMNS",
    "PG_STATUS_COLUMNS",
    "RING_COLUMNS",
    "STATES",
    "STEP_COLUMNS",
    "STRAGGLER_COLUMNS",
    "TIMING_COLUMNS",
    "UNIT_STARTED",
    "WHOLE_TEXT",
    "AnyRecord",
    "CollectiveTimings",
    "CollectorReport",
    "CommandResult",
    "Coverage",
    "Damaged",
    "Device",
    "DeviceState",
    "FlightRecorderDump",
    "Frame",
    "Group",
    "Hop",
    "KernelEvent",
    "LogEvent",
    "Members",
    "OpTimings",
    "Outcome",
    "Placement",
    "ProcessState",
    "Profile",
    "RasCommunicator",
    "RasPeerDead",
    "RasRank",
    "Record",
    "Ring",
    "RoleStanding",
    "RoleState",
    "Samples",
    "SocketWait",
    "StackDump",
    "StackShare",
    "Steps",
    "StragglerReports",
    "Thread",
    "Unread",
    "column_bytes",
    "directory_sender",
    "is_directory",
    "of_sender",
    "pci_address",
]
