"""A table of operations as records: which columns mean what, and one record of columns for each worker.

A row is one operation of one worker. Other names of the same columns are known, and a unit at the end of a name counts
(``duration_us``). A row without a worker or a duration that can be is left out and counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from collectors.formats import Damaged
from collectors.records import ARRAY_CODES, OP_COLUMNS, OpTimings, Unread, column_bytes
from collectors.records.record import LARGEST_RANK

MOST_ROWS = 20_000_000  # of one file
MOST_WORKERS = 1 << 17
MOST_STRINGS = 4_096  # names of operations
ROWS_A_RECORD = 100_000  # 44 bytes each: a block takes six million bytes a record
LARGEST_COORDINATE = 0xFFFF
LONGEST = 1e9  # seconds: no operation takes 30 years
NAMES: dict[str, tuple[str, ...]] = {
    "rank": ("rank", "global_rank", "worker", "worker_id"),
    "dp": ("dp_rank", "dp"),
    "pp": ("stage", "pp_rank", "pp", "pp_stage", "pipeline_stage"),
    "step": ("step", "iteration", "iter"),
    "operation": ("optype", "op_type", "operation", "op", "op_name"),
    "started": ("start_ts", "start", "start_time", "ts"),
    "duration": ("duration", "dur"),
    "microbatch": ("mb_id", "microbatch", "microbatch_id", "mb"),
    "chunk": ("mc", "chunk", "model_chunk", "virtual_stage"),
    "work": ("tokens", "work"),
    "device_model": ("device_model", "gpu_model", "gpu_type"),
    "node": ("node", "host", "hostname"),
    "cp": ("cp_rank", "cp", "context_parallel_rank"),
    "job": ("job", "job_id", "job_name"),
}
"""What a column means → the names that it has in traces, in lower case."""
SECONDS = {"s": 1.0, "sec": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
WHOLE = ("rank", "dp", "pp", "step", "microbatch", "chunk", "cp")


@dataclass(frozen=True, slots=True)
class Meaning:
    """Where a table has what. ``columns``: meaning → the column's own name; ``factors``: of a time, to seconds."""

    columns: dict[str, str]
    factors: dict[str, float]

    @property
    def missing(self) -> list[str]:
        """Return what no column gives of a worker, an operation and a duration; nothing for a table of operations."""
        needed = {"a worker": ("rank", "dp", "pp"), "an operation": ("operation",), "a duration": ("duration",)}
        return [name for name, any_of in needed.items() if not any(one in self.columns for one in any_of)]


def meaning(header: Sequence[str]) -> Meaning:
    """Find what a table's columns mean."""
    columns: dict[str, str] = {}
    factors: dict[str, float] = {}
    for meant, names in NAMES.items():
        for column in header:
            name, factor = _bare(column, timed=meant in ("started", "duration"))
            if name in names and meant not in columns:
                columns[meant] = column
                factors[meant] = factor
    return Meaning(columns, factors)


def no_operations(header: Sequence[str], missing: Sequence[str]) -> Damaged:
    """Return why a table has no operations."""
    named = ", ".join(header[:20])
    return Damaged(
        f"a table of operations has columns rank, optype and duration: this one has none of {' or '.join(missing)}, but {named}"
    )


def _bare(column: str, *, timed: bool) -> tuple[str, float]:
    name = column.strip().lower()
    stem, _, unit = name.rpartition("_")
    return (stem, SECONDS[unit]) if timed and stem and unit in SECONDS else (name, 1.0)


@dataclass(slots=True)
class WorkerColumns:
    """The operations of one worker, in the order of the file."""

    rank: int | None
    coordinates: dict[str, int]
    node: str | None = None
    device_model: str = ""
    moved: bool = False  # its rows name several hosts: which of them is slow is not known
    strings: dict[str, int] = field(default_factory=dict)
    columns: dict[str, array[Any]] = field(
        default_factory=lambda: {name: array(ARRAY_CODES[code]) for name, code in OP_COLUMNS.items()}
    )

    def add(self, operation: str, *values: float) -> None:
        """Add an operation: the values of the columns after the first, in their order."""
        code = self.strings.setdefault(operation, len(self.strings))
        for column, value in zip(self.columns.values(), (code, *values), strict=True):
            column.append(value)

    def records(self, **known: Any) -> Iterator[OpTimings]:
        """Yield the operations as records."""
        count = len(self.columns["operation"])
        for begin in range(0, count, ROWS_A_RECORD):
            part = slice(begin, begin + ROWS_A_RECORD)
            columns = {name: column_bytes(column[part]) for name, column in self.columns.items()}
            yield op_timings(
                self.rank, self.coordinates, columns, min(ROWS_A_RECORD, count - begin), tuple(self.strings),
                node=None if self.moved else self.node, device_model=self.device_model, **known,
            )  # fmt: skip


def op_timings(
    rank: int | None, coordinates: dict[str, int], columns: dict[str, bytes], count: int, strings: tuple[str, ...],
    **known: Any,
) -> OpTimings:  # fmt: skip
    """Return one record."""
    return OpTimings(rank=rank, coordinates=coordinates, count=count, columns=columns, strings=strings, **known)


def of_one_job(jobs: Collection[str]) -> None:
    """Raise Damaged for rows of several jobs: a rank's number is of one."""
    if len(jobs) > 1:
        named = ", ".join(sorted(jobs)[:4])
        raise Damaged(
            f"its rows are of {len(jobs)} jobs, such as {named}: ranks of one job are compared: split the table by job"
        )


def refuse_two_hosts(rank: int, hosts: Mapping[int, Collection[str]]) -> None:
    """Raise Damaged where most steps of a rank were on several hosts; one that moved repeats a few. ``hosts``: by step."""
    known = {step: sorted(filter(None, named)) for step, named in hosts.items() if min(step, rank) >= 0}
    twice = [step for step, named in sorted(known.items()) if len(named) > 1]
    if 2 * len(twice) > len(known):
        raise Damaged(
            f"rank {rank} has step {twice[0]} on {' and on '.join(known[twice[0]][:2])}: ranks that are numbered by host, "
            "or two runs, are not compared: give each rank its number in the job"
        )


def left_out(source: str, damaged: int, over: int) -> Iterator[Unread]:
    """Yield how many rows gave no operation."""
    if over:
        reason = (
            f"{over:,} rows are not read: {MOST_ROWS:,} rows of {MOST_WORKERS:,} workers are the most: split the file"
        )
        yield Unread(source=source, reason=reason, outcome="limit")
    if damaged:
        places = f"rank up to {LARGEST_RANK:,}, replica and stage up to {LARGEST_COORDINATE:,}"
        reason = (
            f"{damaged:,} rows are no operation: each needs a worker ({places}), an operation and a duration of seconds"
        )
        yield Unread(source=source, reason=reason, outcome="damaged")


def is_place(rank: int, dp: int, pp: int) -> bool:
    """Whether a worker can be there; -1 is not known."""
    known = -1 <= rank <= LARGEST_RANK and -1 <= dp <= LARGEST_COORDINATE and -1 <= pp <= LARGEST_COORDINATE
    return known and max(rank, dp, pp) >= 0
