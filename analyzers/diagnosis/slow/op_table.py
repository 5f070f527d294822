"""Traces of all ranks as one table of operations.

Only durations are compared between workers: their clocks may differ, and an origin may be any number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.slow.grouping import Floats, Ints, Mask, numbered, runs
from collectors.records import OP_COLUMNS, OpTimings

COMPUTE, COMMUNICATION, LOADER, PAUSE, BATCH, OTHER = range(6)
# Words of the names that operations have in profilers' traces; the first kind whose word is in a name is its own.
_WORDS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (PAUSE, ("gc", "checkpoint", "save", "eval", "compile", "garbage")),
    (LOADER, ("data", "loader", "batch-generator", "get_batch", "read")),
    (COMMUNICATION, ("send", "recv", "reduce", "gather", "all-to-all", "all_to_all", "alltoall", "broadcast", "comm",
                     "nccl", "gloo", "barrier", "grad-norm", "clip", "sendrecv", "isend", "irecv", "p2p", "all2all", "a2a",
                     "dispatch", "combine", "wait", "sync", "synchronize", "bubble", "idle")),
    (BATCH, ("batch",)),
    (COMPUTE, ("compute", "forward", "backward", "fwd", "bwd", "optimizer", "matmul", "gemm", "attention", "kernel",
               "attn", "mlp", "ffn", "linear", "expert", "experts", "router", "embedding")),
)  # fmt: skip

_WORD = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def words_of(name: str) -> frozenset[str]:
    """Return the whole words of an operation's name: "FusedMoE", "lm_head" and "aten::grouped_mm" have two and three."""
    return frozenset(word.lower() for word in _WORD.findall(name.replace("MoE", "Moe")))


def kind_of(name: str) -> int:
    """Return what an operation does, by its name."""
    lowered = name.lower()
    parts = set(lowered.replace("_", "-").replace(".", "-").split("-"))
    for kind, words in _WORDS:
        if any(word in parts or (len(word) > 4 and word in lowered) for word in words):
            return kind
    return OTHER


@dataclass(frozen=True, slots=True)
class Worker:
    """Who ran operations. ``pp`` and ``dp`` are -1 where the trace has none."""

    rank: int | None
    dp: int
    pp: int
    model: str
    source: str = field(compare=False)  # of its first record: a rank may have a file for each of its steps
    cp: int = -1  # context parallel ranks have unlike shares of a sequence

    @property
    def name(self) -> str:
        """Name it for people."""
        place = "/".join(
            f"{name}{value}" for name, value in (("pp", self.pp), ("dp", self.dp), ("cp", self.cp)) if value >= 0
        )
        if self.rank is None:
            return f"the worker {place}"
        return f"rank {self.rank} ({place})" if place else f"rank {self.rank}"


@dataclass(frozen=True)
class OpTable:
    """Operations of all workers, by worker, step and start. ``unit`` is "s" or "relative"."""

    workers: tuple[Worker, ...]
    operations: tuple[str, ...]
    steps: Ints  # the numbers of the steps that are here, sorted
    worker: Ints
    step: Ints  # index into steps
    operation: Ints  # index into operations
    microbatch: Ints
    chunk: Ints
    started: Floats
    seconds: Floats
    work: Floats
    unit: str = "s"
    all_steps: int = 0  # of which ``steps`` were taken; 0: all

    @cached_property
    def kinds(self) -> list[int]:
        """Return what the operation of each name does."""
        return [kind_of(name) for name in self.operations]

    @cached_property
    def kind(self) -> NDArray[np.int8]:
        """Return what each operation does."""
        found: NDArray[np.int8] = np.array(self.kinds, np.int8)[self.operation]
        return found

    @cached_property
    def place(self) -> Ints:
        """Return the worker and step of each operation as one number."""
        return self.worker * len(self.steps) + self.step

    @cached_property
    def has_starts(self) -> bool:
        """Whether operations are known to have started one after another."""
        known = self.started[np.isfinite(self.started)]
        return bool(len(known)) and float(known.min()) < float(known.max())

    @cached_property
    def per_work(self) -> Floats:
        """Return the seconds of each operation, in proportion to its work where that is known."""
        return np.where(np.isfinite(self.work), self.seconds / self.work, self.seconds)

    def rows(self, which: Mask | Ints) -> OpTable:
        """Return some of the operations, of all workers and steps."""
        if which.dtype == np.bool_:
            if which.all():
                return self
            which = np.flatnonzero(which)
        cut = {name: getattr(self, name)[which] for name in _ARRAYS}
        return OpTable(self.workers, self.operations, self.steps, **cut, unit=self.unit, all_steps=self.all_steps)


SHORTEST_SECONDS, LONGEST_SECONDS = 1e-12, 1e9  # a duration beyond is none
BATCH_ROWS = 250_000
_UNSET = {"started": np.nan, "duration": np.nan, "work": np.nan}  # -1 in the other columns
_ARRAYS = ("worker", "step", "operation", "microbatch", "chunk", "started", "seconds", "work")


def tabulate(records: Sequence[OpTimings], only: Ints | None = None) -> OpTable:
    """Return the operations of the records, of these steps only where any are given; none without a duration above 0."""
    workers: dict[Worker, int] = {}
    names: dict[str, int] = {}
    parts: dict[str, list[NDArray[np.generic]]] = {name: [] for name in ("worker", *OP_COLUMNS)}
    for batch in batches(records):
        numbers = np.array([workers.setdefault(_worker_of(record), len(workers)) for record in batch])
        codes = np.array([names.setdefault(text, len(names)) for text in batch[0].strings], np.int64)
        columns = {name: column(batch, name) for name in OP_COLUMNS}
        seconds, operation = columns["duration"], columns["operation"]
        sound = (
            (seconds > SHORTEST_SECONDS) & (seconds <= LONGEST_SECONDS) & (operation >= 0) & (operation < len(codes))
        )
        if only is not None:
            begins, lengths = runs(columns["step"])
            sound &= np.repeat(np.isin(columns["step"][begins], only), lengths)
        columns["worker"] = np.repeat(numbers, [record.count for record in batch])
        if not sound.all():
            columns = {name: one[sound] for name, one in columns.items()}
        columns["operation"] = codes[columns["operation"]]
        for name, one in columns.items():
            parts[name].append(one)
    units = {record.unit for record in records}
    return _ordered(tuple(workers), tuple(names), parts, "s" if units <= {"s"} else "relative")


