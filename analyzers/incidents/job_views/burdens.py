"""What holds up the ranks, the nodes and the GPUs of a job, by the minute: which of it began with a slowdown, and on whom.

    stopped      rank    readings that found its process stopped (T)
    stuck        rank    readings that found it uninterruptible (D)
    cpu          rank    processor seconds a step
    own          rank    seconds a step in which it was not blocked in communication, by the probe
    sampled      rank    the same by samples of its stack, without the probe (``sampled_time``)
    throttled    rank    how much its control group's limit took from it
    stolen       node    processors that the hypervisor gave to others
    waiting_…    node    time in which tasks waited for a processor, memory or a disk (PSI)
    gpu_slowed   device  readings with clocks lowered for heat or by the board
    round_trip   node    round trips of its connections to the job's other nodes (``connections``)

In synchronous training all ranks' steps become longer alike, so that none of this is read from the steps. What was read of
fewer than three, or not before the slowdown, is unmeasured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from analyzers.incidents.job_views.connections import Connections
from analyzers.incidents.job_views.limits import APART_SECONDS, CONTROL_GROUPS, Limits
from analyzers.incidents.job_views.minutes import MINUTE_SECONDS, Minutes
from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.job_views.sampled_time import SampledTime, Span
from analyzers.knowledge import Knowledge
from analyzers.model.sample_values import sample_values
from analyzers.model.slow_look import Apart, Measure, Of
from collectors.records import NOT_READ, OWN_COLUMNS, Device, ProcessState, Profile, Ring, Samples

MOST_SUBJECTS = 4_096  # of one measure
BEFORE_MINUTES = 10
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
    "own": Kind("rank", None),
    "stolen": Kind("node", 0.2),
    "waiting_cpu": Kind("node", 0.2),
    "waiting_io": Kind("node", 0.2),
    "waiting_memory": Kind("node", 0.1),
    "gpu_slowed": Kind("device", 0.5, 0.1),
}
ROUND_TRIP_SECONDS = 0.003
PART_OF_STEP = 0.5
ERRORS = 3.0  # standard errors that a rise in samples is above
KNOWN_PART = 0.25  # of what steps became longer: a rank whose standard error is more was sampled too little
_COUNTED = {
    "cpu": {"steal_ticks_total": ("stolen", 0.01)}, "pressure": {"some_us_total": ("waiting", 1e-6)},
}  # fmt: skip
"""Scope of samples → metric → measure, and what a unit of the counter is in seconds."""


class Burdens:
    """The readings of one attempt."""

    def __init__(self, knowledge: Knowledge) -> None:
        """``knowledge`` has the rules of what a stack waits in."""
        self._rows: dict[str, dict[tuple[str, int], int]] = {"rank": {}, "node": {}, "device": {}}
        self._minutes = {name: Minutes(self._rows[kind.of]) for name, kind in KINDS.items()}
        self._steps = Minutes(self._rows["rank"])  # whole steps, as the probe of each rank has them
        self._timed: dict[int, int] = {}  # rank → when the newest step ended of which the own time was read, ns
        self._spent: dict[int, tuple[float, float]] = {}  # rank → when its processor time was read, and how much it was
        self._counters: dict[tuple[str, str, str], tuple[float, float]] = {}  # node, device, metric → when, value
        self.connections = Connections()
        self._profiles = SampledTime(self._rows["rank"], knowledge)
        self._has_gpus = False
        self._limits: dict[str, Limits] = {}  # by node
        self._here: dict[str, dict[int, int]] = {}  # node → rank → row

    def look(self, row: ProcessState, node: NodeView, received_at: float) -> None:
        """Take one row of a rank's process."""
        if row.rank is None or row.parent_pid is not None or row.state in {"X", "Z"}:
            return
        at, place = node.here(row.at, received_at), self._row("rank", node.node, row.rank)
        if place is None:
            return
        self._minutes["stopped"].add(place, at, row.state == "T", 1.0)
        self._minutes["stuck"].add(place, at, row.state == "D", 1.0)
        if row.cpu_seconds is None:
            return
        before = self._spent.get(row.rank)
        if before is None or at - before[0] >= 5.0 or at < before[0]:
            self._spent[row.rank] = (at, row.cpu_seconds)
            if before is not None and 0 < at - before[0] <= APART_SECONDS and row.cpu_seconds >= before[1]:
                self._minutes["cpu"].add(place, at, row.cpu_seconds - before[1], at - before[0])

    def ring(self, ring: Ring, node: NodeView, received_at: float) -> None:
        """Take what a rank's newest steps took without its waits. Of each reading the median counts: one step may be a pause."""
        if ring.rank is None or not ring.timed or ring.backend != "gloo":  # elsewhere the host does not wait
            return
        columns = {
            name: np.frombuffer(ring.own.get(name, b""), kind).astype(np.float64) for name, kind in OWN_COLUMNS.items()
        }
        if {len(column) for column in columns.values()} != {ring.timed}:
            return
        known = self._timed.get(ring.rank, 0)
        new = (columns["ended_ns"] > known) & (columns["own_seconds"] >= 0) & np.isfinite(columns["own_seconds"])
        place = self._row("rank", node.node, ring.rank) if new.any() else None
        if place is None:
            return
        self._timed[ring.rank] = int(columns["ended_ns"][new].max())
        at = node.here(float(np.median(columns["ended_ns"][new])) / 1e9, received_at)
        count = float(new.sum())
        self._minutes["own"].add(place, at, float(np.median(columns["own_seconds"][new])) * count, count)
        self._steps.add(place, at, float(np.median(columns["seconds"][new])) * count, count)

    def profile(self, profile: Profile, node: NodeView, received_at: float) -> None:
        """Take where a rank spent its time."""
        place = None if profile.rank is None else self._row("rank", node.node, profile.rank)
        if place is not None:
            self._profiles.take(place, profile, node.here(profile.at, received_at))

    def own_work(
        self, since: float, now: float, minutes: int, earlier: Sequence[tuple[float, float]]
    ) -> tuple[list[int], NDArray[np.float64], NDArray[np.float64]]:
        """Return ranks, and seconds of (before, since) of each: for their own work, and of whole steps; NaN: not read."""
        spans = ((since - minutes * MINUTE_SECONDS, since), (since, now))
        own, steps = (
            np.array([one.means(begin, end, earlier) for begin, end in spans])
            for one in (self._minutes["own"], self._steps)
        )
        return [rank for _, rank in self._rows["rank"]], own, steps

    def device(self, device: Device, node: NodeView) -> None:
        """Note which ranks are in a control group, and that there are GPUs."""
        self._has_gpus = self._has_gpus or device.type == "gpu"
        if device.type == "cgroup":
            self._limits.setdefault(node.node, Limits()).device(device)

    def sample(self, samples: Samples, node: NodeView, received_at: float) -> None:
        """Take a node's samples of one scope."""
        self._has_gpus = self._has_gpus or samples.scope in {"gpu", "dcgm"}
        if samples.scope == CONTROL_GROUPS and (here := self._here.get(node.node)):
            for taken in self._limits.setdefault(node.node, Limits()).take(samples, here):
                at = node.here(taken.tick, received_at)
                self._minutes["throttled"].add(here[taken.rank], at, taken.seconds, taken.of_seconds)
            return
        metrics = [GPU_MASK] if samples.scope == "gpu" else list(_COUNTED.get(samples.scope, ()))
        wanted = [name for name in metrics if name in samples.metrics]
        read = sample_values(samples) if wanted else None
        if read is None:
            return
        ticks, values = read
        for name in wanted:
            for device, row in zip(samples.devices, values[:, samples.metrics.index(name), :].tolist(), strict=True):
                for at, value in zip(ticks.tolist(), row, strict=True):
                    if value != NOT_READ and value == value:  # noqa: PLR0124 it is no NaN
                        self._reading(samples.scope, name, node, device, node.here(at, received_at), float(value))

    def compare(
        self, since: float, now: float, before_seconds: float, seconds: float,
        earlier: Sequence[tuple[float, float]] = (), pauses: Sequence[tuple[float, float]] = (), *, lasts: bool = True,
    ) -> Iterator[Measure]:  # fmt: skip
        """Yield what was read before a slowdown and since. The lengths are those of a step, before and since.

        ``earlier``: slowdowns that are over. What was read in them is not what was usual. ``pauses``: no step ended then, so
        that samples are of no step. ``lasts``: the minute that has begun is of this one, too.
        """
        for name, kind in KINDS.items():
            minutes = self._minutes[name]
            if not self._rows[kind.of] or (name == "cpu" and self._has_gpus):
                continue  # who waits for a GPU, or for others' GPUs, spins: that is no work of its own
            # A minute that the slowdown began in is of neither.
            before = minutes.means(*_before(since), earlier)
            after = minutes.means(since, now)
            least = kind.least
            if least is None:
                least = PART_OF_STEP * (seconds - before_seconds)
                if name == "cpu":  # of a share of the wall clock: in seconds a step
                    before, after = before * before_seconds, after * seconds
            known = np.isfinite(before) & np.isfinite(after)
            if known.any():
                yield _measure(name, kind, list(self._rows[kind.of]), known, before, after, least)
        yield from self._sampled(
            Span(*_before(since), before_seconds),
            Span(since, now + MINUTE_SECONDS * lasts, seconds),
            (*earlier, *pauses),
        )
        nodes, before, after = self.connections.compare(_before(since), (since, now), earlier)
        if nodes:
            known = np.ones(len(nodes), np.bool_)
            yield _measure("round_trip", Kind("node", None), nodes, known, before, after, ROUND_TRIP_SECONDS)

    def _sampled(self, before: Span, since: Span, without: Sequence[tuple[float, float]]) -> Iterator[Measure]:
        longer = since.step_seconds - before.step_seconds
        own_before, own_since, error = self._profiles.compare(before, since, without)
        known = np.isfinite(own_before + own_since) & (error <= KNOWN_PART * longer)
        if known.any():
            least = np.maximum(PART_OF_STEP * longer, ERRORS * error)
            yield _measure("sampled", Kind("rank", None), list(self._rows["rank"]), known, own_before, own_since, least)

    def _row(self, of: Of, name: str, number: int = -1) -> int | None:
        rows, subject = self._rows[of], (name, number)
        row = rows.get(subject)
        if row is None and len(rows) < MOST_SUBJECTS:
            row = rows[subject] = len(rows)
            if of == "rank":
                self._here.setdefault(name, {})[number] = row
        return row

    def _add(self, name: str, subject: str, at: float, value: float, weight: float) -> None:
        if (row := self._row(KINDS[name].of, subject)) is not None:
            self._minutes[name].add(row, at, value, weight)

    def _reading(self, scope: str, metric: str, node: NodeView, device: str, at: float, value: float) -> None:
        if metric == GPU_MASK:
            self._add("gpu_slowed", f"{node.node}/{device}", at, bool(int(value) & LOWERED), 1.0)
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
        if scope != "pressure":
            self._add(name, node.node, at, gained, lasted)
        elif f"{name}_{device}" in KINDS:
            self._add(f"{name}_{device}", node.node, at, gained, lasted)


