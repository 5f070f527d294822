"""Traces of all ranks as one table of operations, and the few array functions that work on it.

Only durations are compared between workers: their clocks may differ, and an origin may be any number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from collectors.records import OP_COLUMNS, OpTimings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

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
    def per_work(self) -> Floats:
        """Return the seconds of each operation, in proportion to its work where that is known."""
        return np.where(np.isfinite(self.work), self.seconds / self.work, self.seconds)

    def rows(self, mask: Mask) -> OpTable:
        """Return some of the operations, of all workers and steps."""
        cut = {name: getattr(self, name)[mask] for name in _ARRAYS}
        return OpTable(self.workers, self.operations, self.steps, **cut, unit=self.unit)


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
        columns = _columns(record)
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
            files[record.rank][record.source] |= set(np.unique(_columns(record)["step"]).tolist()) - {-1}
    for rank in sorted(several):
        seen: dict[int, str] = {}
        for source, steps in files[rank].items():
            if again := sorted(steps & seen.keys()):
                return f"rank {rank} has step {again[0]} in {seen[again[0]]} and in {source}"
            seen.update(dict.fromkeys(steps, source))
    return ""


def _columns(record: OpTimings) -> dict[str, NDArray[np.generic]]:
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
    steps, step = np.unique(joined["step"].astype(np.int64), return_inverse=True)
    started = joined["started"].astype(np.float64)
    started[~(np.abs(started) < 1e12)] = np.nan
    order = np.lexsort((joined["microbatch"], np.nan_to_num(started), step, joined["worker"]))
    work = joined["work"].astype(np.float64)
    work[~((work > 1e-9) & (work < 1e15))] = np.nan
    taken = {name: joined[name].astype(np.int64)[order] for name in ("worker", "operation", "microbatch", "chunk")}
    return OpTable(
        workers, names, steps, step=step[order], started=started[order], seconds=seconds[sound][order],
        work=work[order], **taken, unit=unit,
    )  # fmt: skip


def grouped_median(values: Floats, groups: Ints, count: int) -> Floats:
    """Return the median of the values of each group, NaN for a group without any."""
    order = np.lexsort((values, groups))
    begins = np.searchsorted(groups[order], np.arange(count + 1))
    sizes = np.diff(begins)
    found = np.full(count, np.nan)
    full = np.flatnonzero(sizes > 0)
    ranked = values[order]
    low, high = begins[full] + (sizes[full] - 1) // 2, begins[full] + sizes[full] // 2
    found[full] = (ranked[low] + ranked[high]) / 2
    return found


def spread(values: Floats) -> float:
    """Return the standard deviation by the median of the distances from the median; 0 without values."""
    known = values[np.isfinite(values)]
    return float(1.4826 * np.median(np.abs(known - np.median(known)))) if len(known) else 0.0
