"""A CSV of how long each worker took for a mini-batch: worker, time, batch time. Nothing shows what it did meanwhile.

The format of the mini-batch times of Alibaba's cluster trace of 2020, whose times are in no known unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from collectors.formats import Damaged, Input, reader
from collectors.formats.traces.csv_rows import header_of, is_table, rows, whole
from collectors.formats.traces.op_columns import LONGEST, MOST_ROWS, MOST_WORKERS, WorkerColumns, is_place, left_out
from collectors.records import Record

BATCH = "batch"
_NEEDED = ("worker", "time", "batch_time_norm")


def _sniff(head: bytes, _source: str) -> int:
    missing = set(_NEEDED) - set(header_of(head))
    if len(missing) == 1:  # to report which column it lacks, where no other reader knows it
        return 5 if is_table(head) else 0
    return 0 if missing else 95


@reader(
    "minibatch_csv", made_by="a table worker, gpu, time, batch_time_norm, as CSV", sniff=_sniff,
    gives="how long each worker took for a mini-batch, in no known unit",
)  # fmt: skip
def read(input: Input) -> Iterator[Record]:
    """Yield one record a worker, and what was left out."""
    header = header_of(input.head)
    if missing := [name for name in _NEEDED if name not in header]:
        named, lacks = ", ".join(header[:20]), " or ".join(missing)
        raise Damaged(f"a table of mini-batches has columns {', '.join(_NEEDED)}: this one has no {lacks}, but {named}")
    worker_at, time_at, batch_at = (header.index(name) for name in _NEEDED)
    workers: dict[int, WorkerColumns] = {}
    count = damaged = over = 0
    for row in rows(input.stream):
        try:
            rank, at, took = whole(row[worker_at]), whole(row[time_at]), float(row[batch_at])
        except (ValueError, IndexError, OverflowError):
            damaged += 1
            continue
        if not (is_place(rank, -1, -1) and 0 <= took <= LONGEST):
            damaged += 1
        elif count >= MOST_ROWS or (rank not in workers and len(workers) >= MOST_WORKERS):
            over += 1
        else:
            count += 1
            mine = workers.setdefault(rank, WorkerColumns(rank, {}))
            mine.add(BATCH, at, math.nan, took, -1, -1, math.nan)
    for mine in workers.values():
        yield from mine.records(source=input.source, at=input.at, told_by="minibatch", unit="relative")
    yield from left_out(input.source, damaged, over)
