"""All that is measured of a trace before anything is claimed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from analyzers.diagnosis.slow import costs, levels, outliers, pipeline
from analyzers.diagnosis.slow.costs import SlowCosts
from analyzers.diagnosis.slow.grouping import Floats, Mask
from analyzers.diagnosis.slow.levels import Levels
from analyzers.diagnosis.slow.op_table import BATCH, COMPUTE, OpTable
from analyzers.diagnosis.slow.outliers import Outliers
from analyzers.diagnosis.slow.pipeline import Pipeline
from analyzers.model.topology import Topology

WARM_UP_TIMES, FEWEST_SETTLED = 2.0, 4
MOST_PLAYED = 8  # slow workers whose own cost is found
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
    place = table.step * len(table.workers) + table.worker
    first, last = (
        np.full(len(table.steps) * len(table.workers), np.inf),
        np.full(len(table.steps) * len(table.workers), -np.inf),
    )
    known = np.isfinite(table.started)
    np.minimum.at(first, place[known], table.started[known])
    np.maximum.at(last, place[known], (table.started + table.seconds)[known])
    length = np.where(last > first, last - first, np.nan).reshape(len(table.steps), len(table.workers))
    longest = np.where(np.isfinite(length), length, -np.inf).max(axis=1, initial=-np.inf)
    return np.where(longest > 0, longest, np.nan)


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
    table = _settled(table)
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
    if played is None or not _true_to_life(played.base, seen.step_seconds):
        return seen
    since = apart.changed_at
    healed = costs.without_workers(played, compute, apart.slow, apart.excess, since)
    by_worker = {number: _alone(played, compute, apart, number, healed) for number in apart.slow[:MOST_PLAYED].tolist()}
    together = played.slowdown(healed, max(int(since[apart.slow].min(initial=len(table.steps) - 1)), 0))
    left = costs.measure(replace(played, seconds=healed), compute)
    return replace(
        seen,
        pipeline=played,
        by_worker=by_worker,
        together=together,
        costs=replace(left, ideal=costs.against_ideal(played)),
    )


def _alone(played: Pipeline, compute: OpTable, apart: Outliers, number: int, healed: tuple[Floats, ...]) -> float:
    """Return how many times as long steps take with this one of the slow workers as they do with none.

    Where several are slow, a step is no shorter with one of them healed, and the job waits for each.
    """
    others = apart.slow[apart.slow != number]
    left = costs.without_workers(played, compute, others, apart.excess, apart.changed_at)
    return replace(played, seconds=left).slowdown(healed, max(int(apart.changed_at[number]), 0))


def _in_steps(table: OpTable, compute: Mask) -> Mask:
    """Mark what belongs to a microbatch, where anything does: an optimizer's step is another duty."""
    of_microbatch = table.microbatch >= 0
    return of_microbatch if (of_microbatch & compute).any() else np.ones(len(compute), np.bool_)


def _true_to_life(played: Floats, real: Floats) -> bool:
    known = np.isfinite(real) & (real > 0)
    return not known.any() or abs(float(np.median(played[known] / real[known])) - 1) <= TRUE_TO_LIFE