def _worker_of(record: OpTimings) -> Worker:
    place = record.coordinates
    return Worker(
        record.rank, place.get("dp", -1), place.get("pp", -1), record.device_model, record.source, place.get("cp", -1)
    )


def batches(records: Sequence[OpTimings]) -> Iterator[list[OpTimings]]:
    """Yield runs of records with the same names of operations, of so few rows that their columns stay in a cache."""
    for _, alike in groupby(records, key=lambda record: record.strings):
        batch, rows = [], 0
        for record in alike:
            batch.append(record)
            rows += record.count
            if rows >= BATCH_ROWS:
                yield batch
                batch, rows = [], 0
        if batch:
            yield batch


def column(batch: Sequence[OpTimings], name: str) -> NDArray[Any]:
    """Return one column of some records, unset where it is missing or cut."""
    kind = np.dtype(OP_COLUMNS[name])
    parts = []
    for record in batch:
        data = record.columns.get(name, b"")
        whole = len(data) == record.count * kind.itemsize
        parts.append(data if whole else np.full(record.count, _UNSET.get(name, -1), kind).tobytes())
    return np.frombuffer(b"".join(parts), kind)


def with_like_work(table: OpTable) -> OpTable:
    """Forget the work of operations of which a worker has none: its seconds are not compared with seconds for each token."""
    code, count = table.worker * len(table.operations) + table.operation, len(table.workers) * len(table.operations)
    rows, known = np.bincount(code, minlength=count), np.bincount(code, np.isfinite(table.work), count)
    lacking = ((rows > 0) & (known == 0)).reshape(len(table.workers), -1).any(axis=0)[table.operation]
    return replace(table, work=np.where(lacking, np.nan, table.work)) if lacking.any() else table


def recorded_twice(records: Sequence[OpTimings]) -> str:
    """Return which step of a rank two files have, as those of two runs do; "" where there is none."""
    files: dict[int, dict[str, set[int]]] = {}
    for record in records:
        if record.rank is not None:
            files.setdefault(record.rank, {}).setdefault(record.source, set())
    several = {rank for rank, sources in files.items() if len(sources) > 1}
    for record in records:
        if record.rank in several:
            files[record.rank][record.source] |= set(np.unique(column([record], "step")).tolist()) - {-1}
    for rank in sorted(several):
        seen: dict[int, str] = {}
        for source, steps in files[rank].items():
            if again := sorted(steps & seen.keys()):
                return f"rank {rank} has step {again[0]} in {seen[again[0]]} and in {source}"
            seen.update(dict.fromkeys(steps, source))
    return ""


def _ordered(
    workers: tuple[Worker, ...], names: tuple[str, ...], parts: dict[str, list[NDArray[np.generic]]], unit: str
) -> OpTable:
    steps, step = numbered(_joined(parts, "step", np.int64))
    started, work = _joined(parts, "started", np.float64), _joined(parts, "work", np.float64)
    started[~(np.abs(started) < 1e12)] = np.nan
    work[~((work > 1e-9) & (work < 1e15))] = np.nan
    worker, operation, microbatch, chunk = (
        _joined(parts, name, np.int64) for name in ("worker", "operation", "microbatch", "chunk")
    )
    seconds = _joined(parts, "duration", np.float64)
    table = OpTable(workers, names, steps, worker, step, operation, microbatch, chunk, started, seconds, work, unit)
    if not _is_sorted(table):
        table = table.rows(np.lexsort((table.microbatch, np.nan_to_num(table.started), table.place)))
    return table.rows(_once(table)) if table.has_starts else table


def _joined(parts: dict[str, list[NDArray[np.generic]]], name: str, kind: type[Any]) -> NDArray[Any]:
    """Return one column of all parts, and let the parts go."""
    found = parts.pop(name)
    return np.concatenate(found, dtype=kind, casting="unsafe") if found else np.zeros(0, kind)


def _is_sorted(table: OpTable) -> bool:
    """Whether the rows are by worker, step, start and microbatch, as most traces are written."""
    place, started, microbatch = table.place, np.nan_to_num(table.started), table.microbatch
    if (place[1:] < place[:-1]).any():
        return False
    same = np.flatnonzero((place[1:] == place[:-1]) & ~(started[1:] > started[:-1]))
    return bool(((started[same + 1] == started[same]) & (microbatch[same + 1] >= microbatch[same])).all())


def _once(table: OpTable) -> Mask:
    """Mark all but rows that are there again: a worker starts no operation twice at one instant."""
    kept = np.ones(len(table.started), np.bool_)
    again = np.flatnonzero((table.started[1:] == table.started[:-1]) & (table.place[1:] == table.place[:-1]))
    if not len(again):
        return kept
    rows = np.union1d(again, again + 1)
    names = ("worker", "step", "started", "operation", "microbatch", "chunk", "seconds")
    keys = np.column_stack([getattr(table, name)[rows] for name in names])
    kept[rows] = False
    kept[rows[np.unique(keys, axis=0, return_index=True)[1]]] = True
    return kept
