"""Traces of operations of jobs of thousands of ranks: the schedule of ``OpJob``, for all replicas of a stage at once.

Rank = stage × replicas + replica; eight ranks a node. What ``OpJob`` does not have: workers that differ steadily, experts that
wait for one another in all-to-all, restarts with warm-up steps, steps that are one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random

import numpy as np
from numpy.typing import NDArray

from collectors.records import OP_COLUMNS, OpTimings
from simulation.traces.op_traces import OpJob, even

Floats = NDArray[np.float64]
Operation = tuple[str, Floats, Floats, int]
"""An operation's name, its starts, its seconds, one of each replica, and its microbatch."""
HOSTED = 8  # ranks a node
STRAY = 0.001  # of the operations, that take ``stray`` times as long: an interrupt, a page fault
DENSE = 0.6  # of a layer's work that is none of its experts'
TRANSFER_SECONDS = 0.001


@dataclass(frozen=True, kw_only=True)
class WideOpJob:
    """A job and what is slow in it.

    ``factors``: step → how many times as long as usual each worker computes, stages × replicas. ``unlike``: the spread of
    workers' speeds, steady. ``experts``: so many consecutive replicas exchange tokens; ``loads``: of their experts, stages ×
    replicas, 1 in the mean. ``numbers``: of the steps, in their order; one that is not above the last begins an attempt, as do
    those in ``restarts``, by place. ``graph``: a step is one operation of this name; with ``grads``, without the reduction.
    """

    stages: int = 8
    replicas: int = 8
    microbatches: int = 4
    numbers: tuple[int, ...] = tuple(range(8))
    seed: int = 0
    jitter: float = 0.02
    unlike: float = 0.005
    stray: float = 1.3
    splits: tuple[float, ...] = ()
    factors: Callable[[int], Floats] | None = None
    length: Callable[[Random], float] = even
    experts: int = 0
    loads: Floats | None = None
    restarts: tuple[int, ...] = ()
    graph: str = ""
    grads: bool = False

    def seconds(self) -> float:
        """Return how long the job takes."""
        return self._played[0]

    def records(self) -> Iterator[OpTimings]:
        """Yield one record a rank."""
        _, ahead, parts = self._played
        for stage, rows in enumerate(parts):
            yield from self._records(stage, rows, ahead[stage])

    @cached_property
    def _played(self) -> tuple[float, Floats, list[list[tuple[int, Operation]]]]:
        """Return when it ends, how far each worker's clock is ahead, and the operations of each stage with their steps."""
        draws, lengths = np.random.default_rng(self.seed), Random(self.seed)
        shape = self.stages, self.replicas
        ahead, speed = draws.uniform(-1_000, 1_000, shape), np.exp(draws.normal(0, self.unlike, shape))
        parts: list[list[tuple[int, Operation]]] = [[] for _ in range(self.stages)]
        begin, restarted_at = 0.0, 0
        for place, number in enumerate(self.numbers):
            if place in self.restarts:
                begin, restarted_at = begin + 300.0, place
            factor = speed * (self.factors(place) if self.factors else 1.0)
            if (
                restarted_at and place - restarted_at < 2
            ):  # caches are cold, kernels are compiled, on each rank in its own time
                factor = factor * draws.uniform(1.2, 3.0) * np.exp(draws.normal(0, 0.3, shape))
            begin, found = self._step(begin, factor, draws, lengths)
            for stage, rows in enumerate(found):
                parts[stage] += [(number, row) for row in rows]
        return begin, ahead, parts

    def _step(
        self, begin: float, factor: Floats, draws: np.random.Generator, lengths: Random
    ) -> tuple[float, list[list[Operation]]]:
        length = np.array([[self.length(lengths) for _ in range(self.replicas)] for _ in range(self.microbatches)])
        clock = np.full((self.stages, self.replicas), begin)
        schedule = OpJob(stages=self.stages, microbatches=self.microbatches)
        left = [schedule.order(stage) for stage in range(self.stages)]
        ready: dict[tuple[str, int, int], Floats] = {}
        rows: list[list[Operation]] = [[] for _ in range(self.stages)]
        while any(left):
            for stage in range(self.stages):
                while left[stage] and self._can(stage, left[stage][0], ready):
                    way, number = left[stage].pop(0)
                    self._run(stage, way, number, length[number] * factor[stage], clock, ready, rows[stage], draws)
        return self._reduced(begin, clock, rows)

    def _can(self, stage: int, what: tuple[str, int], ready: dict[tuple[str, int, int], Floats]) -> bool:
        way, number = what
        return stage == (0 if way == "forward" else self.stages - 1) or (way, stage, number) in ready

    def _run(
        self, stage: int, way: str, number: int, times: Floats, clock: Floats, ready: dict[tuple[str, int, int], Floats],
        rows: list[Operation], draws: np.random.Generator,
    ) -> None:  # fmt: skip
        def take(name: str, seconds: Floats, of: int = -1) -> None:
            rows.append((name, clock[stage].copy(), seconds, of))
            clock[stage] += seconds

        def compute(name: str, work: Floats | float) -> None:
            noise = np.exp(draws.normal(0, self.jitter, self.replicas))
            noise[draws.random(self.replicas) < STRAY] *= self.stray
            take(name, work * times * noise * (0.1 if way == "forward" else 0.2), number)

        if (sent := ready.get((way, stage, number))) is not None:
            take(f"{way}-recv", np.maximum(sent - clock[stage], 0.0) + TRANSFER_SECONDS)
        split = self.splits[stage] if self.splits else 1.0
        if not self.experts or self.loads is None:
            compute(f"{way}-compute", split)
        else:
            compute(f"{way}-compute", split * DENSE)
            take(f"{way}-all-to-all", self._together(clock[stage]))
            compute(f"{way}-expert-compute", split * (1 - DENSE) * self.loads[stage])
            take(f"{way}-all-to-all", self._together(clock[stage]))
        onward = stage + (1 if way == "forward" else -1)
        if 0 <= onward < self.stages:
            take(f"{way}-send", np.full(self.replicas, TRANSFER_SECONDS))
            ready[way, onward, number] = clock[stage] - TRANSFER_SECONDS

    def _together(self, clock: Floats) -> Floats:
        """Return how long each replica waits in an all-to-all of its experts."""
        last: Floats = (
            np.repeat(clock.reshape(-1, self.experts).max(axis=1), self.experts) - clock + 2 * TRANSFER_SECONDS
        )
        return last

    def _reduced(self, begin: float, clock: Floats, rows: list[list[Operation]]) -> tuple[float, list[list[Operation]]]:
        """Add the gradients' reduction, the optimizer and the norm of all; return when the step ends."""
        last = clock.max(axis=1) + 0.02
        end = float(last.max()) + 0.011
        for stage, found in enumerate(rows):
            ones = np.ones(self.replicas)
            if self.graph:
                whole = clock[stage] if self.grads else end * ones
                found[:] = [(self.graph, begin * ones, whole - begin, -1)]
            if not self.graph or self.grads:
                found.append(("grads-reduce-scatter", clock[stage].copy(), last[stage] - clock[stage], -1))
                found.append(("optimizer", last[stage] * ones, 0.01 * ones, -1))
                found.append(
                    ("grad-norm-all-reduce", (last[stage] + 0.01) * ones, (end - last[stage] - 0.01) * ones, -1)
                )
        return end, rows

    def _records(self, stage: int, rows: list[tuple[int, Operation]], ahead: Floats) -> Iterator[OpTimings]:
        names = sorted({row[0] for _, row in rows})
        columns = {
            "operation": np.array([names.index(row[0]) for _, row in rows]), "step": np.array([number for number, _ in rows]),
            "microbatch": np.array([row[3] for _, row in rows]), "chunk": np.full(len(rows), -1),
            "work": np.full(len(rows), np.nan),
        }  # fmt: skip
        same = {name: column.astype(OP_COLUMNS[name]).tobytes() for name, column in columns.items()}
        started, seconds = (np.array([row[place] for _, row in rows]).T for place in (1, 2))
        started, seconds = (
            np.ascontiguousarray((started + ahead[:, None]).astype(OP_COLUMNS["started"])),
            np.ascontiguousarray(seconds.astype(OP_COLUMNS["duration"])),
        )
        for replica in range(self.replicas):
            rank = stage * self.replicas + replica
            own = {"started": started[replica].tobytes(), "duration": seconds[replica].tobytes()}
            yield OpTimings(
                source=f"trace/rank{rank}", node=f"gpu-{rank // HOSTED:04}", rank=rank, strings=tuple(names), count=len(rows),
                coordinates={"dp": replica, "pp": stage}, columns=same | own, told_by="op_trace",
            )  # fmt: skip
