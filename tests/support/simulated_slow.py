"""Simulated slow jobs of up to 16,384 ranks, one worker's fault or no machine's, and how each is judged."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulation.traces.op_traces import long_documents
from simulation.traces.wide_op_traces import HOSTED, WideOpJob
from tests.support.op_traces import judged, of_records
from tests.support.slow_cases import CONTROLS, OWN_WORK

TIMES = (1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
SLOWED = "slowed worker"
Build = Callable[[random.Random, int, int], tuple[WideOpJob, int | None]]
"""Draws, ranks and seed → a job, and the rank that is slow; None: no machine is."""


@dataclass(frozen=True)
class SlowScore:
    """What became of a case. ``guilty`` and ``times``: of the worker that was slowed. ``top``: it, or its node, comes first.

    ``named``: ranks, machines or links that are named without fault. ``evicted``: ranks without fault that would be evicted.
    ``controls``: simple rule → whether it has the worker alone, and how many ranks without fault it would evict.
    """

    cell: str
    ranks: int
    seed: int
    times: float
    operations: int
    top: bool
    class_right: bool
    abstained: bool
    named: int
    evicted: int
    fault_class: str
    seconds: float
    controls: dict[str, tuple[bool, int]] = field(default_factory=dict)


def shaped(draws: random.Random, ranks: int, **more: Any) -> dict[str, Any]:
    """Return a job's shape: stages, replicas, microbatches and noise."""
    large = ranks > 1024
    stages = draws.choice([8, 16] if large else [1, 4, 8, 16] if ranks > 64 else [1, 2, 4, 8])
    return {
        "stages": stages, "replicas": ranks // stages, "microbatches": 4 if large else draws.choice([4, 8]),
        "numbers": tuple(range(6 if large else draws.randint(8, 14))), "seed": draws.getrandbits(32),
        "jitter": draws.uniform(0.005, 0.03), "unlike": draws.uniform(0.0, 0.008),
    } | more  # fmt: skip


