"""What a detector inside the job reports of ranks that are slower than others: Megatron-LM's, NVIDIA's resiliency extension's."""

from __future__ import annotations

from typing import Annotated

from collectors.records.flight_recorder import Columns, check_columns
from collectors.records.record import FEW, MANY, Count, Integer, Name, Record, WorldSize

STRAGGLER_COLUMNS: dict[str, str] = {
    "report": "<i8",  # its number in the source, counted from 1: a report names several ranks
    "at": "<f8",  # UTC seconds; NaN: not known
    "rank": "<i8",
    "node": "<i4",  # index into strings; -1: not known
    "quantity": "<i4",  # index into strings: one of the names below
    "value": "<f8",  # NaN: the rank is named without one
}
"""Columns of ``StragglerReports.columns`` and their little-endian types; all have ``count`` values."""

SECONDS = "seconds"  # of the forward pass of an iteration, with the waits for its tensor-parallel peers
TFLOPS = "tflops"  # estimated from it
CLOCK, TEMPERATURE = "clock_mhz", "temperature_celsius"  # of its GPU
RELATIVE, INDIVIDUAL = (
    "relative_score",
    "individual_score",
)  # the shortest of all ranks, or its own ever, over what its kernels take
BELOW_RELATIVE, BELOW_INDIVIDUAL = "below_relative", "below_individual"  # named by the detector's own threshold


class StragglerReports(Record, frozen=True, kw_only=True, tag="straggler_reports"):
    """The reports that one log holds, the newest. A report names the slowest and the fastest ranks, seldom all."""

    told_by: Name = ""  # megatron nvrx
    world_size: WorldSize | None = None  # where the log states it
    sizes: Annotated[
        dict[Name, Integer], FEW
    ] = {}  # of the parallel dimensions, where the log states them: {"tp": 8, "pp": 4}; "stages_inside": 0 or 1
    reports: Count = 0  # those that name no rank are counted, and have no row
    listed: Count = 0  # of the slowest ranks, so many are named in a report; 0: all ranks are
    strings: Annotated[tuple[Name, ...], MANY] = ()
    count: Count = 0
    columns: Columns = {}  # STRAGGLER_COLUMNS

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, STRAGGLER_COLUMNS)
