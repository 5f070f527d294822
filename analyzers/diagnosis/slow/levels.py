"""How long each worker takes for the same work, against two references: its peers of the same duty, and its own past.

A duty is a pipeline stage, a context parallel rank, a virtual chunk, an operation and a model of device. The logarithm
of an operation's time is what its duty takes, plus what all workers share in that step, plus the worker's own level. Levels
are medians: neither one long microbatch nor the fastest worker decides. What all stages of a replica share is not a
machine's: they compute the same microbatches (ByteDance, OSDI 2025, section 5.3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats, Ints, Mask, combined, grouped_median, numbered, row_median
from analyzers.diagnosis.slow.op_table import OpTable
from analyzers.model.medians import DEVIATION_BY_MEDIAN, MEDIAN_ERROR

LEAST_NOISE = 0.003  # of a level: below this a profiler's own clock decides
LASTING = 0.7  # of the steps since a change, and before it
SHORTEST = 3  # steps on either side of a change


@dataclass(frozen=True)
class Levels:
    """Logarithms, by worker or by worker and step. ``level``: against the peers of its duty; ``by_step``: the same, a step.

    ``shared``: what all stages of the worker's replica have in common, taken out of ``level``.
    ``noise``: the standard error of a level. ``peers``: how many workers have its duty, itself included.
    """

    level: Floats
    by_step: Floats
    shared: Floats
    noise: Floats
    peers: Ints
    duty: Ints
    cell: Ints  # of each row of the table: its duty and operation
    usual: Floats  # of each cell
    step_level: Floats  # what all workers share in a step


def measure(table: OpTable) -> Levels:
    """Return the levels of every worker of the table, whose operations are all compute."""
    count, steps = len(table.workers), len(table.steps)
    duty, models = _duties(table)
    cell = combined(duty[table.worker], table.operation, table.chunk)
    cells = int(cell.max(initial=-1)) + 1
    logs = np.log(table.per_work)
    # Each worker counts once, however many of its operations were recorded.
    own = grouped_median(logs, cell * count + table.worker, cells * count).reshape(cells, count)
    usual = median_of_known(own, axis=1)
    rest = logs - usual[cell]
    wanted, place = numbered((table.worker * steps + table.step) * cells + cell)
    by_cell = grouped_median(rest, place, len(wanted))
    # An operation counts as much as the time that it takes.
    weight = np.bincount(place, np.exp(usual)[cell], len(wanted))
    where = wanted // cells
    total = np.bincount(where, weight, count * steps)
    with np.errstate(invalid="ignore"):
        by_step = (np.bincount(where, by_cell * weight, count * steps) / total).reshape(count, steps)
    step_level = np.nan_to_num(median_of_known(by_step, axis=0))
    by_step = by_step - step_level
    level = median_of_known(by_step, axis=1)
    level = level - _of_duty(level, duty)[duty]
    shared = _shared(table, level)
    return Levels(
        level - shared, by_step, shared, _noise(table, by_step, rest - step_level[table.step]),
        np.bincount(duty[np.isfinite(level)], minlength=len(models))[duty], duty, cell, usual, step_level,
    )  # fmt: skip


def _duties(table: OpTable) -> tuple[Ints, list[tuple[int, int, str]]]:
    known: dict[tuple[int, int, str], int] = {}
    duty = [known.setdefault((worker.pp, worker.cp, worker.model), len(known)) for worker in table.workers]
    return np.array(duty, np.int64), list(known)


def _of_duty(level: Floats, duty: Ints) -> Floats:
    known = np.isfinite(level)
    return np.nan_to_num(grouped_median(level[known], duty[known], int(duty.max(initial=-1)) + 1))


def _shared(table: OpTable, level: Floats) -> Floats:
    """Return what all stages of a replica have in common: the least of what each of them has on the same side."""
    found = np.zeros(len(level))
    replicas: dict[int, list[int]] = {}
    for number, worker in enumerate(table.workers):
        if worker.dp >= 0 and np.isfinite(level[number]):
            replicas.setdefault(worker.dp, []).append(number)
    for members in replicas.values():
        own = level[members]
        if len({table.workers[number].pp for number in members}) > 1 and (np.all(own > 0) or np.all(own < 0)):
            found[members] = own[np.argmin(np.abs(own))]
    return found


def _noise(table: OpTable, by_step: Floats, rest: Floats) -> Floats:
    """Return the standard error of each level: by its steps, or where there are few, by its operations."""
    count = len(table.workers)
    known = np.isfinite(by_step).sum(axis=1)
    by_steps = np.nan_to_num(spreads(by_step, np.isfinite(by_step))) / np.sqrt(np.maximum(known, 1))
    centre = grouped_median(rest, table.worker, count)
    rows = np.bincount(table.worker, minlength=count)
    off = grouped_median(np.abs(rest - centre[table.worker]), table.worker, count)
    by_rows = DEVIATION_BY_MEDIAN * off / np.sqrt(np.maximum(rows, 1))
    error: Floats = MEDIAN_ERROR * np.where(known >= SHORTEST, by_steps, np.maximum(by_steps, by_rows))
    return np.maximum(error, LEAST_NOISE)


def median_of_known(values: Floats, axis: int) -> Floats:
    """Return medians without a warning where nothing is known."""
    known = np.isfinite(values).any(axis=axis)
    filled = np.where(np.expand_dims(known, axis), values, 0.0)
    found: Floats = np.where(known, np.nanmedian(filled, axis=axis), np.nan)
    return found


def changes(levels: Levels) -> tuple[Floats, Ints, Floats]:
    """Return, for each worker, the largest rise of its level, the step where it begins, and how many times its noise it is.

    Where it begins comes from the largest deviation of the cumulative sum; its size from the medians before and after, and
    it is the lesser of two: against all workers, and of the worker's own time. Who stays while the others become faster has
    not changed.
    """
    by_step = levels.by_step - levels.shared[:, None]
    count, steps = by_step.shape
    size, at, times = np.zeros(count), np.zeros(count, np.int64), np.zeros(count)
    if steps < 2 * SHORTEST:
        return size, at, times
    filled = np.nan_to_num(np.where(np.isfinite(by_step), by_step, median_of_known(by_step, axis=1)[:, None]))
    own = filled + levels.step_level
    at = turn(filled)
    relative, noise = rises(filled, at)
    size = np.minimum(relative, rises(own, at)[0])
    # Few steps may look quiet by chance: what is usual among the workers is the least.
    error = np.maximum(noise, max(float(np.median(noise)) if count else 0.0, LEAST_NOISE))
    times = size / (MEDIAN_ERROR * error * np.sqrt(1 / at + 1 / (steps - at)))
    return size, at, np.where(_is_lasting(filled, at, relative), times, 0.0)


def _is_lasting(series: Floats, at: Ints, size: Floats) -> Mask:
    """Mark the rows of which most values after a place are above half of their rise, and most before it are not."""
    after = np.arange(series.shape[1]) >= at[:, None]
    high = series > (row_median(series, ~after) + size / 2)[:, None]
    share_after, share_before = ((high & part).sum(axis=1) / part.sum(axis=1) for part in (after, ~after))
    lasting: Mask = (share_after >= LASTING) & (share_before <= 1 - LASTING)
    return lasting


def turn(series: Floats) -> Ints:
    """Return where each row most likely rises: the index of the first step after it."""
    steps = series.shape[1]
    sums = np.cumsum(series - series.mean(axis=1, keepdims=True), axis=1)[:, :-1]
    length = np.arange(1, steps)
    scaled = -sums / np.sqrt(length * (steps - length) / steps)
    scaled[:, : SHORTEST - 1] = -np.inf
    scaled[:, steps - SHORTEST :] = -np.inf
    at: Ints = np.argmax(scaled, axis=1) + 1
    return at


def rise(series: Floats, at: int) -> tuple[float, float]:
    """Return by how much a series is higher from a place on, and how it spreads before and after."""
    size, noise = rises(series[None], np.array([at]))
    return float(size[0]), float(noise[0])


def rises(series: Floats, at: Ints) -> tuple[Floats, Floats]:
    """Return the same of each row, which has a place of its own; nothing may be unknown."""
    after = np.arange(series.shape[1]) >= at[:, None]
    low, high = row_median(series, ~after), row_median(series, after)
    rest = series - np.where(after, high[:, None], low[:, None])
    return high - low, spreads(rest, np.ones_like(after))


def spreads(values: Floats, known: Mask) -> Floats:
    """Return the ``spread`` of what is known of each row, NaN where nothing is."""
    off = np.abs(values - row_median(values, known)[:, None])
    return DEVIATION_BY_MEDIAN * row_median(off, known)
