"""Collectives as seen from outside the recorder: the probe's ring, NCCL Inspector's and RAS's, profilers' traces, steps."""

from __future__ import annotations

from typing import Annotated

import msgspec

from collectors.records.flight_recorder import Columns, Group, check_columns
from collectors.records.record import FEW, MANY, Count, Integer, Name, Record, Text, WorldSize

RING_COLUMNS: dict[str, str] = {
    "group": "<i4",  # index into strings: the process group's name, as the flight recorder has it
    "collective_seq": "<i8",  # per group, the same on every member; 0 for a send or receive
    "p2p_seq": "<i8",  # the k-th operation of this kind of the ordered pair, counted from 1; 0 for a collective
    "operation": "<i4",  # index into strings: "all_reduce", "send 0->3" (group-local ranks)
    "bytes": "<i8",
    "entered_ns": "<i8",  # UTC
    "left_ns": "<i8",  # -1: still inside
    "step": "<i8",  # -1 unknown
    "phase": "<i4",  # index into strings; -1 none
    "failed": "<i1",  # 1: it was left by an exception
}
"""Columns of ``Ring.columns`` and their little-endian types; all have ``count`` values."""

HASH_COLUMNS: dict[str, str] = {
    "number": "<i8",  # of the hash, counted from 1 by its process
    "step": "<i8",
    "ended_ns": "<i8",  # UTC of the end of the step
    "hash": "<i8",  # of all bits of the parameters that this rank holds, after the step
}
"""Columns of ``Ring.hashes`` and their little-endian types; all have ``hashed`` values."""

OWN_COLUMNS: dict[str, str] = {
    "step": "<i8",
    "ended_ns": "<i8",  # UTC of the end of the step
    "seconds": "<f8",  # since the end of the step before
    "own_seconds": "<f8",  # of these, those in which its thread was not blocked in communication
}
"""Columns of ``Ring.own`` and their little-endian types; all have ``timed`` values."""

STEP_COLUMNS: dict[str, str] = {
    "step": "<i8",
    "at": "<f8",  # UTC seconds of the end of the step, or of the line that reports it
    "seconds": "<f8",  # NaN, here and below: not reported
    "loss": "<f8",
    "gradient_norm": "<f8",
    "tokens_per_second": "<f8",
    "samples_per_second": "<f8",  # or images, examples
    "tflops": "<f8",
    "skipped": "<i1",  # 1: the optimizer skipped it (fp16 overflow)
    # What was reported as NaN, which NaN above does not show: 1 the loss, 2 the gradient norm, 3 both;
    # 8: with that norm no loss scale can be lowered; 16: the loss stands as null, JSON's form of NaN;
    # 32: the loss is that of some of several steps, and that of the others was NaN.
    "nan": "<i1",
}
"""Columns of ``Steps.columns`` and their little-endian types; all have ``count`` values."""

TIMING_COLUMNS: dict[str, str] = {
    "operation": "<i4",  # index into strings: "AllReduce"
    "sequence": "<i8",  # joins across ranks with the communicator and the operation
    "bytes": "<i8",
    "seconds": "<f8",
    "bus_bytes_per_second": "<f8",
    "started_ns": "<i8",  # UTC of the node's clock; -1 where the plugin is not verbose
    "at": "<f8",  # UTC seconds at which the plugin wrote it
}
"""Columns of ``CollectiveTimings.columns`` and their little-endian types; all have ``count`` values."""


class Ring(Record, frozen=True, kw_only=True, tag="ring"):
    """One rank's ring of the probe: what it entered and left, on the host. It outlives a stopped or killed process."""

    version: Integer = 1
    pid: Integer | None = None
    backend: Name = ""  # "gloo", "nccl"
    groups: Annotated[tuple[Group, ...], MANY] = ()
    strings: Annotated[tuple[Text, ...], MANY] = ()
    count: Count = 0
    columns: Columns = {}  # RING_COLUMNS
    overwritten: Count = 0  # entries that the ring had no room for any more
    swallowed: Count = 0  # failures inside the probe, which the job did not notice
    # Process groups with collectives that Python does not see, such as those of DDP's buckets.
    unseen_groups: Annotated[tuple[Name, ...], FEW] = ()
    ended: bool = False  # its process was gone when it was read
    undated: bool = False  # a file, which does not say when it was copied: `at` is when its newest entry was made
    hashed: Count = 0
    hashes: Columns = {}  # HASH_COLUMNS, where the probe hashes parameters
    timed: Count = 0
    own: Columns = {}  # OWN_COLUMNS, of the newest steps where waiting blocks the host, as gloo's does

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, RING_COLUMNS)
        check_columns(self.hashed, self.hashes, HASH_COLUMNS)
        check_columns(self.timed, self.own, OWN_COLUMNS)


