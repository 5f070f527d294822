"""Events in a kernel log and in a job's log."""

from __future__ import annotations

from typing import Annotated

from collectors.records.processes import Frame
from collectors.records.record import FEW, Instant, Integer, Members, Name, Real, Record, Text


class KernelEvent(Record, frozen=True, kw_only=True, tag="kernel_event"):
    """One event of the kernel's log."""

    event: Name  # xid sxid off_bus aer mlx5 oom_kill soft_lockup hung_task segfault link_down link_up pcie_power gpu_identity…
    text: Text = ""
    code: Integer | None = None  # Xid or SXid number
    pci: Name | None = None  # normalised "0000:9b:00" (domain:bus:device, lower case)
    gpu_uuid: Name | None = None
    pid: Integer | None = None
    process: Name | None = None
    severity: Name | None = None  # the line's own word: "fatal", "nonfatal", "link fatal", "corrected"…
    unit: Name | None = None  # NVLink 5 sub-component: "RLW_RXPIPE", "NETIR_LINK_EVT"…
    link: Integer | None = None
    status: Annotated[tuple[Integer, ...], FEW] = ()  # NVLink 5 registers: intrinfo, error status, debug data…
    device: Name | None = None  # "mlx5_0", "ib6", "nvidia-nvswitch3"
    seconds: Real | None = None  # how long it was stuck or blocked
    repeats: Integer = 1  # the same event, folded by the reader ("message repeated n times")
    yearless_at: Instant | None = (
        None  # seconds since 1 January: syslog has no year; with `at`, it is assumed by stamps beside it, or the file's time
    )


OF_SERVICES = ("HTTP_", "CURLE_", "SERVICE_", "STORE_")
"""What codes of log events begin with that are answers and failures of services outside of the job."""


ACCOUNT = "account"
"""The event of an error that a person reports, and no line of a program shows."""
WHOLE_TEXT = "whole_text"
"""The event that holds a text of which no rule uses a line, in its ``message``."""
UNIT_STARTED = "unit_started"
ENGINE_DIED = "engine_died"  # a server's front reports it of the process that computes
"""The event of a daemon that systemd started after its end."""


class LogEvent(Record, frozen=True, kw_only=True, tag="log_event"):
    """One event of a job's log: a traceback, a watchdog's timeout, an exit."""

    event: Name  # traceback watchdog_timeout watchdog_abort exit torchrun_failure oom cuda_error connection_closed nccl_error…
    # Of a collective, with its group and sequence where the line gives them:
    #   collective_behind      `ranks` have finished `last_completed` and not joined `sequence`; both None: never joined any
    #   collective_unfinished  `ranks` have joined `sequence` and not finished it
    #   collective_mismatch    `ranks` call `operation` at `sequence`, where others call another: one event an operation
    # Of the network: network_error  the card or port `device` of this node reports `code`; `peer`: it only lost that one
    # Of no program: account  a person reports the error `code`, in a text of which no line shows one
    # Of systemd: unit_started  the daemon `operation` runs again; what it said of an end before is left out
    # Of no line: whole_text  a text of which no rule uses a line, in `message`
    # Of a pod: pod_waits  it has no place (or its container cannot be made: `operation` "start"); pod_started  it has now
    text: Text = ""
    exception: Text | None = None  # "RuntimeError"
    message: Text | None = None
    frames: Annotated[tuple[Frame, ...], FEW] = ()  # innermost first, as everywhere
    exit_code: Integer | None = None
    signal: Integer | None = None
    pid: Integer | None = None
    local_rank: Integer | None = None
    group: Name | None = None
    sequence: Integer | None = None
    operation: Name | None = None
    elapsed_ms: Integer | None = None
    timeout_ms: Integer | None = None
    last_enqueued: Integer | None = None
    last_completed: Integer | None = None
    peer: Name | None = None  # "10.0.0.7:4242"
    ranks: Members | None = None  # whom the line is about, where that is not its writer
    group_rank: Integer | None = None  # its writer's rank inside `group`, where no rank of the job is given
    device: Name | None = None  # "mlx5_0"; "mlx5_0:1" with its port
    code: Name | None = None  # the error's own number or name: "802", "EI0006", "12"
    first: bool | None = None  # by the launcher: this one failed first
