"""When a worker runs nothing that a trace has, before its next computation: its host stalls, or does what is not recorded.

It counts only where the trace has communication, for otherwise a gap is a wait for peers; and only in steps of which the worker
lost no row, before a step only where it lost none of the step before. What garbage collection, checkpoints and data loaders take
is part of a stall, and gives it a name.
"""

from __future__ import annotations

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats, Ints, Mask, grouped_median, numbered, runs
from analyzers.diagnosis.slow.op_table import COMMUNICATION, LOADER, PAUSE, OpTable

NOTICEABLE = 0.05  # of the operation after it
MOST_OF = 0.5  # of what a host stalls, for a loader or a pause to be what it does


def before_each(table: OpTable, computes: Mask) -> Floats:
    """Return, for each computation, the seconds before it in which its worker ran nothing; 0 where that is not known."""
    found = np.zeros(int(np.count_nonzero(computes)))
    covers = ~np.isin(table.kind, (PAUSE, LOADER))
    if not np.isfinite(table.started).all() or not (table.kind == COMMUNICATION).any() or not len(found):
        return found
    rows = np.flatnonzero(covers)
    place = table.place[rows]
    idle = gaps(table.started[rows], table.started[rows] + table.seconds[rows], place)
    whole = _whole(table, rows, place)
    idle[_first_of(place)] = _between_steps(table, rows, place, whole)
    total = np.cumsum(idle)
    own = computes[rows]
    before = np.diff(total[own], prepend=0.0)
    last_before = np.searchsorted(
        np.flatnonzero(own), np.searchsorted(place, place[own])
    )  # its step's first computation
    first = last_before == np.arange(len(before))
    begin = np.searchsorted(place, place[own][first])
    before[first] = total[own][first] - total[begin] + idle[begin]
    found = np.where(whole[own], before, 0.0)
    return np.where(_before_most(found, table.seconds[computes], place[own]), 0.0, found)


def _before_most(before: Floats, seconds: Floats, place: Ints) -> Mask:
    """Mark the operations of worker steps in which most have a gap before them: the trace lacks what ran there."""
    step = numbered(place)[1]
    odd = np.bincount(step, before > NOTICEABLE * seconds)
    mark: Mask = (2 * odd > np.bincount(step))[step]
    return mark


def _first_of(place: Ints) -> Mask:
    first: Mask = np.diff(place, prepend=-1) != 0
    return first


def gaps(started: Floats, ended: Floats, place: Ints) -> Floats:
    """Return how long after the latest end before it each operation of a worker's step began."""
    idle = np.zeros(len(place))
    begins, lengths = runs(place)
    for length in np.unique(lengths).tolist():  # worker steps of one length are the rows of a matrix
        rows = begins[lengths == length][:, None] + np.arange(length)
        latest = np.maximum.accumulate(ended[rows], axis=1)
        idle[rows[:, 1:]] = np.maximum(started[rows[:, 1:]] - latest[:, :-1], 0.0)
    return idle


def _between_steps(table: OpTable, rows: Ints, place: Ints, whole: Mask) -> Floats:
    """Return how long after the step before it each worker's step began, where the trace has all of that step.

    What every worker of a stage has between its steps is no stall: they may wait for what the trace does not have.
    """
    begins = np.flatnonzero(_first_of(place))
    ended = np.maximum.reduceat(table.started[rows] + table.seconds[rows], begins)
    follows = np.diff(place[begins], prepend=-2) == 1
    follows &= np.diff(table.steps, prepend=-2)[table.step[rows][begins]] == 1
    gap = table.started[rows][begins] - np.append(0.0, ended[:-1])
    known = follows & (gap >= 0) & np.append(False, whole[begins][:-1])
    worker = table.worker[rows][begins]
    usual = grouped_median(gap[known], worker[known], len(table.workers))
    stage = np.array([one.pp for one in table.workers])
    least = np.zeros(len(stage))
    for one in np.unique(stage).tolist():
        members = stage == one
        least[members] = np.min(usual[members & np.isfinite(usual)], initial=np.inf)
    return np.where(known, np.maximum(gap - np.where(np.isfinite(least), least, 0.0)[worker], 0.0), 0.0)


def _whole(table: OpTable, rows: Ints, place: Ints) -> Mask:
    """Mark the operations of steps of which the worker has as many as it usually has, and as the others of its stage have."""
    step = numbered(place)[1]
    counts = np.bincount(step)
    each = grouped_median(counts[step].astype(np.float64), table.worker[rows], len(table.workers))
    most = np.zeros(len(table.workers))
    np.maximum.at(most, table.worker[rows], counts[step].astype(np.float64))
    stage = np.array([one.pp for one in table.workers])
    for one in np.unique(stage[(stage >= 0) & (most > 0)]).tolist():
        members = (stage == one) & (most > 0)
        most[members] = np.maximum(most[members], np.median(most[members]))
    whole: Mask = (counts[step] >= each[table.worker[rows]]) & (each >= 0.99 * most)[table.worker[rows]]
    return whole


def filled_by(table: OpTable, number: int, stalled: float) -> tuple[str, int]:
    """Return the pause or loader that takes most of the seconds that hosts stall: its name and its kind; "" where none does.

    ``number``: the worker whose host stalls, -1 for all.
    """
    own = table.worker == number if number >= 0 else np.ones(len(table.worker), np.bool_)
    total = np.bincount(table.operation[own], table.seconds[own], len(table.operations))
    candidates = [code for code, kind in enumerate(table.kinds) if kind in (PAUSE, LOADER) and total[code] > 0]
    best = max(candidates, key=lambda code: total[code], default=-1)
    return ("", -1) if best < 0 or total[best] < MOST_OF * stalled else (table.operations[best], table.kinds[best])
