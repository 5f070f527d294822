"""Tables of operations: what CSV and Parquet files become, and what hostile ones say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collectors.files.reading import LastFormat, read_input, read_paths
from collectors.formats import Input
from collectors.records import OP_COLUMNS, OpTimings, Record, Unread

HEADER = "dp_rank,stage,rank,step,optype,start_ts,duration,mb_id\n"
ROWS = "0,0,0,7,forward-compute,1.0,0.5,0\n0,0,0,7,backward-compute,1.5,1.0,0\n1,0,4,7,forward-compute,9.0,0.25,0\n"


def read(folder: Path, name: str, data: bytes | str) -> list[Record]:
    """Return the records of one file."""
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return list(read_paths([path]))


def values(record: Record, name: str) -> list[Any]:
    """Return a column of a record."""
    assert isinstance(record, OpTimings), record
    return np.frombuffer(record.columns[name], OP_COLUMNS[name]).tolist()


def parquet(**columns: Any) -> bytes:
    """Return a table as a Parquet file."""
    arrow = pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")
    from pyarrow import parquet as file

    out = io.BytesIO()
    file.write_table(arrow.table(columns), out)
    return out.getvalue()


def test_a_csv_is_a_record_a_worker(tmp_path: Path) -> None:
    """With its place, and the seconds of each operation."""
    first, second = read(tmp_path, "trace.csv", HEADER + ROWS)
    assert isinstance(first, OpTimings)
    assert (first.rank, first.coordinates, first.strings) == (
        0,
        {"dp": 0, "pp": 0},
        ("forward-compute", "backward-compute"),
    )
    assert values(first, "duration") == [0.5, 1.0]
    assert values(first, "step") == [7, 7]
    assert (second.rank, values(second, "started")) == (4, [9.0])


def test_a_unit_in_a_name_counts(tmp_path: Path) -> None:
    """Microseconds become seconds."""
    (record,) = read(tmp_path, "t.csv", "worker,op,dur_us\n3,forward,250\n")
    assert (record.rank, values(record, "duration")) == (3, [pytest.approx(250e-6)])


def test_rows_that_are_none_are_counted(tmp_path: Path) -> None:
    """A damaged row costs itself: no worker, no number, a NaN, a rank that no job has."""
    bad = "-1,-1,-1,7,x,1,1,0\n0,0,0,7,x,1,many,0\n0,0,0,7,x,1,nan,0\n0,0,99999999999,7,x,1,1,0\n0,0\n"
    *records, unread = read(tmp_path, "trace.csv", HEADER + ROWS + bad)
    assert len(records) == 2
    assert isinstance(unread, Unread)
    assert unread.reason.startswith("5 rows are no operation")


def test_parquet_and_csv_say_the_same(tmp_path: Path) -> None:
    """Column by column, in half precision too."""
    columns: dict[str, Any] = {
        "dp_rank": np.array([0, 0, 1], "i1"), "stage": np.array([0, 0, 0], "i1"), "rank": np.array([0, 0, 4], "i2"),
        "step": np.array([7, 7, 7]), "optype": ["forward-compute", "backward-compute", "forward-compute"],
        "start_ts": np.array([1.0, 1.5, 9.0], "f2"), "duration": np.array([0.5, 1.0, 0.25], "f4"), "mb_id": [0, 0, 0],
    }  # fmt: skip
    expected = read(tmp_path, "trace.csv", HEADER + ROWS)
    found = read(tmp_path, "trace.parquet", parquet(**columns))
    assert [one.rank for one in found] == [one.rank for one in expected]
    for one, other in zip(found, expected, strict=True):
        for name in set(OP_COLUMNS) - {"operation", "work"}:
            assert values(one, name) == values(other, name), name
        assert isinstance(one, OpTimings)
        assert isinstance(other, OpTimings)
        assert one.coordinates == other.coordinates


def test_a_parquet_without_operations_says_what_is_needed(tmp_path: Path) -> None:
    """And a cut one that it is no whole file."""
    whole = parquet(price=[1.0], city=["x"])
    (other,) = read(tmp_path, "other.parquet", whole)
    assert isinstance(other, Unread)
    assert "rank, optype and duration" in other.reason
    (cut,) = read(tmp_path, "cut.parquet", whole[:-9])
    assert isinstance(cut, Unread)
    assert "no whole Parquet file" in cut.reason


def test_parquet_is_refused_outside_of_files() -> None:
    """A process of the agent that parses a stranger's bytes loads no library for them."""
    data = b"PAR1" + bytes(64)
    (refused,) = read_input(Input("answer", io.BytesIO(data), data), LastFormat())
    assert isinstance(refused, Unread)
    assert refused.outcome == "refused"


