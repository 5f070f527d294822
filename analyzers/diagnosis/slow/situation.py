"""All that is measured of a trace before anything is claimed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.diagnosis.slow import costs, levels, outliers, pipeline
from analyzers.diagnosis.slow.costs import SlowCosts
from analyzers.diagnosis.slow.grouping import Floats, Mask, row_median
from analyzers.diagnosis.slow.levels import Levels
from analyzers.diagnosis.slow.op_table import BATCH, COMPUTE, OpTable, with_like_work
from analyzers.diagnosis.slow.outliers import Outliers
from analyzers.diagnosis.slow.pipeline import Pipeline
from analyzers.model.topology import Topology

WARM_UP_TIMES, FEWEST_SETTLED = 2.0, 4
MOST_PLAYED = 8  # slow workers whose own cost is found
WHOLE = 0.5  # of its usual operations: fewer in a step, and the trace has lost the worker's part of it
TRUE_TO_LIFE = 0.15  # steps that are played this much longer or shorter than they were do not say what anything costs


@dataclass(frozen=True)
class SlowSituation:
    """``together``: the cost of all slow workers. ``costs``: of what is left without them; None: steps cannot be played."""

    table: OpTable
    compute: OpTable
    levels: Levels
    outliers: Outliers
    topology: Topology
    whole_batches: bool
    pipeline: Pipeline | None = None
    by_worker: dict[int, float] | None = None
    together: float | None = None
    costs: SlowCosts | None = None
    on_gpus: bool = True  # as far as is known

    @cached_property
    def step_seconds(self) -> Floats:
        """Return how long each step took, by its workers' own clocks; NaN where no start is known."""
        return span(self.table)


def span(table: OpTable) -> Floats:
    """Return each step's length: the longest that a worker took by its own clock, from its first start to its last end."""
    longest = lengths(table).reshape(len(table.workers), -1).max(axis=0, initial=0.0)
    return np.where(longest > 0, longest, np.nan)


def lengths(table: OpTable) -> Floats:
    """Return the seconds from the first start to the last end of each worker's step; 0 where no start is known."""
    places = len(table.steps) * len(table.workers)
    first, last = np.full(places, np.inf), np.full(places, -np.inf)
    known = np.isfinite(table.started)
    np.minimum.at(first, table.place[known], table.started[known])
    np.maximum.at(last, table.place[known], (table.started + table.seconds)[known])
    return np.where(last > first, last - first, 0.0)


def _settled(table: OpTable) -> OpTable:
    """Leave out the first steps of a trace that took a worker twice as long as its later ones: compiling, filling caches."""
    count, steps = len(table.workers), len(table.steps)
    if steps < FEWEST_SETTLED:
        return table
    computing = table.kind == COMPUTE
    place = table.place[computing]
    seconds = np.bincount(place, table.seconds[computing], count * steps).reshape(count, steps)
    usual = levels.median_of_known(np.where(seconds > 0, seconds, np.nan), axis=1)
    with np.errstate(invalid="ignore"):
        long = np.any(seconds > WARM_UP_TIMES * usual[:, None], axis=0)
    first = min(int(np.argmin(long)), max(1, steps // 4))
    if not first or long[first]:  # longer than a warm-up is
        return table
    left = table.rows(table.step >= first)
    return replace(left, steps=table.steps[first:], step=left.step - first, all_steps=table.all_steps or steps)


def measure(table: OpTable, topology: Topology) -> SlowSituation | None:
    """Return what a trace shows after its warm-up; None where none of its operations is compute."""
    table = with_like_work(_settled(table))
    kinds = table.kind
    mask = kinds == COMPUTE
    mask &= _in_steps(table, mask)
    compute = table.rows(mask)
    whole_batches = not len(compute.step)
    if whole_batches:
        compute = table.rows(kinds == BATCH)
    if not len(compute.step):
        return None
    found = levels.measure(compute)
    apart = outliers.find(found, by_past_alone=whole_batches)
    seen = SlowSituation(table, compute, found, apart, topology, whole_batches)
    played = None if whole_batches else pipeline.build(table, mask)
    if played is None:
        return seen
    played = replace(played, compared=_compared(compute, apart))
    if not _true_to_life(played, seen.step_seconds):
        return seen
    since = apart.changed_at
    healed = costs.without_workers(played, apart.slow, apart.excess, since)
    by_worker = {number: _alone(played, apart, number, healed) for number in apart.slow[:MOST_PLAYED].tolist()}
    together = played.slowdown(healed, max(int(since[apart.slow].min(initial=len(table.steps) - 1)), 0))
    left = costs.measure(replace(played, seconds=healed), compute)
    return replace(
        seen,
        pipeline=played,
        by_worker=by_worker,
        together=together,
        costs=replace(left, ideal=costs.against_ideal(played)),
    )


def _alone(played: Pipeline, apart: Outliers, number: int, healed: tuple[Floats, ...]) -> float:
    """Return how many times as long steps take with this one of the slow workers as they do with none.

    Where several are slow, a step is no shorter with one of them healed, and the job waits for each.
    """
    others = apart.slow[apart.slow != number]
    left = costs.without_workers(played, others, apart.excess, apart.changed_at)
    return replace(played, seconds=left).slowdown(healed, max(int(apart.changed_at[number]), 0))


def _in_steps(table: OpTable, compute: Mask) -> Mask:
    """Mark what belongs to a microbatch, where anything does: an optimizer's step is another duty."""
    of_microbatch = table.microbatch >= 0
    return of_microbatch if (of_microbatch & compute).any() else np.ones(len(compute), np.bool_)


def _compared(compute: OpTable, apart: Outliers) -> Mask | None:
    """Mark the steps of which no worker's part is lost, or no slow worker's where those are few; None: all, or none is whole.

    A step without the rows of the worker that it waited for would be played as one that was not slow.
    """
    count, steps = len(compute.workers), len(compute.steps)
    rows = np.bincount(compute.place, minlength=count * steps).reshape(count, steps).astype(np.float64)
    if rows.min() == rows.max():
        return None
    part = rows / row_median(rows, rows > 0)[:, None]
    known = np.isfinite(part).all(axis=1)
    least = WHOLE * np.median(part[known], axis=0)
    for which in (known, known & np.isin(np.arange(count), apart.slow)):
        whole = np.asarray((part[which] >= least).all(axis=0))
        if whole.all():
            return None
        if 2 * np.count_nonzero(whole) >= steps:
            return whole
    return whole if whole.any() else None


def _true_to_life(played: Pipeline, real: Floats) -> bool:
    known = np.isfinite(real) & (real > 0)
    if played.compared is not None:
        known &= played.compared
    return not known.any() or abs(float(np.median(played.base[known] / real[known])) - 1) <= TRUE_TO_LIFE
