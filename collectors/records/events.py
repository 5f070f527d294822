"""Events in a kernel log and in a job's log."""

from __future__ import annotations

from collectors.records.processes import Frame
from collectors.records.record import Members, Record


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
    # Of a collective, with its group and sequence where the line gives them:
    #   collective_behind      `ranks` have finished `last_completed` and not joined `sequence`; both None: never joined any
    #   collective_unfinished  `ranks` have joined `sequence` and not finished it
    #   collective_mismatch    `ranks` call `operation` at `sequence`, where others call another: one event an operation
    # Of the network: network_error  the card or port `device` of this node reports `code`; `peer`: it only lost that one
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
    ranks: Members | None = None  # whom the line is about, where that is not its writer
    group_rank: int | None = None  # its writer's rank inside `group`, where no rank of the job is given
    device: str | None = None  # "mlx5_0"; "mlx5_0:1" with its port
    code: str | None = None  # the error's own number or name: "802", "EI0006", "12"
    first: bool | None = None  # by the launcher: this one failed first
