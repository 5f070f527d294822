"""Events in a kernel log and in a job's log."""

from __future__ import annotations

from collectors.records.processes import Frame
from collectors.records.record import Record


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
    first: bool | None = None  # by the launcher: this one failed first
