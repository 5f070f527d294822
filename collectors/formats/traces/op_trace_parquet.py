"""A Parquet table of operations: worker, step, operation, start and duration. Read by pyarrow, the extra ``tables``.

A file is read a row group at a time and within the bounds of its reader's process. Sorting by worker makes each worker's
columns one slice, so that no Python object is made for a row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from collectors.formats import Damaged, Input, reader
from collectors.formats.traces.op_columns import (
    LARGEST_COORDINATE,
    LONGEST,
    MOST_ROWS,
    MOST_STRINGS,
    MOST_WORKERS,
    ROWS_A_RECORD,
    SECONDS,
    Meaning,
    left_out,
    meaning,
    no_operations,
    of_one_job,
    op_timings,
    refuse_two_hosts,
)
from collectors.records import OP_COLUMNS, Record
from collectors.records.record import LARGEST_RANK

MAGIC = b"PAR1"
MOST_BYTES = 1 << 30  # of one file, which is held whole: its index is at its end
LIBRARY_BYTES = 1 << 30  # address space that pyarrow maps
EXTRA = (
    "Parquet is read by pyarrow, which is not installed: `pip install 'faulthound[tables]'`, or write the table as CSV"
)
_INDEX = 1 << 16  # a coordinate as a digit of a worker's number
_TYPES = {"<i4": "int32", "<i8": "int64", "<f8": "float64"}


def _sniff(head: bytes, _source: str) -> int:
    return 100 if head.startswith(MAGIC) else 0


@reader(
    "op_trace_parquet", made_by="a profiler's table of operations, as Parquet", sniff=_sniff, maps_bytes=LIBRARY_BYTES,
    gives="what each rank ran in each step, and for how long",
)  # fmt: skip
def read(input: Input) -> Iterator[Record]:
    """Yield one record a worker of each row group, and what was left out."""
    pa, file = _opened(input)
    meant = meaning(file.schema_arrow.names)
    if meant.missing:
        raise no_operations(file.schema_arrow.names, meant.missing)
    if (of_job := meant.columns.get("job")) is not None:
        jobs = file.read(columns=[of_job], use_threads=False)[of_job].unique().to_pylist()
        of_one_job({str(one) for one in jobs if one is not None})
    rows = damaged = over = 0
    workers: set[int] = set()
    for group in range(file.num_row_groups):
        if rows + file.metadata.row_group(group).num_rows > MOST_ROWS or len(workers) > MOST_WORKERS:
            over += file.metadata.row_group(group).num_rows
            continue
        table = file.read_row_group(group, columns=list(meant.columns.values()), use_threads=False)
        rows += table.num_rows
        try:
            columns, bad = _columns(pa, table, meant)
        except (pa.ArrowException, ValueError) as error:
            raise Damaged(f"its columns cannot be read as a worker's operations: {error}") from error
        damaged += bad
        yield from _records(pa, columns, workers, {"source": input.source, "at": input.at, "told_by": "op_trace"})
    yield from left_out(input.source, damaged, over)


def _opened(input: Input) -> tuple[Any, Any]:
    # The default pool reserves a GiB of address space, which the process of a foreign file does not have.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise Damaged(EXTRA) from error
    data = input.stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Damaged(f"it has more than {MOST_BYTES:,} bytes: split it by steps or by ranks")
    try:
        return pa, parquet.ParquetFile(pa.BufferReader(data), pre_buffer=False)
    except (pa.ArrowException, OSError) as error:
        raise Damaged(f"it is no whole Parquet file: {error}") from error


def _columns(pa: Any, table: Any, meant: Meaning) -> tuple[dict[str, Any], int]:
    """Return each meaning's column, sorted by worker, and how many rows are no operation."""
    from pyarrow import compute

    def column(name: str, kind: str, unset: float) -> Any:
        if name not in meant.columns:
            return pa.chunked_array([pa.repeat(pa.scalar(unset, pa.type_for_alias(kind)), table.num_rows)])
        found = table[meant.columns[name]]
        found = found.cast(pa.float32()) if pa.types.is_float16(found.type) else found
        if kind == "float64" and (pa.types.is_timestamp(found.type) or pa.types.is_duration(found.type)):
            # The column's type has a unit, whatever its name has.
            factor = SECONDS[found.type.unit] / meant.factors[name]
            found = compute.multiply(found.cast(pa.int64()).cast(pa.float64(), safe=False), factor)
        return compute.fill_null(found.cast(pa.type_for_alias(kind), safe=False), unset)

    nan = float("nan")
    columns = {name: column(name, "int64", -1) for name in ("rank", "dp", "pp", "step")}
    columns |= {name: column(name, "int32", -1) for name in ("microbatch", "chunk")}
    columns |= {name: column(name, "float64", nan) for name in ("started", "duration", "work")}
    for name in ("started", "duration"):
        if meant.factors.get(name, 1.0) != 1.0:
            columns[name] = compute.multiply(columns[name], meant.factors[name])
    columns |= {"cp": column("cp", "int32", -1)}
    for name in ("operation", "node", "device_model"):
        if name in meant.columns:
            columns[name] = compute.fill_null(table[meant.columns[name]].cast(pa.string()), "")
    worker = columns["rank"]
    for name in ("dp", "pp"):
        worker = compute.add(compute.multiply(worker, _INDEX), compute.add(columns[name], 1))
    columns["worker"] = worker
    bounds = (("rank", LARGEST_RANK), ("dp", LARGEST_COORDINATE - 1), ("pp", LARGEST_COORDINATE - 1))
    sound = compute.and_(
        compute.greater_equal(columns["duration"], 0.0), compute.less_equal(columns["duration"], LONGEST)
    )
    placed = compute.greater_equal(compute.max_element_wise(*(columns[name] for name, _ in bounds)), 0)
    for name, most in bounds:
        inside = compute.and_(compute.greater_equal(columns[name], -1), compute.less_equal(columns[name], most))
        sound = compute.and_(sound, inside)
    kept = pa.table(columns).filter(compute.and_(sound, placed))
    kept = kept.sort_by("worker").combine_chunks()
    return {name: kept[name] for name in kept.column_names}, table.num_rows - kept.num_rows


