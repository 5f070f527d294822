"""Processes: their stacks, their states, and where they run."""

from __future__ import annotations

import msgspec

from collectors.records.record import Members, Record


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
    parent_pid: int | None = None
    started_at: float | None = None  # UTC seconds
    cpu_seconds: float | None = None  # user and system, since its start
    exit_code: int | None = None  # of a process that has ended (state X or Z)
    signal: int | None = None  # that ended it
    oom_kills_total: int | None = None  # that its node's kernel has made since boot, when this was read


class Placement(Record, frozen=True, kw_only=True, tag="placement"):
    """Which node each rank runs on: ``nodes[i]`` hosts ``ranks[i]``. From a hosts file, a hostlist or a live agent."""

    ranks: Members | None = None
    nodes: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    world_size: int | None = None
    # What follows has, like ``nodes``, one value a rank, or is empty.
    local_ranks: tuple[int, ...] = ()
    roles: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()  # GPU UUID, or its index on the node
    started_ats: tuple[float, ...] = ()  # UTC seconds
    launcher: str = ""  # torchrun slurm kubernetes ray mpi
    labels: dict[str, str] = {}  # of the allow-list, the same for all these ranks: SLURM_JOB_ID, POD_NAME…