COUNTED = " lines"  # behind a layout's name: its lines give no step numbers, and are counted


class Steps(Record, frozen=True, kw_only=True, tag="steps"):
    """Training steps that a log or the probe reports."""

    told_by: Name = ""  # megatron torchtitan verl jsonl plain bar probe, or one + COUNTED
    count: Count = 0
    columns: Columns = {}  # STEP_COLUMNS

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, STEP_COLUMNS)


class CollectiveTimings(Record, frozen=True, kw_only=True, tag="collective_timings"):
    """One rank's collectives in one communicator as NCCL Inspector measured them."""

    communicator: Name = ""
    size: WorldSize | None = None  # ranks in it
    communicator_rank: Integer | None = None  # its own numbering, not the job's
    pid: Integer | None = None
    strings: Annotated[tuple[Text, ...], MANY] = ()
    count: Count = 0
    columns: Columns = {}  # TIMING_COLUMNS
    every: Count = 1  # only sequences that this divides are in it: the agent kept these alone of
    written: Count = 0  # so many that the plugin wrote; 0: count
    timing_source: Name = ""  # kernel_gpu kernel_cpu collective_cpu: by which clock, where the plugin states it

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, TIMING_COLUMNS)


OP_COLUMNS: dict[str, str] = {
    "operation": "<i4",  # index into strings: "forward-compute", "backward-send"
    "step": "<i8",  # -1: not known
    "started": "<f8",  # seconds of the worker's own clock, from any origin; NaN: not known
    "duration": "<f8",  # in ``unit``
    "microbatch": "<i4",  # -1: none
    "chunk": "<i4",  # the virtual chunk of its stage; -1: none
    "work": "<f8",  # what the duration is in proportion to, such as tokens; NaN: not known
}
"""Columns of ``OpTimings.columns`` and their little-endian types; all have ``count`` values."""


class OpTimings(Record, frozen=True, kw_only=True, tag="op_timings"):
    """Operations of one rank. ``coordinates``: its place in the parallel dimensions, as the trace states it."""

    told_by: Name = ""  # op_trace minibatch kineto
    unit: Name = "s"  # of durations; "relative": in no known unit
    coordinates: Annotated[dict[Name, Integer], FEW] = {}  # {"pp": 1, "dp": 0}
    device_model: Name = ""  # where the trace states it: unlike devices are not compared
    strings: Annotated[tuple[Text, ...], MANY] = ()
    count: Count = 0
    columns: Columns = {}  # OP_COLUMNS

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, OP_COLUMNS)


class RasRank(msgspec.Struct, frozen=True, kw_only=True):
    """One rank of a communicator as NCCL RAS sees it; ``rank`` is the communicator's own numbering."""

    rank: Integer
    host: Name = ""
    pid: Integer | None = None
    gpu: Integer | None = None
    init_state: Integer | None = None
    async_error: Integer | None = None
    aborted: bool = False
    counts: Annotated[dict[Name, Integer], FEW] = {}  # operation → launched
    missing: bool = False
    unresponsive: bool = False
    dead: bool = False


class RasCommunicator(Record, frozen=True, kw_only=True, tag="ras_communicator"):
    """One communicator in a NCCL RAS report. Identity: (hash, secondary_hash)."""

    hash: Name = ""
    secondary_hash: Name = ""
    size: WorldSize = 0
    status: Name | None = None  # text form: RUNNING, INIT, FINALIZE, UNKNOWN/NOCOMM
    errors: Name | None = None  # text form: OK, MISMATCH, INCOMPLETE
    ranks: Annotated[tuple[RasRank, ...], MANY] = ()
    warnings: Annotated[tuple[Text, ...], FEW] = ()


class RasPeerDead(Record, frozen=True, kw_only=True, tag="ras_peer_dead"):
    """NCCL RAS lost a process: unreachable for 60 s."""

    host: Name = ""
    pid: Integer | None = None
    gpus: Annotated[tuple[Integer, ...], FEW] = ()
