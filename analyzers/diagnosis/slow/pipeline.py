"""The schedule of a job's steps, played again with other durations: how long a step would take if something were even.

Each stage runs its operations in the order that the trace shows; a forward waits for the stage before it, a backward for
the stage after it; at the end of the step all replicas wait for one another. Only durations and each worker's own order
come from the trace, so that clocks may differ (What-if analysis: ByteDance, OSDI 2025, section 3.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from analyzers.diagnosis.slow import stalls
from analyzers.diagnosis.slow.grouping import Floats, Ints, Mask, combined, grouped_median, numbered
from analyzers.diagnosis.slow.op_table import COMMUNICATION, COMPUTE, OpTable
from analyzers.diagnosis.slow.transfers import BACKWARD, FORWARD, LOCAL, by_edge, direction_of, is_transfer, ordinals

MOST_CELLS = 60_000_000  # stages × operations × steps × replicas
MOST_NODES = 20_000  # stages × operations: of more, to play a step twenty times takes too long


@dataclass(frozen=True, slots=True)
class _Node:
    stage: int  # an index
    place: int  # in the stage's order
    after: tuple[int, int] | None  # the (stage, place) that it waits for
    direction: str


@dataclass(frozen=True)
class Pipeline:
    """One array of seconds a stage: operations in their order × steps × replicas. ``rest``: seconds outside, a step.

    ``compared``: the steps that are compared; None: all.
    """

    stages: tuple[int, ...]
    replicas: tuple[int, ...]
    keys: tuple[Ints, ...]  # of each stage, a row an operation: (operation, chunk, microbatch)
    seconds: tuple[Floats, ...]
    nodes: tuple[_Node, ...]
    transfer: dict[str, Floats]  # direction → seconds by the index of the sending stage and of the replica
    rest: Floats
    stalls: tuple[Floats, ...]  # as ``seconds``: before each operation
    places: tuple[tuple[int, int], ...]  # of each worker: the indices of its stage and its replica
    compared: Mask | None = None

    def step_seconds(
        self,
        seconds: tuple[Floats, ...] | None = None,
        stalls: tuple[Floats, ...] | None = None,
        transfer: dict[str, Floats] | None = None,
    ) -> Floats:
        """Return how long each step takes with these durations, stalls and transfers."""
        moved = self.transfer if transfer is None else transfer
        given = self.seconds if seconds is None else seconds
        idle = self.stalls if stalls is None else stalls
        zero = np.zeros((len(self.rest), len(self.replicas)))
        ends: list[list[Floats]] = [[] for _ in self.stages]
        for node in self.nodes:
            done = ends[node.stage]
            begin = done[-1] if done else zero
            if node.after is not None:
                begin = np.maximum(begin, ends[node.after[0]][node.after[1]] + moved[node.direction][node.after[0]])
            done.append(begin + idle[node.stage][node.place] + given[node.stage][node.place])
        last = np.max([stage[-1].max(axis=1) for stage in ends if stage], axis=0)
        found: Floats = last + self.rest
        return found

    @cached_property
    def base(self) -> Floats:
        """Return how long each step takes as it is."""
        return self.step_seconds()

    def stalled(self, worker: int) -> float:
        """Return for how many seconds the host of a worker stalls, or those of all for -1."""
        if worker < 0:
            return float(sum(array.sum() for array in self.stalls))
        stage, replica = self.places[worker]
        return float(self.stalls[stage][:, :, replica].sum())

    def slowdown(self, seconds: tuple[Floats, ...], since: int = 0) -> float:
        """Return how many times as long the steps from one on take as they would with these durations."""
        return self.total(self.base, since) / max(self.total(self.step_seconds(seconds), since), 1e-300)

    def total(self, seconds: Floats, since: int = 0) -> float:
        """Return what the compared steps from one on take, of all steps."""
        return float(self.of_compared(seconds, since).sum())

    def of_compared(self, seconds: Floats, since: int = 0) -> Floats:
        """Return the compared steps from one on, of operations × steps × replicas or of steps; all where none is compared."""
        compared = None if self.compared is None else self.compared[since:]
        left = seconds[:, since:] if seconds.ndim > 1 else seconds[since:]
        if compared is None or not compared.any():
            return left
        return left[:, compared] if seconds.ndim > 1 else left[compared]


def build(table: OpTable, computes: Mask) -> Pipeline | None:
    """Return the schedule; None where it does not show in the trace, or is too large to be played."""
    compute = table.rows(computes)
    computing = [table.workers[number] for number in numbered(compute.worker)[0].tolist()]
    stages = sorted({worker.pp for worker in computing})
    replicas = sorted({worker.dp for worker in computing})
    anonymous = len(replicas) == 1 and len(stages) == 1
    if anonymous:  # each worker is a replica
        replicas, replica = list(range(len(table.workers))), np.arange(len(table.workers))
    else:
        of_dp = {dp: index for index, dp in enumerate(replicas)}
        replica = np.array([of_dp.get(one.dp, -1) for one in table.workers])
    of_pp = {pp: index for index, pp in enumerate(stages)}
    stage = np.array([of_pp.get(one.pp, -1) for one in table.workers])
    keys, arrays, idle = [], [], []
    stall = stalls.before_each(table, computes)
    for number in range(len(stages)):
        mine = stage[compute.worker] == number
        found, array, waits_host = _dense(compute.rows(mine), stall[mine], replica, len(replicas))
        if array.size * len(stages) > MOST_CELLS or len(found) * len(stages) > MOST_NODES:
            return None
        keys.append(found)
        arrays.append(array)
        idle.append(waits_host)
    nodes = _nodes(keys, compute.operations)
    if nodes is None:
        return None
    rest = _rest(table, compute)
    transfer = {
        direction: by_edge(table, direction, stages, [] if anonymous else replicas) for direction in (FORWARD, BACKWARD)
    }
    transfer[LOCAL] = np.zeros((len(stages), len(replicas)))
    return Pipeline(
        tuple(stages), tuple(replicas), tuple(keys), tuple(arrays), nodes, transfer, rest, tuple(idle),
        tuple(zip(stage.tolist(), replica.tolist(), strict=True)),
    )  # fmt: skip


def _dense(rows: OpTable, stall: Floats, replica: Ints, replicas: int) -> tuple[Ints, Floats, Floats]:
    """Return the operations of a stage in their order; their seconds, and those before them, by operation, step and replica."""
    micro = _numbered(rows)
    again = _layer(rows, micro) if rows.has_starts else np.zeros_like(micro)  # without them it may be one row twice
    key = combined(rows.operation, rows.chunk, micro, again)
    first = np.zeros(int(key.max(initial=-1)) + 1, np.int64)
    first[key] = np.arange(len(key))
    keys = np.column_stack([rows.operation, rows.chunk, micro])[first]
    when = grouped_median(_since_start(rows), key, len(keys))
    order = np.lexsort((keys[:, 2], when))
    place = np.empty(len(keys), np.int64)
    place[order] = np.arange(len(keys))
    array = np.zeros((len(keys), len(rows.steps), replicas))
    where = (place[key], rows.step, replica[rows.worker])
    np.maximum.at(array, where, rows.seconds)
    idle = np.zeros(array.shape)
    np.maximum.at(idle, where, stall)
    if not array.all():
        array = np.where(array > 0, array, _filled(array, rows, replica))
    return keys[order], array, idle


def _layer(rows: OpTable, micro: Ints) -> Ints:
    """Return how many rows of the same operation come before each; no more than usual: a step may have been run again."""
    cell = combined(rows.operation, rows.chunk, micro)
    group = combined(rows.worker, rows.step, cell)
    usual = grouped_median(np.bincount(group)[group].astype(np.float64), cell, int(cell.max(initial=-1)) + 1)
    return np.minimum(ordinals(group), usual.astype(np.int64)[cell] - 1)


def _filled(array: Floats, rows: OpTable, replica: Ints) -> Floats:
    """Return what lost operations are taken for: the median of their kind, as slow as their replica is in that step.

    A replica without any operation in a step did none: it was not recorded, and holds up no other.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        known = np.where(array > 0, array, np.nan)
        usual = np.array([np.nanmedian(one) if np.isfinite(one).any() else 0.0 for one in known])
    seen = np.zeros(array.shape[1:], np.bool_)
    seen[rows.step, replica[rows.worker]] = True
    relative = np.nanmedian(np.where(seen[None], known / usual[:, None, None], 1.0), axis=0)
    return usual[:, None, None] * np.where(seen, np.nan_to_num(relative, nan=1.0), 0.0)[None]


