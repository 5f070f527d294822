"""Collectives as seen from outside the recorder: the probe's ring, NCCL Inspector's timings, the job's steps."""

from __future__ import annotations

from typing import Annotated

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

STEP_COLUMNS: dict[str, str] = {
    "step": "<i8",
    "at": "<f8",  # UTC seconds of the end of the step, or of the line that reports it
    "seconds": "<f8",  # NaN, here and below: not reported
    "loss": "<f8",
    "gradient_norm": "<f8",
    "tokens_per_second": "<f8",
    "tflops": "<f8",
    "skipped": "<i1",  # 1: the optimizer skipped it (fp16 overflow)
    "nan": "<i1",  # what was reported as NaN, which NaN above does not show: 1 the loss, 2 the gradient norm, 3 both
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

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, RING_COLUMNS)


class Steps(Record, frozen=True, kw_only=True, tag="steps"):
    """Training steps that a log or the probe reports."""

    told_by: Name = ""  # megatron torchtitan verl jsonl plain probe
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

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, TIMING_COLUMNS)
