"""Traces of operations for the tests: a corpus's real ones and simulated ones as columns, spoilt in every way, and judged."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.files.reading import read_paths
from collectors.records import OP_COLUMNS, OpTimings
from service.packaged_knowledge import load
from simulation.traces.op_traces import OpJob

STRAGGLERS = "stragglers/trace-{}.parquet"


def corpus(path: str) -> Path:
    """Return a file of the labelled corpus; skip where it is absent, or pyarrow to read it."""
    folder = os.environ.get("FAULTHOUND_CORPUS", "")
    if not folder or not (Path(folder) / path).exists():
        pytest.skip(f"FAULTHOUND_CORPUS names no folder with {path}")
    if path.endswith(".parquet"):
        pytest.importorskip("pyarrow", reason="the extra `tables` is not installed")
    return Path(folder) / path


@dataclass(frozen=True)
class Table:
    """Rows of a trace: ``rank``, ``dp`` and ``pp`` of each, the columns of records, and the names of operations."""

    columns: dict[str, NDArray[Any]]
    strings: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.columns["rank"])

    def kept(self, rows: NDArray[Any]) -> Table:
        """Return some of the rows, or all in another order."""
        return replace(self, columns={name: column[rows] for name, column in self.columns.items()})

    def changed(self, **columns: NDArray[Any]) -> Table:
        """Return the table with other columns."""
        return replace(self, columns=self.columns | columns)

    def named(self, *words: str) -> NDArray[np.bool_]:
        """Mark the rows whose operation has one of these words."""
        codes = [code for code, name in enumerate(self.strings) if any(word in name for word in words)]
        return np.isin(self.columns["operation"], codes)

    def records(self) -> Iterator[OpTimings]:
        """Yield one record a worker."""
        key = np.column_stack([self.columns[name] for name in ("rank", "dp", "pp")])
        for rank, dp, pp in np.unique(key, axis=0).tolist():
            mine = (key == [rank, dp, pp]).all(axis=1)
            columns = {name: self.columns[name][mine].astype(code).tobytes() for name, code in OP_COLUMNS.items()}
            place = {name: value for name, value in (("dp", dp), ("pp", pp)) if value >= 0}
            yield OpTimings(
                source=f"trace/rank{rank}", rank=rank if rank >= 0 else None, coordinates=place, strings=self.strings,
                count=int(mine.sum()), columns=columns, told_by="op_trace",
            )  # fmt: skip

    def verdict(self) -> Verdict:
        """Judge it."""
        return judged(self.records())


@cache
def knowledge() -> Any:
    """Return the packaged knowledge, read once."""
    return load()


def judged(records: Any) -> Verdict:
    """Return the verdict on records."""
    window = Window.build(list(records))
    return judge(window, infer(window), knowledge())


@cache
def real(name: str) -> Table:
    """Return a trace of the corpus: AR or ST."""
    return of_records(read_paths([corpus(STRAGGLERS.format(name))]))


def of_records(records: Any) -> Table:
    """Return records as one table."""
    strings: dict[str, int] = {}
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in ("rank", "dp", "pp", *OP_COLUMNS)}
    for record in records:
        assert isinstance(record, OpTimings), record
        place = {"rank": -1 if record.rank is None else record.rank}
        place |= {name: record.coordinates.get(name, -1) for name in ("dp", "pp")}
        for name, value in place.items():
            parts[name].append(np.full(record.count, value))
        codes = np.array([strings.setdefault(text, len(strings)) for text in record.strings])
        for name, code in OP_COLUMNS.items():
            column = np.frombuffer(record.columns[name], code)
            parts[name].append(codes[column] if name == "operation" else column)
    return Table({name: np.concatenate(part) for name, part in parts.items()}, tuple(strings))


def simulated(job: OpJob) -> Table:
    """Return a simulated job's trace; rank = stage × replicas + replica."""
    names: dict[str, int] = {}
    rows = [
        (
            stage * job.replicas + replica,
            replica,
            stage,
            names.setdefault(name, len(names)),
            step,
            at,
            took,
            number,
            0,
            np.nan,
        )
        for stage, replica, step, found in job.rows()
        for name, at, took, number in found
    ]
    order = ("rank", "dp", "pp", *OP_COLUMNS)
    return Table(
        {name: np.array(column) for name, column in zip(order, zip(*rows, strict=True), strict=True)}, tuple(names)
    )


def slowed(table: Table, where: NDArray[np.bool_], times: float) -> Table:
    """Return the table with some computations that many times as long."""
    mine = where & table.named("compute")
    return table.changed(duration=np.where(mine, table.columns["duration"] * times, table.columns["duration"]))