def test_mini_batches_are_of_no_known_unit(tmp_path: Path) -> None:
    """Their table has times and nothing of what a worker did."""
    first, _ = read(
        tmp_path, "job.csv", ",worker,gpu,time,batch_time_norm\n0,0,20,1,691\n1,1,20,1,689\n2,0,20,11,690\n"
    )
    assert isinstance(first, OpTimings)
    assert (first.unit, values(first, "step"), values(first, "duration")) == ("relative", [1, 11], [691.0, 690.0])


MINI = "worker,gpu,time,batch_time_norm\n"


@pytest.mark.parametrize("spoilt", ["\0,{row}", "{long},{row}", '"0,{row}', "0\r,{row}"])
@pytest.mark.parametrize(("header", "row"), [(HEADER, "0,0,7,forward-compute,1.0,0.5,0"), (MINI, "20,1,691")])
def test_a_spoilt_line_costs_itself(tmp_path: Path, header: str, row: str, spoilt: str) -> None:
    """Those before and after it are read, and it is counted."""
    bad = spoilt.format(row=row, long="7" * 300_000)
    *records, unread = read(tmp_path, "t.csv", header + f"0,{row}\n{bad}\n0,{row}\n")
    assert [one.count for one in records if isinstance(one, OpTimings)] == [2]
    assert isinstance(unread, Unread)
    assert unread.reason.startswith("1 rows are no operation")


@pytest.mark.parametrize(
    ("table", "has", "lacks"),
    [
        ("rank,step,op,start_us\n0,7,forward,1\n", "rank, step, op, start_us", "a duration"),
        ("step,op,dur_us\n7,forward,1\n", "step, op, dur_us", "a worker"),
        ("worker,gpu,time\n0,20,1\n", "worker, gpu, time", "batch_time_norm"),
    ],
)
def test_a_table_that_lacks_a_column_is_reported_with_it(tmp_path: Path, table: str, has: str, lacks: str) -> None:
    """By the columns that it has, and the one that is missing."""
    (unread,) = read(tmp_path, "t.csv", table)
    assert isinstance(unread, Unread)
    assert unread.reason.endswith(has)
    assert lacks in unread.reason


@pytest.mark.parametrize("text", ["rank,optype\nTraceback\n", "name,city\na,b\n", "rank, op\n"])
def test_another_text_is_not_called_a_table_of_operations(tmp_path: Path, text: str) -> None:
    """One name in common, or lines below that are no rows, show nothing."""
    assert not [one for one in read(tmp_path, "t.csv", text) if isinstance(one, Unread) and "columns" in one.reason]


@pytest.mark.parametrize("name", ["", "_ns", "_us"])
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_parquet_column_of_times_has_its_own_unit(tmp_path: Path, name: str, unit: str) -> None:
    """Instants and durations, as pandas writes them; the unit of the type counts."""
    arrow = pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")
    whole = 10**6 if unit == "us" else 10**9
    columns = {
        f"start{name}": arrow.array([1_795_000_000 * whole], arrow.timestamp(unit)),
        f"duration{name}": arrow.array([whole // 4], arrow.duration(unit)),
    }
    (record,) = read(tmp_path, "trace.parquet", parquet(rank=[3], op=["forward"], **columns))
    assert values(record, "started") == pytest.approx([1_795_000_000.0])
    assert values(record, "duration") == pytest.approx([0.25])
