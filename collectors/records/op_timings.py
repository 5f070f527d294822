"""Operations of one worker as a profiler's trace has them: what ran, in which step, for how long."""

from __future__ import annotations

from typing import Annotated

from collectors.records.flight_recorder import Columns, check_columns
from collectors.records.record import FEW, MANY, Count, Integer, Name, Record, Text

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

    told_by: Name = ""  # op_trace minibatch
    unit: Name = "s"  # of durations; "relative": in no known unit
    coordinates: Annotated[dict[Name, Integer], FEW] = {}  # {"pp": 1, "dp": 0}
    device_model: Name = ""  # where the trace states it: unlike devices are not compared
    strings: Annotated[tuple[Text, ...], MANY] = ()
    count: Count = 0
    columns: Columns = {}  # OP_COLUMNS

    def __post_init__(self) -> None:
        """Refuse a count that no column has."""
        check_columns(self.count, self.columns, OP_COLUMNS)
