"""Traces of all ranks as one table of operations.

Only durations are compared between workers: their clocks may differ, and an origin may be any number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.slow.grouping import Floats, Ints, Mask, numbered
from collectors.records import OP_COLUMNS, OpTimings

COMPUTE, COMMUNICATION, LOADER, PAUSE, BATCH, OTHER = range(6)
# Words of the names that operations have in profilers' traces; the first kind whose word is in a name is its own.
_WORDS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (PAUSE, ("gc", "checkpoint", "save", "eval", "compile", "garbage")),
    (LOADER, ("data", "loader", "batch-generator", "get_batch", "read")),
    (COMMUNICATION, ("send", "recv", "reduce", "gather", "all-to-all", "all_to_all", "alltoall", "broadcast", "comm",
                     "nccl", "gloo", "barrier", "grad-norm", "clip", "sendrecv", "isend", "irecv", "p2p", "all2all", "a2a",
                     "wait", "sync", "synchronize", "bubble", "idle")),
    (BATCH, ("batch",)),
    (COMPUTE, ("compute", "forward", "backward", "fwd", "bwd", "optimizer", "matmul", "gemm", "attention", "kernel")),
)  # fmt: skip


def kind_of(name: str) -> int:
    """Return what an operation does, by its name."""
    lowered = name.lower()
    parts = set(lowered.replace("_", "-").split("-"))
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
    def kind(self) -> Ints:
        """Return what each operation does."""
        found: Ints = np.array(self.kinds, np.int64)[self.operation]
        return found

    @cached_property
    def has_starts(self) -> bool:
        """Whether operations are known to have started one after another."""
        known = self.started[np.isfinite(self.started)]
        return bool(len(known)) and float(known.min()) < float(known.max())

    @cached_property
    def per_work(self) -> Floats:
        """Return the seconds of each operation, in proportion to its work where that is known."""
        return np.where(np.isfinite(self.work), self.seconds / self.work, self.seconds)

    def rows(self, mask: Mask) -> OpTable:
        """Return some of the operations, of all workers and steps."""
        cut = {name: getattr(self, name)[mask] for name in _ARRAYS}
        return OpTable(self.workers, self.operations, self.steps, **cut, unit=self.unit, all_steps=self.all_steps)


_ARRAYS = ("worker", "step", "operation", "microbatch", "chunk", "started", "seconds", "work")


def tabulate(records: Sequence[OpTimings]) -> OpTable:
    """Return all operations of the records; those without a duration above 0 are left out."""
    workers: dict[Worker, int] = {}
    names: dict[str, int] = {}
    parts: dict[str, list[NDArray[np.generic]]] = {name: [] for name in ("worker", *OP_COLUMNS)}
    for record in records:
        place = record.coordinates
        worker = Worker(
            record.rank, place.get("dp", -1), place.get("pp", -1), record.device_model, record.source, place.get("cp", -1)
        )  # fmt: skip
        number = workers.setdefault(worker, len(workers))
        columns = columns_of(record)
        codes = np.array([names.setdefault(text, len(names)) for text in record.strings] or [0], np.int64)
        operation = columns["operation"].astype(np.int64)
        inside = (operation >= 0) & (operation < len(record.strings))
        columns["operation"] = np.where(inside, codes[np.clip(operation, 0, len(codes) - 1)], -1)
        parts["worker"].append(np.full(record.count, number, np.int64))
        for name, column in columns.items():
            parts[name].append(column)
    units = {record.unit for record in records}
    return _ordered(tuple(workers), tuple(names), parts, "s" if units <= {"s"} else "relative")


def recorded_twice(records: Sequence[OpTimings]) -> str:
    """Return which step of a rank two files have, as those of two runs do; "" where there is none."""
    files: dict[int, dict[str, set[int]]] = {}
    for record in records:
        if record.rank is not None:
            files.setdefault(record.rank, {}).setdefault(record.source, set())
    several = {rank for rank, sources in files.items() if len(sources) > 1}
    for record in records:
        if record.rank in several:
            files[record.rank][record.source] |= set(np.unique(columns_of(record)["step"]).tolist()) - {-1}
    for rank in sorted(several):
        seen: dict[int, str] = {}
        for source, steps in files[rank].items():
            if again := sorted(steps & seen.keys()):
                return f"rank {rank} has step {again[0]} in {seen[again[0]]} and in {source}"
            seen.update(dict.fromkeys(steps, source))
    return ""


def columns_of(record: OpTimings) -> dict[str, NDArray[np.generic]]:
    """Return every column, unset where it is missing or cut."""
    unset = {"started": np.nan, "duration": np.nan, "work": np.nan}
    found = {}
    for name, code in OP_COLUMNS.items():
        data = record.columns.get(name, b"")
        whole = len(data) == record.count * np.dtype(code).itemsize
        found[name] = np.frombuffer(data, code) if whole else np.full(record.count, unset.get(name, -1), code)
    return found


def _ordered(
    workers: tuple[Worker, ...], names: tuple[str, ...], parts: dict[str, list[NDArray[np.generic]]], unit: str
) -> OpTable:
    joined = {name: np.concatenate(part) if part else np.zeros(0) for name, part in parts.items()}
    seconds = joined["duration"].astype(np.float64)
    with np.errstate(invalid="ignore"):
        sound = np.isfinite(seconds) & (seconds > 1e-12) & (seconds <= 1e9) & (joined["operation"] >= 0)
    joined = {name: column[sound] for name, column in joined.items()}
    steps, step = numbered(joined["step"].astype(np.int64))
    started = joined["started"].astype(np.float64)
    started[~(np.abs(started) < 1e12)] = np.nan
    work = joined["work"].astype(np.float64)
    work[~((work > 1e-9) & (work < 1e15))] = np.nan
    taken: dict[str, NDArray[Any]] = {
        name: joined[name].astype(np.int64) for name in ("worker", "operation", "microbatch", "chunk")
    }
    taken |= {"step": step, "started": started, "seconds": seconds[sound], "work": work}
    order = np.lexsort((taken["microbatch"], np.nan_to_num(started), taken["worker"] * len(steps) + step))
    cut = {name: column[order] for name, column in taken.items()}
    table = OpTable(workers, names, steps, **cut, unit=unit, all_steps=0)
    return table.rows(_once(table)) if table.has_starts else table


def _once(table: OpTable) -> Mask:
    """Mark all but rows that are there again: a worker starts no operation twice at one instant."""
    kept = np.ones(len(table.started), np.bool_)
    again = (np.diff(table.started) == 0) & (np.diff(table.worker) == 0) & (np.diff(table.step) == 0)
    if not again.any():
        return kept
    rows = np.flatnonzero(np.append(again, False) | np.append(False, again))
    names = ("worker", "step", "started", "operation", "microbatch", "chunk", "seconds")
    keys = np.column_stack([getattr(table, name)[rows] for name in names])
    kept[rows] = False
    kept[rows[np.unique(keys, axis=0, return_index=True)[1]]] = True
    return kept
