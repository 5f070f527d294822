"""Where rows of an operation table were run: hosts that change, several jobs, context parallel ranks; in either format."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyzers.diagnosis.slow.op_table import tabulate
from collectors.records import OpTimings, Record, Unread
from tests.collectors.formats.test_op_traces import parquet, read

KINDS = pytest.mark.parametrize("kind", ["csv", "parquet"])


def _read(folder: Path, kind: str, **columns: list[object]) -> list[Record]:
    usual: dict[str, list[object]] = {"rank": [3, 3], "op": ["forward", "forward"], "duration": [0.5, 0.5]}
    columns = usual | columns
    if kind == "parquet":
        return read(folder, "t.parquet", parquet(**columns))
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    return read(folder, "t.csv", "\n".join([",".join(columns), *rows]) + "\n")


@KINDS
def test_a_rank_that_changes_its_host_is_on_none_of_them(tmp_path: Path, kind: str) -> None:
    """The first would be blamed for what the second did."""
    assert {one.node for one in _read(tmp_path, kind, node=["n2", "n5"])} == {None}
    assert [one.node for one in _read(tmp_path, kind, node=["n2", "n2"])] == ["n2"]


@KINDS
def test_ranks_that_are_numbered_by_host_are_not_compared(tmp_path: Path, kind: str) -> None:
    """One step of a rank on two hosts is of two workers; a rank that went from one host to another has other steps there."""
    (record,) = _read(tmp_path, kind, node=["n2", "n5"], step=[7, 7])
    assert isinstance(record, Unread)
    assert "rank 3 has step 7 on n2 and on n5" in record.reason
    assert {one.node for one in _read(tmp_path, kind, node=["n2", "n5"], step=[7, 8])} == {None}


@KINDS
def test_a_rank_that_repeats_steps_on_another_host_has_moved(tmp_path: Path, kind: str) -> None:
    """A job that is restarted from a checkpoint runs a few steps again."""
    steps = [*range(1, 21), *range(18, 30)]
    each = {"rank": [3] * 32, "op": ["forward"] * 32, "duration": [0.5] * 32}
    records = _read(tmp_path, kind, **each, node=["n2"] * 20 + ["n5"] * 12, step=steps)
    assert {one.node for one in records} == {None}
    assert all(isinstance(one, OpTimings) for one in records)


@KINDS
def test_rows_of_several_jobs_are_not_compared(tmp_path: Path, kind: str) -> None:
    """Rank 3 of one is not rank 3 of the other, and their work differs."""
    (record,) = _read(tmp_path, kind, job_id=["a", "b"])
    assert isinstance(record, Unread)
    assert "split" in record.reason
    assert isinstance(_read(tmp_path, kind, job_id=["a", "a"])[0], OpTimings)


@KINDS
def test_context_parallel_ranks_have_each_a_duty(tmp_path: Path, kind: str) -> None:
    """The last of them attends to the most."""
    records = _read(tmp_path, kind, rank=[6, 7], cp_rank=[0, 1])
    assert [one.coordinates for one in records if isinstance(one, OpTimings)] == [{"cp": 0}, {"cp": 1}]
    assert [worker.cp for worker in tabulate([one for one in records if isinstance(one, OpTimings)]).workers] == [0, 1]