def _records(pa: Any, columns: dict[str, Any], workers: set[int], known: dict[str, Any]) -> Iterator[Record]:
    """Yield a record for each worker's slice."""
    from pyarrow import compute

    if not len(columns["worker"]):
        return
    coded = columns["operation"].combine_chunks().dictionary_encode()
    strings = [str(text)[:200] for text in coded.dictionary.to_pylist()]
    if len(strings) > MOST_STRINGS:
        raise ValueError(f"{len(strings):,} different operations: {MOST_STRINGS:,} are the most")
    flat = {
        name: _bytes(coded.indices if name == "operation" else columns[name], code) for name, code in OP_COLUMNS.items()
    }
    runs = compute.run_end_encode(columns["worker"].combine_chunks(), run_end_type=pa.int32())
    begin = 0
    for end, worker in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        workers.add(worker)
        rank, dp, pp = worker // _INDEX // _INDEX, worker // _INDEX % _INDEX - 1, worker % _INDEX - 1
        cp = columns["cp"][begin].as_py()
        place = {name: value for name, value in (("dp", dp), ("pp", pp), ("cp", cp)) if value >= 0}
        texts = {name: columns[name][begin].as_py()[:200] for name in ("node", "device_model") if name in columns}
        if "node" in columns and len(compute.unique(columns["node"].slice(begin, end - begin))) > 1:
            texts["node"] = ""  # which of its hosts is slow is not known
            placed = pa.table({name: columns[name].slice(begin, end - begin) for name in ("step", "node")})
            found = placed.group_by("step", use_threads=False).aggregate([("node", "distinct")])
            refuse_two_hosts(
                rank, dict(zip(found["step"].to_pylist(), found["node_distinct"].to_pylist(), strict=True))
            )
        for first in range(begin, end, ROWS_A_RECORD):
            last = min(first + ROWS_A_RECORD, end)
            cut = {name: bytes(data[first * width : last * width]) for name, (data, width) in flat.items()}
            yield op_timings(
                rank if rank >= 0 else None, place, cut, last - first, tuple(strings),
                node=texts.get("node") or None, device_model=texts.get("device_model", ""), **known,
            )  # fmt: skip
        begin = end


def _bytes(column: Any, code: str) -> tuple[memoryview, int]:
    """Return a column's values as little-endian bytes, and the width of one."""
    import pyarrow as pa

    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    array = array.cast(pa.type_for_alias(_TYPES[code]))
    width = int(code[2:])
    start = array.offset * width
    return memoryview(array.buffers()[1])[start : start + len(array) * width], width