def _numbered(rows: OpTable) -> Ints:
    """Return the microbatches; where the trace has none, the k-th operation of its kind in a worker's step."""
    if (rows.microbatch >= 0).all() or not len(rows.step):
        return rows.microbatch
    span = len(rows.steps) * len(rows.operations)
    group = (rows.worker * span + rows.step * len(rows.operations) + rows.operation) * 2 + (rows.microbatch >= 0)
    return np.where(rows.microbatch >= 0, rows.microbatch, ordinals(group))


def _since_start(rows: OpTable) -> Floats:
    """Return when each operation began, from the first of its worker's step; by the order of rows where no time is known."""
    place = rows.worker * len(rows.steps) + rows.step
    started = np.where(np.isfinite(rows.started), rows.started, np.arange(len(place), dtype=np.float64))
    group = numbered(place)[1]
    first = np.full(int(group.max(initial=-1)) + 1, np.inf)
    np.minimum.at(first, group, started)
    since: Floats = started - first[group]
    return since


def _nodes(keys: list[Ints], operations: tuple[str, ...]) -> tuple[_Node, ...] | None:
    """Return all operations in an order in which each comes after what it waits for; None where there is no such order."""
    directions = [direction_of(name) for name in operations]
    where = {
        (stage, directions[row[0]], max(int(row[1]), 0), int(row[2])): place
        for stage, rows in enumerate(keys)
        for place, row in enumerate(rows)
    }
    chunks = max((key[2] for key in where), default=0) + 1
    waits: list[list[tuple[int, int] | None]] = []
    for stage, rows in enumerate(keys):
        waits.append([_before(where, stage, directions[row[0]], row, len(keys), chunks) for row in rows])
    made: list[_Node] = []
    done = [0] * len(keys)
    moved = True
    while moved:
        moved = False
        for stage, own in enumerate(waits):
            while done[stage] < len(own):
                after = own[done[stage]]
                if after is not None and done[after[0]] <= after[1]:
                    break
                made.append(_Node(stage, done[stage], after, directions[keys[stage][done[stage]][0]]))
                done[stage] += 1
                moved = True
    return tuple(made) if sum(done) == sum(map(len, waits)) and made else None


def _before(
    where: dict[tuple[int, str, int, int], int], stage: int, direction: str, row: Ints, stages: int, chunks: int
) -> tuple[int, int] | None:
    """Return what an operation waits for in another stage."""
    if direction == LOCAL or stages == 1:
        return None
    position = max(int(row[1]), 0) * stages + stage + (-1 if direction == FORWARD else 1)
    if not 0 <= position < chunks * stages:
        return None
    other = (position % stages, direction, position // stages, int(row[2]))
    return (other[0], where[other]) if other in where and other[0] != stage else None


def _rest(table: OpTable, compute: OpTable) -> Floats:
    """Return what a step takes outside of the pipeline: of each collective the shortest, for its last member waits for none."""
    total = np.zeros(len(table.steps))
    kinds = table.kind
    inside = set(np.unique(compute.operation).tolist())
    for code, name in enumerate(table.operations):
        if code in inside or is_transfer(name):
            continue
        mine = (table.operation == code) & np.isin(kinds, (COMMUNICATION, COMPUTE))
        if mine.any():
            shortest = np.full(len(table.steps), np.inf)
            np.minimum.at(shortest, table.step[mine], table.seconds[mine])
            total += np.where(np.isfinite(shortest), shortest, 0.0)
    return total