def _piped(draws: random.Random, ranks: int) -> dict[str, Any]:
    what = shaped(draws, ranks)
    if what["stages"] == 1:
        what |= {"stages": 4, "replicas": ranks // 4}
    return what


def slowed(draws: random.Random, ranks: int, seed: int) -> tuple[WideOpJob, int | None]:
    """One worker is slow: any, from the start or since a step."""
    what, times = shaped(draws, ranks), TIMES[seed % len(TIMES)]
    steps = len(what["numbers"])
    place = draws.randrange(what["stages"]), draws.randrange(what["replicas"])
    since = 0 if steps < 8 or draws.random() < 0.5 else draws.randint(3, steps - 4)
    factors = _from_step(what, [place], [times], since)
    return WideOpJob(**what, factors=factors), place[0] * what["replicas"] + place[1]


def _from_step(
    what: dict[str, Any], places: list[tuple[int, int]], times: list[float], since: int
) -> Callable[[int], NDArray[np.float64]]:
    later = np.ones((what["stages"], what["replicas"]))
    for place, one in zip(places, times, strict=True):
        later[place] = one
    return lambda step: later if step >= since else np.ones_like(later)


def uneven_stage(draws: random.Random, ranks: int, _seed: int) -> tuple[WideOpJob, int | None]:
    """Any stage has more layers."""
    what = _piped(draws, ranks)
    splits = [1.0] * what["stages"]
    splits[draws.randrange(what["stages"])] = draws.uniform(1.1, 2.0)
    return WideOpJob(**what, splits=tuple(splits)), None


def first_or_last(draws: random.Random, ranks: int, _seed: int) -> tuple[WideOpJob, int | None]:
    """The loss or the embedding makes the first or the last stage longer, or both."""
    what = _piped(draws, ranks)
    splits = [1.0] * what["stages"]
    for stage in draws.choice([(0,), (-1,), (0, -1)]):
        splits[stage] = draws.uniform(1.05, 1.6)
    return WideOpJob(**what, splits=tuple(splits)), None


def hot_expert(draws: random.Random, ranks: int, _seed: int) -> tuple[WideOpJob, int | None]:
    """Experts get unlike shares of the tokens, one of each group or of one stage most."""
    what = shaped(draws, ranks)
    own = np.random.default_rng(what["seed"])
    loads = np.exp(own.normal(0, draws.uniform(0.0, 0.2), (what["stages"], what["replicas"])))
    group = min(8, what["replicas"])
    if draws.random() < 0.5:
        loads[:, draws.randrange(group) :: group] *= draws.uniform(1.3, 3.0)
    else:
        loads[draws.randrange(what["stages"]), draws.randrange(what["replicas"])] *= draws.uniform(1.3, 3.0)
    return WideOpJob(**what, experts=group, loads=loads), None


def documents(draws: random.Random, ranks: int, _seed: int) -> tuple[WideOpJob, int | None]:
    """Microbatches are of packed documents, whose attention costs the square of their lengths."""
    return WideOpJob(**shaped(draws, ranks), length=long_documents), None


def half_a_rack(draws: random.Random, ranks: int, _seed: int) -> tuple[WideOpJob, int | None]:
    """Four machines next to one another are throttled, each as its place in the rack has it, from the start or since a step."""
    what = shaped(draws, ranks)
    nodes = min(4, ranks // HOSTED // 2)
    first, base = draws.randrange(ranks // HOSTED - nodes + 1), draws.uniform(1.1, 1.8)
    places, times = [], []
    for node in range(first, first + nodes):
        each = 1 + (base - 1) * draws.uniform(0.7, 1.3)
        for rank in range(node * HOSTED, (node + 1) * HOSTED):
            places.append(divmod(rank, what["replicas"]))
            times.append(each * draws.uniform(0.99, 1.01))
    since = 0 if draws.random() < 0.5 else draws.randint(3, len(what["numbers"]) - 4)
    return WideOpJob(**what, factors=_from_step(what, places, times, since)), None


def restart_storm(draws: random.Random, ranks: int, _seed: int) -> tuple[WideOpJob, int | None]:
    """The job restarts two to five times; its first steps are slow each time, on each rank as its caches have it.

    It goes on where it stopped, or does steps again.
    """
    what = shaped(draws, ranks)
    numbers, restarts = [0], []
    repeats = draws.random() < 0.5
    for _ in range(draws.randint(2, 5)):
        for _ in range(draws.randint(2, 5)):
            numbers.append(numbers[-1] + 1)
        restarts.append(len(numbers))
        numbers.append(max(numbers[-1] - (draws.randint(0, 3) if repeats else -1), 0))
    return WideOpJob(**what | {"numbers": tuple(numbers)}, restarts=tuple(restarts)), None


def cuda_graph(draws: random.Random, ranks: int, _seed: int) -> tuple[WideOpJob, int | None]:
    """A step is one operation, in which the waits for others are; one worker, a stage or none is slow."""
    what = shaped(draws, ranks)
    place = draws.randrange(what["stages"]), draws.randrange(what["replicas"])
    times, at_fault = draws.choice([1.0, 1.2, 1.5, 2.0]), None
    what["graph"] = draws.choice(["forward-backward-compute", "cuda-graph-replay", "train-batch"])
    what["grads"] = draws.random() < 0.5
    if times > 1:
        at_fault = place[0] * what["replicas"] + place[1]
    return WideOpJob(**what, factors=_from_step(what, [place], [times], 0)), at_fault


CELLS: dict[str, tuple[Build, tuple[str, ...]]] = {  # cell → its jobs, and the causes that are right
    SLOWED: (slowed, ("machine",)),
    "uneven stage": (uneven_stage, ("imbalance", "none")),
    "first or last stage longer": (first_or_last, ("imbalance", "none")),
    "hot expert": (hot_expert, ("data", "imbalance", "unknown", "none")),
    "long documents": (documents, ("data", "none", "unknown")),
    "half a rack throttled": (half_a_rack, ("unknown",)),
    "restart storm": (restart_storm, ("none", "unknown", "code")),
    "CUDA-graph steps": (cuda_graph, ("none", "unknown", "machine", "imbalance")),
}


def run_case(cell: str, ranks: int, seed: int) -> SlowScore:
    """Simulate one case and judge it, with what simple rules would do."""
    build, causes = CELLS[cell]
    draws = random.Random(f"{cell} {ranks} {seed}")
    job, guilty = build(draws, ranks, seed)
    records = list(job.records())
    begun = time.process_time()
    verdict = judged(records)
    seconds = time.process_time() - begun
    own = {guilty, None if guilty is None else f"gpu-{guilty // HOSTED:04}"}
    innocents = [
        one for one in verdict.culprits
        if one.kind in ("rank", "device", "node", "link", "switch", "group") and (guilty is None or set(one.ranks) != {guilty})
    ]  # fmt: skip
    first = verdict.culprits[0] if verdict.culprits else None
    evicts = set(verdict.action.ranks) if verdict.action.kind == "evict" else set()
    if verdict.action.kind == "evict" and not evicts:
        evicts = {-1} if not set(verdict.action.nodes) <= own else set()
    return SlowScore(
        cell, ranks, seed, TIMES[seed % len(TIMES)] if cell == SLOWED else 0.0, sum(record.count for record in records),
        first is not None and guilty is not None and set(first.ranks) == {guilty}, verdict.cause in causes, verdict.abstained,
        len(innocents), len(evicts - {guilty}), ", ".join(root.fault_class for root in verdict.roots), round(seconds, 2),
        dict(_controls(records, guilty, ranks)),
    )  # fmt: skip


def _controls(records: list[Any], guilty: int | None, ranks: int) -> Iterator[tuple[str, tuple[bool, int]]]:
    table = of_records(records)
    has_work = bool(table.named(*OWN_WORK).any())
    for control in CONTROLS:
        if ranks <= 1024 or "distance" not in control.name:  # it compares each with each
            evicts = set(control.evicts(table)) if has_work else set()
            yield control.name, (guilty is not None and evicts == {guilty}, len(evicts - {guilty}))
