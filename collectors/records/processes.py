"""Processes: their stacks, their states, and where they run."""

from __future__ import annotations

from typing import Annotated

import msgspec

from collectors.records.record import FEW, MANY, Instant, Integer, Members, Name, Real, Record, Text, WorldSize

BESIDE = "beside"  # the source of stopped processes that are no rank: an agent that was asked for stacks reports them
MOST_LABELS = 64  # of the agent's allow-list, which has fewer
LabelName = Annotated[str, msgspec.Meta(max_length=256)]
LabelValue = Annotated[str, msgspec.Meta(max_length=1_024)]  # the agent cuts at 512 bytes


class Frame(msgspec.Struct, frozen=True):
    """One stack frame; ``file`` as the tool printed it, ``line`` 0 where it has none (C frames)."""

    function: Text
    file: Text = ""
    line: Integer = 0


class Hop(msgspec.Struct, frozen=True, kw_only=True):
    """One connection in a chain of waits, and the process at its other end; ``pid`` None: not seen from this node."""

    local: Name = ""  # "10.0.0.1:4242", or a unix socket's path
    remote: Name = ""
    state: Name = ""  # of the connection: established, syn_sent, close_wait…
    accepted: bool = True  # False: it is in the listener's queue still
    pid: Integer | None = None
    command: Name = ""
    process_state: Name = ""  # ps's letter
    wait_channel: Name | None = None
    rank: Integer | None = None  # whose process that is, or whose child
    job: Name | None = None
    frames: Annotated[tuple[Frame, ...], FEW] = ()  # of its main thread, innermost first


class SocketWait(msgspec.Struct, frozen=True, kw_only=True):
    """A socket that a thread waits on, and the hops from there.

    ``call``: the system call that it is blocked in; empty: it is blocked elsewhere, and its process has this connection. Without
    hops no other end is known: it listens, or it is no main thread.
    """

    call: Name = ""
    hops: Annotated[tuple[Hop, ...], FEW] = ()


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """One thread of a process; frames innermost first. ``sockets``: what an agent saw it wait on."""

    frames: Annotated[tuple[Frame, ...], FEW] = ()
    name: Name | None = None
    os_thread_id: Integer | None = None
    active: bool | None = None
    owns_gil: bool | None = None
    main: bool = False
    sockets: Annotated[tuple[SocketWait, ...], FEW] = ()


class StackDump(Record, frozen=True, kw_only=True, tag="stacks"):
    """The stacks of one process, by py-spy, faulthandler or gdb."""

    tool: Name = ""
    pid: Integer | None = None
    parent_pid: Integer | None = None
    command: Text = ""
    threads: Annotated[tuple[Thread, ...], FEW] = ()


class StackShare(msgspec.Struct, frozen=True, kw_only=True):
    """One stack, innermost frame first, and in how many samples the thread had it."""

    frames: Annotated[tuple[Frame, ...], FEW] = ()
    samples: Integer = 0


class Profile(Record, frozen=True, kw_only=True, tag="profile"):
    """Where the main thread of a process spends its time: its stack at random instants until ``at``, by a sampling profiler.

    ``samples``: of all stacks together, those that are too rare to be listed included.
    """

    pid: Integer | None = None
    seconds: Real = 0.0  # over which it was sampled
    samples: Integer = 0
    stacks: Annotated[tuple[StackShare, ...], FEW] = ()


class ProcessState(Record, frozen=True, kw_only=True, tag="process"):
    """One row of a process table. ``state`` is ps's letter: R, S, D, T, t, Z, X, I."""

    pid: Integer
    state: Name = ""
    wait_channel: Name | None = None
    elapsed_seconds: Real | None = None
    command: Text = ""
    parent_pid: Integer | None = None
    started_at: Instant | None = None  # UTC seconds
    cpu_seconds: Real | None = None  # user and system, since its start
    exit_code: Integer | None = None  # of a process that has ended (state X or Z)
    signal: Integer | None = None  # that ended it
    voluntary_switches: Integer | None = None  # how often its main thread has waited since its start
    oom_kills_total: Integer | None = None  # that its node's kernel has made since boot, when this was read
    resident_bytes: Integer | None = None
    connections: Annotated[tuple[Name, ...], FEW] = ()  # to other nodes, as "10.0.0.1:4242>10.0.0.2:5000"


class Placement(Record, frozen=True, kw_only=True, tag="placement"):
    """Which node each rank runs on: ``nodes[i]`` hosts ``ranks[i]``. From a hosts file, a hostlist or a live agent."""

    ranks: Members | None = None
    nodes: Annotated[tuple[Name, ...], MANY] = ()
    pids: Annotated[tuple[Integer, ...], MANY] = ()
    world_size: WorldSize | None = None  # the same for all these ranks
    # What follows has, like ``nodes``, one value a rank, or is empty.
    local_ranks: Annotated[tuple[Integer, ...], MANY] = ()
    roles: Annotated[tuple[Name, ...], MANY] = ()
    devices: Annotated[tuple[Name, ...], MANY] = ()  # GPU UUID, or its index on the node
    started_ats: Annotated[tuple[Instant, ...], MANY] = ()  # UTC seconds
    world_sizes: Annotated[tuple[WorldSize, ...], MANY] = ()  # of each one's role, where roles differ; 0: unknown
    launcher: Name = ""  # torchrun slurm kubernetes ray mpi
    # Of the allow-list, the same for all these ranks: SLURM_JOB_ID, POD_NAME…
    labels: Annotated[dict[LabelName, LabelValue], msgspec.Meta(max_length=MOST_LABELS)] = {}
