"""Simulated slow jobs of up to 16,384 ranks, one worker's fault or no machine's, and how each is judged."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.slow.claim import WORTH
from analyzers.diagnosis.slow.slow_workers import LATENT
from simulation.traces.op_traces import long_documents
from simulation.traces.wide_op_traces import HOSTED, WideOpJob
from tests.support.op_traces import judged, of_records
from tests.support.slow_cases import CONTROLS, OWN_WORK

TIMES = (1.1, 1.15, 1.2, 1.3, 1.5, 2.0)
SLOWED, STRAYS = "slowed worker", "slowed worker among strays"
Case = tuple[WideOpJob, int | None, WideOpJob | None]
"""A job, the rank that is slow, None where no machine is, and the job without what slows it, by the same draws."""
Build = Callable[[random.Random, int, int], Case]
"""Draws, ranks and seed → a case."""


@dataclass(frozen=True)
class SlowScore:
    """What became of a case. ``times``: of the worker that was slowed. ``cost``: how many times as long the job takes by it.

    ``top``: the slowed worker, or its node, is named first. ``latent``: it is named as slower than its peers, and that the job
    does not wait for it. ``named``: ranks, machines or links that are named without fault. ``evicted``: ranks without fault that
    would be evicted. ``controls``: simple rule → whether it has the worker alone, and how many others it would evict.
    """

    cell: str
    ranks: int
    seed: int
    times: float
    cost: float
    operations: int
    top: bool
    latent: bool
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


def slowed(draws: random.Random, ranks: int, seed: int) -> Case:
    """One worker is slow: any, from the start or since a step."""
    what, times = shaped(draws, ranks), TIMES[seed % len(TIMES)]
    steps = len(what["numbers"])
    place = draws.randrange(what["stages"]), draws.randrange(what["replicas"])
    since = 0 if steps < 8 or draws.random() < 0.5 else draws.randint(3, steps - 4)
    factors = _from_step(what, [place], [times], since)
    return WideOpJob(**what, factors=factors), place[0] * what["replicas"] + place[1], WideOpJob(**what)


def slowed_among_strays(draws: random.Random, ranks: int, seed: int) -> Case:
    """The same, where one operation in a thousand takes three times as long, on any: most steps wait for such a one."""
    job, guilty, healed = slowed(draws, ranks, seed)
    assert healed is not None
    return replace(job, stray=3.0), guilty, replace(healed, stray=3.0)


def _from_step(
    what: dict[str, Any], places: list[tuple[int, int]], times: list[float], since: int
) -> Callable[[int], NDArray[np.float64]]:
    later = np.ones((what["stages"], what["replicas"]))
    for place, one in zip(places, times, strict=True):
        later[place] = one
    return lambda step: later if step >= since else np.ones_like(later)


def _even(what: dict[str, Any], splits: list[float]) -> WideOpJob:
    return WideOpJob(**what, splits=(sum(splits) / len(splits),) * len(splits))


def uneven_stage(draws: random.Random, ranks: int, _seed: int) -> Case:
    """Any stage has more layers."""
    what = _piped(draws, ranks)
    splits = [1.0] * what["stages"]
    splits[draws.randrange(what["stages"])] = draws.uniform(1.1, 2.0)
    return WideOpJob(**what, splits=tuple(splits)), None, _even(what, splits)


def first_or_last(draws: random.Random, ranks: int, _seed: int) -> Case:
    """The loss or the embedding makes the first or the last stage longer, or both."""
    what = _piped(draws, ranks)
    splits = [1.0] * what["stages"]
    for stage in draws.choice([(0,), (-1,), (0, -1)]):
        splits[stage] = draws.uniform(1.05, 1.6)
    return WideOpJob(**what, splits=tuple(splits)), None, _even(what, splits)


def hot_expert(draws: random.Random, ranks: int, _seed: int) -> Case:
    """Experts get unlike shares of the tokens, one of each group or of one stage most."""
    what = shaped(draws, ranks)
    own = np.random.default_rng(what["seed"])
    loads = np.exp(own.normal(0, draws.uniform(0.0, 0.2), (what["stages"], what["replicas"])))
    group = min(8, what["replicas"])
    if draws.random() < 0.5:
        loads[:, draws.randrange(group) :: group] *= draws.uniform(1.3, 3.0)
    else:
        loads[draws.randrange(what["stages"]), draws.randrange(what["replicas"])] *= draws.uniform(1.3, 3.0)
    return WideOpJob(**what, experts=group, loads=loads), None, None


def documents(draws: random.Random, ranks: int, _seed: int) -> Case:
    """Microbatches are of packed documents, whose attention costs the square of their lengths."""
    return WideOpJob(**shaped(draws, ranks), length=long_documents), None, None


def half_a_rack(draws: random.Random, ranks: int, _seed: int) -> Case:
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
    return WideOpJob(**what, factors=_from_step(what, places, times, since)), None, WideOpJob(**what)


def _is_of_stages(job: WideOpJob) -> bool:
    """Whether every stage is slow on all its replicas or on none, as if the split were uneven."""
    assert job.factors is not None
    slow = job.factors(job.numbers[-1]) > 1
    return bool((slow.all(axis=1) | ~slow.any(axis=1)).all())


def restart_storm(draws: random.Random, ranks: int, _seed: int) -> Case:
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
    return WideOpJob(**what | {"numbers": tuple(numbers)}, restarts=tuple(restarts)), None, None


def cuda_graph(draws: random.Random, ranks: int, _seed: int) -> Case:
    """A step is one operation, in which the waits for others are; one worker, a stage or none is slow."""
    what = shaped(draws, ranks)
    place = draws.randrange(what["stages"]), draws.randrange(what["replicas"])
    times, at_fault = draws.choice([1.0, 1.2, 1.5, 2.0]), None
    what["graph"] = draws.choice(["forward-backward-compute", "cuda-graph-replay", "train-batch"])
    what["grads"] = draws.random() < 0.5
    if times > 1:
        at_fault = place[0] * what["replicas"] + place[1]
    return WideOpJob(**what, factors=_from_step(what, [place], [times], 0)), at_fault, None


CELLS: dict[str, tuple[Build, tuple[str, ...]]] = {  # cell → its jobs, and the causes that are right
    SLOWED: (slowed, ("machine",)),
    STRAYS: (slowed_among_strays, ("machine",)),
    "uneven stage": (uneven_stage, ("imbalance",)),
    "first or last stage longer": (first_or_last, ("imbalance",)),
    "hot expert": (hot_expert, ("data", "imbalance", "unknown", "none")),
    "long documents": (documents, ("data", "none", "unknown")),
    "half a rack throttled": (half_a_rack, ("unknown",)),
    "restart storm": (restart_storm, ("none", "unknown", "code")),
    "CUDA-graph steps": (cuda_graph, ("none", "unknown", "machine", "imbalance")),
}


def run_case(cell: str, ranks: int, seed: int) -> SlowScore:
    """Simulate one case and judge it, with what simple rules would do."""
    build, causes = CELLS[cell]
    job, guilty, healed = build(random.Random(f"{cell} {ranks} {seed}"), ranks, seed)
    cost = job.seconds() / healed.seconds() if healed is not None else 1.0
    if healed is not None and cost < (LATENT if guilty is not None else WORTH):  # what costs so little is no verdict
        causes = (*causes, "none")
    if cell == "half a rack throttled" and _is_of_stages(job):
        causes = (*causes, "imbalance", "none")
    records = list(job.records())
    begun = time.process_time()
    verdict = judged(records)
    seconds = time.process_time() - begun
    machines = [one for one in verdict.culprits if one.kind not in ("stage", "data", "code")]
    evicts = verdict.action.kind == "evict"
    return SlowScore(
        cell, ranks, seed, TIMES[seed % len(TIMES)] if cell in (SLOWED, STRAYS) else 0.0, round(cost, 4),
        sum(record.count for record in records),
        top=guilty is not None and bool(machines) and machines[0] is verdict.culprits[0] and machines[0].ranks == (guilty,),
        latent=guilty is not None and any(one.id == str(guilty) and "does not wait" in one.why for one in verdict.rejected),
        class_right=verdict.cause in causes, abstained=verdict.abstained,
        named=len({rank for one in machines for rank in one.ranks} - {guilty}),
        evicted=len(set(verdict.action.ranks) - {guilty}) if evicts else 0,
        fault_class=", ".join(root.fault_class for root in verdict.roots) or f"{verdict.symptom}, {verdict.cause}",
        seconds=round(seconds, 2), controls=dict(_controls(records, guilty, ranks)),
    )  # fmt: skip


def _controls(records: list[Any], guilty: int | None, ranks: int) -> Iterator[tuple[str, tuple[bool, int]]]:
    table = of_records(records)
    has_work = bool(table.named(*OWN_WORK).any())
    for control in CONTROLS:
        if ranks <= 1024 or "distance" not in control.name:  # it compares each with each
            evicts = set(control.evicts(table)) if has_work else set()
            yield control.name, (guilty is not None and evicts == {guilty}, len(evicts - {guilty}))
