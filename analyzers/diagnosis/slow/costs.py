"""What each kind of slowness costs the job: its steps are played again without it.

A cost is how many times as long the steps take because of it: 1.2 means that the job would do with 1 / 1.2 of the time.
Evening out keeps the work: a stage's surplus goes to the others, a long microbatch's to the others of its step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats, Ints, numbered
from analyzers.diagnosis.slow.levels import median_of_known
from analyzers.diagnosis.slow.op_table import OpTable
from analyzers.diagnosis.slow.pipeline import Pipeline
from analyzers.diagnosis.slow.transfers import even_edges

Seconds = tuple[Floats, ...]


class LongMicrobatches(NamedTuple):
    """The replica with most of the time of long microbatches: its index, its share of it and of its steps, and their cost."""

    replica: int = -1
    share: float = 0.0
    steps: float = 0.0
    costs: float = 1.0


class EvenedData(NamedTuple):
    """``agreement``: how much of what microbatches differ by all their operations agree on; ``within``: they differ in a step.

    ``in_whole_steps``: some steps are long on most workers, for all microbatches of a worker alike.
    """

    seconds: Seconds
    agreement: float
    within: bool
    in_whole_steps: bool
    longest: LongMicrobatches


@dataclass(frozen=True)
class SlowCosts:
    """Slowdowns by kind. ``ideal``: by all unevenness together; ``by_operation`` and ``by_stage``: by each alone.

    ``in_whole_steps``: some steps are long on most workers, for all microbatches of a worker alike.
    """

    ideal: float
    stages: float
    data: float
    in_whole_steps: bool
    longest: LongMicrobatches
    links: float
    stalls: float
    stalled: tuple[int, float]  # the worker whose host stalls most, and what that alone costs
    by_operation: dict[str, float]
    by_stage: dict[int, float]


def ideal(pipeline: Pipeline) -> Seconds:
    """Return the durations in which every operation of a kind takes the mean of its kind."""
    means = _means(pipeline)
    return tuple(
        np.stack([np.full(array.shape[1:], means[int(key[0])]) for key in keys]) if len(keys) else array
        for keys, array in zip(pipeline.keys, pipeline.seconds, strict=True)
    )


def against_ideal(pipeline: Pipeline) -> float:
    """Return T / T_ideal: how many times as long the steps take as they would with every operation the mean of its kind."""
    return _times(pipeline, pipeline.step_seconds(ideal(pipeline)))


def _means(pipeline: Pipeline) -> dict[int, float]:
    total: dict[int, list[float]] = {}
    for keys, array in zip(pipeline.keys, pipeline.seconds, strict=True):
        for key, one in zip(keys, pipeline.of_compared(array), strict=True):
            total.setdefault(int(key[0]), []).append(float(one[one > 0].mean()) if (one > 0).any() else 0.0)
    return {operation: float(np.mean(found)) for operation, found in total.items()}


def without_workers(pipeline: Pipeline, workers: Ints, excess: Floats, since: Ints) -> Seconds:
    """Return the durations with these workers as fast as their peers, from the step on since which they are not."""
    found = [array.copy() for array in pipeline.seconds]
    for number in workers.tolist():
        stage, replica = pipeline.places[number]
        found[stage][:, max(int(since[number]), 0) :, replica] /= float(np.exp(excess[number]))
    return tuple(found)


def balanced(pipeline: Pipeline) -> Seconds:
    """Return the durations with the work of each operation spread evenly over the stages."""
    usual = [
        {int(one): _typical(array[keys[:, 0] == one]) for one in np.unique(keys[:, 0])}
        for keys, array in zip(pipeline.keys, pipeline.seconds, strict=True)
    ]
    shared = {
        operation: float(np.mean([own[operation] for own in usual if operation in own]))
        for operation in set().union(*usual)
    }
    return tuple(
        np.stack([one * shared[int(key[0])] / own[int(key[0])] for key, one in zip(keys, array, strict=True)])
        for keys, array, own in zip(pipeline.keys, pipeline.seconds, usual, strict=True)
    )


def _typical(seconds: Floats) -> float:
    """Return the median over replicas of what an operation takes: one slow worker makes no stage long."""
    known = np.count_nonzero(seconds > 0, axis=(0, 1))
    each = seconds.sum(axis=(0, 1))[known > 0] / known[known > 0]
    return float(np.median(each)) if len(each) else 1e-300


def even_data(pipeline: Pipeline) -> EvenedData:
    """Return the durations with every microbatch alike, and how they differ.

    All operations on one microbatch, in all stages, take longer together where it is the microbatch that is long.
    """
    logs: dict[int, list[Floats]] = {}
    for keys, array in zip(pipeline.keys, pipeline.seconds, strict=True):
        with np.errstate(divide="ignore"):
            own = np.log(np.where(array > 0, array, np.nan))
        for operation in np.unique(keys[:, 0]):
            mine = keys[:, 0] == operation
            own[mine] -= median_of_known(own[mine].reshape(-1, own.shape[2]), axis=0)
        for key, one in zip(keys, own, strict=True):
            logs.setdefault(int(key[2]), []).append(one)
    agreed = {group: _mean(np.stack(found)) for group, found in logs.items()}
    level = float(np.log(np.mean([np.mean(np.exp(one)) for one in agreed.values()]))) if agreed else 0.0
    even = tuple(
        np.stack([one * np.exp(level - agreed[int(key[2])]) for key, one in zip(keys, array, strict=True)])
        for keys, array in zip(pipeline.keys, pipeline.seconds, strict=True)
    )
    longest = _longest(np.stack(list(agreed.values()))) if agreed else LongMicrobatches()
    return EvenedData(
        even,
        _agreement(logs, agreed),
        _differ(agreed, (0, 2)),
        _has_long_steps(agreed) and not _differ(agreed, (0,)),
        longest,
    )


def _longest(agreed: Floats) -> LongMicrobatches:
    over = np.where(agreed > LONG, np.exp(agreed) - 1, 0.0)  # microbatches x steps x replicas
    each = over.sum(axis=(0, 1))
    if not each.any():
        return LongMicrobatches()
    most = int(np.argmax(each))
    return LongMicrobatches(most, float(each[most] / each.sum()), float((over[:, :, most] > 0).any(axis=0).mean()))


def _mean(stacked: Floats) -> Floats:
    known = np.isfinite(stacked)
    found: Floats = np.where(known, stacked, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    return found


def _differ(agreed: dict[int, Floats], axes: tuple[int, ...]) -> bool:
    """Whether microbatches of one step differ (``axes`` 0 and 2), or of one step of a worker (axis 0).

    Where all are long, the step is, as after a restart.
    """
    if len(agreed) < 2:
        return True
    stacked = np.stack(list(agreed.values()))
    return float(stacked.var(axis=axes).mean()) >= OF_STEP * float(stacked.var())


def _has_long_steps(agreed: dict[int, Floats]) -> bool:
    """Whether a step is long on most workers."""
    return bool(agreed) and float(np.median(np.stack(list(agreed.values())), axis=(0, 2)).max()) > LONG


def _agreement(logs: dict[int, list[Floats]], agreed: dict[int, Floats]) -> float:
    """Return the share of the variance that operations on one microbatch have in common, 0 to 1."""
    several = [group for group, found in logs.items() if len(found) > 1]
    if not several:
        return 0.0
    between = float(np.var(np.stack([agreed[group] for group in several])))
    count = float(np.mean([len(logs[group]) for group in several]))
    within = float(np.mean([np.nanvar(np.stack(logs[group]) - agreed[group][None]) for group in several]))
    within *= count / (count - 1)
    own = max(between - within / count, 0.0)
    return own / (own + within) if own + within > 0 else 0.0


def measure(pipeline: Pipeline, table: OpTable) -> SlowCosts:
    """Return the costs of what no worker is to blame for, with ``pipeline`` as it would be without slow workers."""
    even = even_data(pipeline)
    gained = pipeline.slowdown(even.seconds) if even.agreement >= AGREED else 1.0
    best = ideal(pipeline)
    whole = pipeline.total(pipeline.step_seconds(best))
    no_stalls = tuple(np.zeros(array.shape) for array in pipeline.stalls)
    return SlowCosts(
        pipeline.total(pipeline.base) / whole, pipeline.slowdown(balanced(pipeline)),
        gained if even.within else 1.0, even.in_whole_steps, even.longest._replace(costs=gained),
        _times(pipeline, pipeline.step_seconds(transfer={way: even_edges(one) for way, one in pipeline.transfer.items()})),
        _times(pipeline, pipeline.step_seconds(stalls=no_stalls)), _stalled(pipeline, table),
        {name: _alone(pipeline, best, whole, code) for code, name in enumerate(table.operations) if _runs(pipeline, code)},
        {number: _stage_alone(pipeline, best, whole, index) for index, number in enumerate(pipeline.stages)},
    )  # fmt: skip


LONG = float(np.log(1.1))  # a microbatch that takes less more than others is none of the long ones
STALLS_MORE = 1.5  # times the median of the others, for one host to stall more than they
OF_STEP = 0.25  # of the variance of microbatches: of two that are drawn alike half is within a step
AGREED = 0.5  # operations that share less of their variance than this do not vary because of their microbatch


def _runs(pipeline: Pipeline, operation: int) -> bool:
    return any((keys[:, 0] == operation).any() for keys in pipeline.keys if len(keys))


def _alone(pipeline: Pipeline, best: Seconds, whole: float, operation: int) -> float:
    """Return the slowdown with this operation as it is and all others ideal."""
    mixed = tuple(
        np.where((keys[:, 0] == operation)[:, None, None], array, one)
        for keys, array, one in zip(pipeline.keys, pipeline.seconds, best, strict=True)
    )
    return pipeline.total(pipeline.step_seconds(mixed)) / whole


def _stage_alone(pipeline: Pipeline, best: Seconds, whole: float, stage: int) -> float:
    mixed = tuple(pipeline.seconds[index] if index == stage else one for index, one in enumerate(best))
    return pipeline.total(pipeline.step_seconds(mixed)) / whole


def _stalled(pipeline: Pipeline, table: OpTable) -> tuple[int, float]:
    """Return the worker that stalls longest in its ordinary step, and what that costs above the others' stalls."""
    by_place = [np.median(array.sum(axis=0), axis=0) for array in pipeline.stalls]  # of each stage, by replica
    usual: dict[int, float] = {}
    for number in numbered(table.worker)[0].tolist():
        stage, replica = pipeline.places[number]
        usual[number] = float(by_place[stage][replica])
    worst = max(usual, key=lambda number: usual[number])
    others = [seconds for number, seconds in usual.items() if number != worst]
    if not others or usual[worst] <= STALLS_MORE * float(np.median(others)):
        return -1, 1.0
    stage, replica = pipeline.places[worst]
    left = [array.copy() for array in pipeline.stalls]
    left[stage][:, :, replica] *= float(np.median(others)) / usual[worst]
    return worst, _times(pipeline, pipeline.step_seconds(stalls=tuple(left)))


def _times(pipeline: Pipeline, other: Floats) -> float:
    return pipeline.total(pipeline.base) / max(pipeline.total(other), 1e-300)
