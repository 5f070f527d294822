"""The table of operations, held against one that is made row by row, however the records are cut, ordered or named."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from analyzers.diagnosis.slow import op_table
from analyzers.diagnosis.slow.op_table import column, tabulate
from collectors.records import OP_COLUMNS, OpTimings
from simulation.traces.op_traces import OpJob
from tests.support.op_traces import simulated


def spoilt(seed: int) -> list[OpTimings]:
    """Return a job's records: rows that say nothing, rows that are there twice, several records a worker, other names."""
    draws = np.random.default_rng(seed)
    table = simulated(OpJob(stages=2, replicas=2, steps=3, microbatches=2, seed=seed))
    odd = {
        "duration": (0.0, -1.0, np.nan, np.inf, 1e10),
        "started": (np.nan, 1e13),
        "work": (0.0, 7.0),
        "operation": (-1, 99),
    }
    changed = {
        name: np.where(draws.random(len(table)) < 0.05, draws.choice(values, len(table)), table.columns[name])
        for name, values in odd.items()
        if draws.random() < 0.5
    }
    table = table.changed(**changed)
    rows = np.append(np.arange(len(table)), draws.integers(0, len(table), 9))
    records = list(table.kept(draws.permutation(rows) if draws.random() < 0.5 else rows).records())
    if draws.random() < 0.5:
        records = [part for record in records for part in _halves(record, draws)]
        records = [records[place] for place in draws.permutation(len(records))]
    return records


def _halves(record: OpTimings, draws: np.random.Generator) -> list[OpTimings]:
    names = draws.permutation(len(record.strings))
    columns = {name: column([record], name) for name in OP_COLUMNS}
    known = (columns["operation"] >= 0) & (columns["operation"] < len(names))
    columns["operation"] = np.where(known, np.argsort(names)[columns["operation"] % len(names)], columns["operation"])
    first = draws.random(record.count) < 0.5
    return [
        msgspec.structs.replace(
            record, strings=tuple(record.strings[name] for name in names), count=int(mine.sum()),
            columns={name: one[mine].astype(OP_COLUMNS[name]).tobytes() for name, one in columns.items()},
        )
        for mine in (first, ~first)
    ]  # fmt: skip


def naive(records: list[OpTimings], only: list[int] | None) -> list[tuple[Any, ...]]:
    """Return rank, step, start, microbatch, operation, chunk, seconds and work of each row, in the table's order."""
    ranks = list(dict.fromkeys(record.rank for record in records))
    rows = []
    for record in records:
        columns = [
            column([record], name).tolist()
            for name in ("step", "started", "microbatch", "operation", "chunk", "duration", "work")
        ]
        for step, started, microbatch, operation, chunk, seconds, work in zip(*columns, strict=True):
            known = 0 <= operation < len(record.strings) and 1e-12 < seconds <= 1e9
            if known and (only is None or step in only):
                at, tokens = (started if abs(started) < 1e12 else None), (work if 1e-9 < work < 1e15 else None)
                rows.append((record.rank, step, at, microbatch, record.strings[operation], chunk, seconds, tokens))
    rows.sort(key=lambda row: (ranks.index(row[0]), row[1], row[2] or 0.0, row[3]))
    return list({row if row[2] is not None else (row, number): row for number, row in enumerate(rows)}.values())


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("only", [None, [0, 2]])
def test_rows_are_those_of_the_records(seed: int, only: list[int] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In batches of any size."""
    monkeypatch.setattr(op_table, "BATCH_ROWS", 50 * seed)
    records = spoilt(seed)
    table = tabulate(records, None if only is None else np.array(only))
    names = ("worker", "step", "started", "microbatch", "operation", "chunk", "seconds", "work")
    found = [
        (table.workers[worker].rank, table.steps[step], None if math.isnan(started) else started, microbatch,
         table.operations[operation], chunk, seconds, None if math.isnan(work) else work)
        for worker, step, started, microbatch, operation, chunk, seconds, work
        in zip(*(getattr(table, name).tolist() for name in names), strict=True)
    ]  # fmt: skip
    assert found == naive(records, only)