def _before(since: float) -> tuple[float, float]:
    return since - BEFORE_MINUTES * MINUTE_SECONDS, since - MINUTE_SECONDS / 6


def _measure(
    name: str, kind: Kind, subjects: list[tuple[str, int]], known: NDArray[np.bool_], before: NDArray[np.float64],
    after: NDArray[np.float64], least: float | NDArray[np.float64],
) -> Measure:  # fmt: skip
    rises = np.where(known, after - before, -np.inf)
    apart: tuple[Apart, ...] = ()
    read, most = int(known.sum()), float(rises.max())
    high = np.flatnonzero(rises >= np.maximum(most / 2, least))
    others = known.copy()
    others[high] = False
    quiet = not others.any() or float(rises[others].max()) <= OTHERS_SHARE * float(rises[high].min(initial=most))
    if quiet and kind.least is None and others.any() and len(high):  # all that work more for a step do so in proportion
        grown = np.divide(rises, before, out=np.full_like(rises, np.inf), where=before > 0)
        quiet = float(np.median(grown[others])) <= OTHERS_SHARE * float(grown[high].min())
    new = bool(len(high)) and bool((before[high] <= kind.most_before).all())
    if read >= FEWEST and new and quiet and len(high) <= max(1, min(MOST_NAMED, read // 4)):
        apart = tuple(_apart(kind.of, subjects[place], before[place], after[place]) for place in high.tolist())
    return Measure(
        name=name, of=kind.of, read=read, before=_rounded(np.median(before[known])),
        since=_rounded(np.median(after[known])), apart=apart, risen=int((rises >= least).sum()),
        most=_rounded(most),
    )  # fmt: skip


def _apart(of: Of, subject: tuple[str, int], before: float, since: float) -> Apart:
    name, rank = subject
    ranks, id = ((rank,), str(rank)) if of == "rank" else ((), name)
    node = name.partition("/")[0]
    return Apart(id=id, before=_rounded(before), since=_rounded(since), ranks=ranks, node=node)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")
