"""Traces of operations of a job with pipeline stages and replicas, as a profiler would write them; what is slow is given.

One forward, one backward (1F1B): stage p runs S - p forwards ahead. A receive waits for its send, a gradient reduction for
all replicas of its stage. Each worker's clock has an origin of its own.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

Factor = Callable[[int, int, int], float]
"""Stage, replica and step → how many times as long as usual."""
Row = tuple[str, float, float, int]
"""An operation's name, its start, its seconds and its microbatch."""


def usual(_stage: int, _replica: int, _step: int) -> float:
    """Return that nothing is slow."""
    return 1.0


def even(_draws: random.Random) -> float:
    """Return that every microbatch is alike."""
    return 1.0


def long_documents(draws: random.Random) -> float:
    """Return the cost of a microbatch of packed sequences: attention grows with the square of their lengths."""
    return min(0.6 + draws.paretovariate(2.5) * 0.3, 6.0)


@dataclass(frozen=True)
class OpJob:
    """A job and what is slow in it. ``ahead_seconds``: how far each worker's clock may be from the others'."""

    stages: int = 4
    replicas: int = 4
    microbatches: int = 8
    steps: int = 12
    seed: int = 0
    forward_seconds: float = 0.1
    jitter: float = 0.01
    splits: tuple[float, ...] = ()  # of each stage, times the usual work
    worker: Factor = usual
    length: Callable[[random.Random], float] = even
    transfer: Factor = usual  # of a stage's sends
    pause: Callable[[int, int, int, random.Random], float] | None = None  # seconds before a step's first operation
    ahead_seconds: float = 1_000.0
    draws: random.Random = field(init=False)

    def __post_init__(self) -> None:
        """Seed the draws."""
        object.__setattr__(self, "draws", random.Random(self.seed))

    def rows(self) -> Iterator[tuple[int, int, int, list[Row]]]:
        """Yield stage, replica, step and the operations, of each worker and step in their order."""
        ahead = {
            place: self.draws.uniform(-self.ahead_seconds, self.ahead_seconds)
            for place in ((stage, replica) for stage in range(self.stages) for replica in range(self.replicas))
        }
        begin = 0.0
        for step in range(self.steps):
            done = {replica: self._replica(replica, step, begin) for replica in range(self.replicas)}
            begin = self._reduced(done)
            for replica, stages in done.items():
                for stage, found in stages.items():
                    shift = ahead[stage, replica]
                    yield stage, replica, step, [(name, at + shift, took, number) for name, at, took, number in found]

    def order(self, stage: int) -> list[tuple[str, int]]:
        """Return a stage's computations in their order."""
        ahead = min(self.stages - stage, self.microbatches)
        found = [("forward", number) for number in range(ahead)]
        for number in range(self.microbatches):
            found.append(("backward", number))
            if ahead + number < self.microbatches:
                found.append(("forward", ahead + number))
        return found

    def _replica(self, replica: int, step: int, begin: float) -> dict[int, list[Row]]:
        lengths = [self.length(self.draws) for _ in range(self.microbatches)]
        clock = {
            stage: begin + (self.pause(stage, replica, step, self.draws) if self.pause else 0.0)
            for stage in range(self.stages)
        }
        left = {stage: self.order(stage) for stage in range(self.stages)}
        ready: dict[tuple[str, int, int], float] = {}  # when what a stage waits for was sent
        rows: dict[int, list[Row]] = defaultdict(list)
        while any(left.values()):
            for stage in range(self.stages):
                while left[stage] and self._can(stage, *left[stage][0], ready):
                    self._run(stage, replica, step, *left[stage].pop(0), lengths, clock, ready, rows)
        return dict(rows)

    def _can(self, stage: int, way: str, number: int, ready: dict[tuple[str, int, int], float]) -> bool:
        first = stage == 0 if way == "forward" else stage == self.stages - 1
        return first or (way, stage, number) in ready

    def _run(
        self, stage: int, replica: int, step: int, way: str, number: int, lengths: list[float], clock: dict[int, float],
        ready: dict[tuple[str, int, int], float], rows: dict[int, list[Row]],
    ) -> None:  # fmt: skip
        if (sent := ready.get((way, stage, number))) is not None:
            transfer = 0.001 * self.transfer(stage - (1 if way == "forward" else -1), replica, step)
            end = max(clock[stage], sent) + transfer
            rows[stage].append((f"{way}-recv", clock[stage], end - clock[stage], -1))
            clock[stage] = end
        took = self._seconds(stage, replica, step, way) * lengths[number]
        rows[stage].append((f"{way}-compute", clock[stage], took, number))
        clock[stage] += took
        onward = stage + (1 if way == "forward" else -1)
        if 0 <= onward < self.stages:
            transfer = 0.001 * self.transfer(stage, replica, step)
            rows[stage].append((f"{way}-send", clock[stage], transfer, -1))
            ready[way, onward, number] = clock[stage]

    def _seconds(self, stage: int, replica: int, step: int, way: str) -> float:
        split = self.splits[stage] if self.splits else 1.0
        noise = max(self.draws.gauss(1.0, self.jitter), 0.1)
        return self.forward_seconds * (1 if way == "forward" else 2) * split * noise * self.worker(stage, replica, step)

    def _reduced(self, done: dict[int, dict[int, list[Row]]]) -> float:
        """Add the gradient reduction, the optimizer and the norm of all; return when the step ends."""
        end = 0.0
        for stage in range(self.stages):
            arrived = {replica: stages[stage][-1][1] + stages[stage][-1][2] for replica, stages in done.items()}
            last = max(arrived.values()) + 0.02
            for replica, at in arrived.items():
                done[replica][stage].append(("grads-reduce-scatter", at, last - at, -1))
                done[replica][stage].append(("optimizer", last, 0.01, -1))
            end = max(end, last + 0.01)
        for stages in done.values():  # the gradients' norm is of all stages
            for found in stages.values():
                at = found[-1][1] + found[-1][2]
                found.append(("grad-norm-all-reduce", at, end + 0.001 - at, -1))
        return end + 0.001
