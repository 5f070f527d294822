"""What holds up the ranks, the nodes and the GPUs of a job, by the minute: which of it began with a slowdown, and on whom.

    stopped      rank    readings that found its process stopped (T)
    stuck        rank    readings that found it uninterruptible (D)
    cpu          rank    processor seconds a step
    throttled    rank    how much its control group's limit took from it
    stolen       node    processors that the hypervisor gave to others
    waiting_…    node    time in which tasks waited for a processor, memory or a disk (PSI)
    gpu_slowed   device  readings with clocks lowered for heat or by the board

In synchronous training all ranks' steps become longer alike, so that none of this is read from the steps. What was read of
fewer than three, or not before the slowdown, is unmeasured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.incidents.job_views.node import NodeView
from analyzers.model.slow_look import Apart, Measure, Of
from collectors.records import NOT_READ, Device, ProcessState, Samples

MOST_SUBJECTS = 4_096  # of one measure
MINUTES = 16
MINUTE_SECONDS = 60.0
BEFORE_MINUTES = 10
APART_SECONDS = 45.0  # between two readings of a counter; over a longer span nothing is known of it
FEWEST = 3
MOST_NAMED = 4
OTHERS_SHARE = 1 / 3  # of the change of who stands apart: more on any other, and no one does
LOWERED = 0x08 | 0x20 | 0x40 | 0x80  # NVML's clock event reasons: hardware, its heat, the board's heat, the power brake
GPU_MASK = "throttle_reasons_mask"


@dataclass(frozen=True, slots=True)
class Kind:
    """How a measure is read. ``least``: the rise that counts; None: as much as steps became longer, times ``PART_OF_STEP``."""

    of: Of
    least: float | None
    most_before: float = float("inf")  # who was above this before was so without the slowdown


KINDS: dict[str, Kind] = {
    "stopped": Kind("rank", 0.1, 0.03),
    "stuck": Kind("rank", 0.3, 0.1),
    "throttled": Kind("rank", 0.1, 0.03),
    "cpu": Kind("rank", None),
    "stolen": Kind("node", 0.2),
    "waiting_cpu": Kind("node", 0.2),
    "waiting_io": Kind("node", 0.2),
    "waiting_memory": Kind("node", 0.1),
    "gpu_slowed": Kind("device", 0.5, 0.1),
}
PART_OF_STEP = 0.5
_COUNTED = {
    "cpu": {"steal_ticks_total": ("stolen", 0.01)}, "cgroup": {"throttled_us_total": ("throttled", 1e-6)},
    "pressure": {"some_us_total": ("waiting", 1e-6)},
}  # fmt: skip
"""Scope of samples → metric → measure, and what a unit of the counter is in seconds."""


class Minutes:
    """One measure of many subjects: sums and what they are divided by, of each of the newest minutes."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], int] = {}
        self._sums = np.zeros((8, MINUTES), np.float32)
        self._weights = np.zeros((8, MINUTES), np.float32)
        self._minutes = np.full((8, MINUTES), -1, np.int64)

    def add(self, subject: tuple[str, int], at: float, value: float, weight: float) -> None:
        """Add a reading of a subject: a name, or a node and a rank."""
        row = self.rows.get(subject)
        if row is None:
            if len(self.rows) >= MOST_SUBJECTS:
                return
            row = self.rows[subject] = len(self.rows)
            if row >= len(self._sums):
                self._sums, self._weights = (
                    np.vstack([one, np.zeros_like(one)]) for one in (self._sums, self._weights)
                )
                self._minutes = np.vstack([self._minutes, np.full_like(self._minutes, -1)])
        minute = int(at // MINUTE_SECONDS)
        place = minute % MINUTES
        if self._minutes[row, place] > minute:
            return
        if self._minutes[row, place] < minute:
            self._minutes[row, place] = minute
            self._sums[row, place] = self._weights[row, place] = 0.0
        self._sums[row, place] += value
        self._weights[row, place] += weight

    def means(self, begin: float, end: float) -> NDArray[np.float64]:
        """Return each subject's mean over the whole minutes of a span; NaN: not read."""
        first, last = -int(-begin // MINUTE_SECONDS), int(end // MINUTE_SECONDS)
        chosen = (self._minutes >= first) & (self._minutes < last)
        sums, weights = (np.where(chosen, one, 0.0).sum(axis=1) for one in (self._sums, self._weights))
        known = weights > 0
        found: NDArray[np.float64] = np.where(known, sums / np.where(known, weights, 1.0), np.nan)
        return found[: len(self.rows)]


class Burdens:
    """The readings of one attempt."""

    def __init__(self) -> None:
        self._minutes: dict[str, Minutes] = {}
        self._spent: dict[int, tuple[float, float]] = {}  # rank → when its processor time was read, and how much it was
        self._counters: dict[tuple[str, str, str], tuple[float, float]] = {}  # node, device, metric → when, value
        self._has_gpus = False
        self._limited: dict[tuple[str, str], tuple[int, ...]] = {}  # node, control group → its ranks

    def look(self, row: ProcessState, node: NodeView, received_at: float) -> None:
        """Take one row of a rank's process."""
        if row.rank is None or row.parent_pid is not None or row.state in {"X", "Z"}:
            return
        at, subject = node.here(row.at, received_at), (node.node, row.rank)
        self._of("stopped").add(subject, at, row.state == "T", 1.0)
        self._of("stuck").add(subject, at, row.state == "D", 1.0)
        if row.cpu_seconds is None:
            return
        before = self._spent.get(row.rank)
        if before is None or at - before[0] >= 5.0 or at < before[0]:
            if len(self._spent) < MOST_SUBJECTS or row.rank in self._spent:
                self._spent[row.rank] = (at, row.cpu_seconds)
            if before is not None and 0 < at - before[0] <= APART_SECONDS and row.cpu_seconds >= before[1]:
                self._of("cpu").add(subject, at, row.cpu_seconds - before[1], at - before[0])

    def device(self, device: Device, node: NodeView) -> None:
        """Note which ranks are in a control group, and that there are GPUs."""
        self._has_gpus = self._has_gpus or device.type == "gpu"
        if device.type != "cgroup" or len(self._limited) >= MOST_SUBJECTS:
            return
        ranks = tuple(int(word) for word in device.attributes.get("ranks", "").split() if word.isdecimal())
        self._limited[node.node, device.id] = ranks

    def sample(self, samples: Samples, node: NodeView, received_at: float) -> None:
        """Take a node's samples of one scope."""
        self._has_gpus = self._has_gpus or samples.scope in {"gpu", "dcgm"}
        ticks = np.frombuffer(samples.ticks, "<f8", len(samples.ticks) // 8)
        metrics = [GPU_MASK] if samples.scope == "gpu" else list(_COUNTED.get(samples.scope, ()))
        wanted = [name for name in metrics if name in samples.metrics]
        shape = (len(samples.devices), len(samples.metrics), len(ticks))
        size = np.dtype(samples.type).itemsize
        if not wanted or len(samples.values) != size * shape[0] * shape[1] * shape[2]:
            return
        values = np.frombuffer(samples.values, samples.type).reshape(shape)
        for name in wanted:
            for device, row in zip(samples.devices, values[:, samples.metrics.index(name), :].tolist(), strict=True):
                for at, value in zip(ticks.tolist(), row, strict=True):
                    if value != NOT_READ and value == value:  # noqa: PLR0124 it is no NaN
                        self._reading(samples.scope, name, node, device, node.here(at, received_at), float(value))

    def compare(self, since: float, now: float, before_seconds: float, seconds: float) -> Iterator[Measure]:
        """Yield what was read before a slowdown and since. The lengths are those of a step, before and since."""
        for name, kind in KINDS.items():
            minutes = self._minutes.get(name)
            if minutes is None or not minutes.rows or (name == "cpu" and self._has_gpus):
                continue  # who waits for a GPU, or for others' GPUs, spins: that is no work of its own
            # A minute that the slowdown began in is of neither.
            before = minutes.means(since - BEFORE_MINUTES * MINUTE_SECONDS, since - MINUTE_SECONDS / 6)
            after = minutes.means(since, now)
            least = kind.least
            if least is None:  # of a share of the wall clock: in seconds a step
                before, after = before * before_seconds, after * seconds
                least = PART_OF_STEP * (seconds - before_seconds)
            known = np.isfinite(before) & np.isfinite(after)
            if known.any():
                yield _measure(name, kind, list(minutes.rows), known, before, after, least)

    def _of(self, name: str) -> Minutes:
        return self._minutes.setdefault(name, Minutes())

    def _reading(self, scope: str, metric: str, node: NodeView, device: str, at: float, value: float) -> None:
        if metric == GPU_MASK:
            self._of("gpu_slowed").add((f"{node.node}/{device}", -1), at, bool(int(value) & LOWERED), 1.0)
            return
        key = (node.node, device, metric)
        before = self._counters.get(key)
        if before is None and len(self._counters) >= MOST_SUBJECTS * 4:
            return
        self._counters[key] = (at, value)
        if before is None or not 0 < at - before[0] <= APART_SECONDS or value < before[1]:
            return
        name, unit = _COUNTED[scope][metric]
        gained, lasted = (value - before[1]) * unit, at - before[0]
        if scope == "cgroup":
            self._throttled(node, device, at, gained, lasted)
        elif scope != "pressure":
            self._of(name).add((node.node, -1), at, gained, lasted)
        elif f"{name}_{device}" in KINDS:
            self._of(f"{name}_{device}").add((node.node, -1), at, gained, lasted)

    def _throttled(self, node: NodeView, group: str, at: float, gained: float, lasted: float) -> None:
        """Count what a group's limit took for its ranks; from the node's ranks that are in no group it took nothing."""
        inside = self._limited.get((node.node, group), ())
        limited = {rank for (name, _), ranks in self._limited.items() if name == node.node for rank in ranks}
        for name, rank in self._of("stopped").rows:
            if name == node.node and (rank in inside or rank not in limited):
                self._of("throttled").add((name, rank), at, gained if rank in inside else 0.0, lasted)


def _measure(
    name: str, kind: Kind, subjects: list[tuple[str, int]], known: NDArray[np.bool_], before: NDArray[np.float64],
    after: NDArray[np.float64], least: float,
) -> Measure:  # fmt: skip
    rises = np.where(known, after - before, -np.inf)
    apart: tuple[Apart, ...] = ()
    read, most = int(known.sum()), float(rises.max())
    high = np.flatnonzero(rises >= max(most / 2, least))
    others = known.copy()
    others[high] = False
    quiet = not others.any() or float(rises[others].max()) <= OTHERS_SHARE * float(rises[high].min(initial=most))
    new = bool(len(high)) and bool((before[high] <= kind.most_before).all())
    if read >= FEWEST and new and quiet and len(high) <= max(1, min(MOST_NAMED, read // 4)):
        apart = tuple(_apart(kind.of, subjects[place], before[place], after[place]) for place in high.tolist())
    return Measure(
        name=name, of=kind.of, read=read, before=_rounded(np.median(before[known])),
        since=_rounded(np.median(after[known])), apart=apart, risen=int((rises >= least).sum()),
    )  # fmt: skip


def _apart(of: Of, subject: tuple[str, int], before: float, since: float) -> Apart:
    name, rank = subject
    ranks, id = ((rank,), str(rank)) if of == "rank" else ((), name)
    node = name.partition("/")[0]
    return Apart(id=id, before=_rounded(before), since=_rounded(since), ranks=ranks, node=node)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
