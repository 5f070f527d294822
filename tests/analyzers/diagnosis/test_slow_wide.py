"""Simulated slow jobs of many workers: one that is slow is named, and no machine where none is at fault."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from simulation.traces.wide_op_traces import WideOpJob
from tests.support.op_traces import judged
from tests.support.simulated_slow import CELLS, SLOWED, STRAYS, run_case


@pytest.mark.parametrize("cell", CELLS)
def test_a_small_case_of_each_cell(cell: str) -> None:
    """The class is right, and no innocent rank is named."""
    score = run_case(cell, 64, 0)

    assert (score.class_right, score.named, score.evicted) == (True, 0, 0)
    assert score.top == (cell in (SLOWED, STRAYS))


@pytest.mark.parametrize("seed", range(4))
def test_machines_throttled_together_share_a_cause_though_each_alone_costs_little(seed: int) -> None:
    """Each step waits for another of them: no one of 32 workers is the slow machine, and the job is not healthy."""
    factors = np.ones((8, 32))
    factors.reshape(-1)[108:140] = np.repeat([1.2, 1.25, 1.3, 1.35], 8)
    job = WideOpJob(replicas=32, microbatches=8, seed=seed, stray=3.0, factors=lambda _: factors)

    verdict = judged(job.records())

    assert not verdict.culprits
    assert (verdict.symptom, verdict.cause, verdict.action.kind) == ("slow", "unknown", "none")
    assert verdict.missing


@pytest.mark.parametrize("slow", [16, 24])
@pytest.mark.parametrize("stages", [1, 2])
def test_half_or_most_of_a_stage_that_takes_longer_is_slow_or_the_rest_is_fast(stages: int, slow: int) -> None:
    """A few machines are throttled, each as its place in the rack has it: no peer says which are as they should be."""
    factors = np.ones((stages, 32))
    factors[0, :slow] = np.repeat(np.linspace(1.3, 1.6, slow // 8), 8)

    verdict = judged(WideOpJob(stages=stages, replicas=32, seed=slow, factors=lambda _: factors).records())

    assert not verdict.culprits
    assert (verdict.symptom, verdict.cause, verdict.action.kind) == ("slow", "unknown", "none")
    assert f"ranks 0-{slow - 1} take" in verdict.evidence[0].text
    assert verdict.missing


def _since(step: int, later: np.ndarray, over: int = 1) -> Callable[[int], np.ndarray]:
    """Return factors that grow to ``later`` from a step on, over so many steps."""
    return lambda number: 1 + (later - 1) * min(max(number - step + 1, 0) / over, 1.0)


@pytest.mark.parametrize(("stages", "slow"), [(1, 16), (1, 24), (2, 24)])
def test_half_or_most_that_are_slower_than_before_are_listed_and_the_others_are_not(stages: int, slow: int) -> None:
    """Their own past shows which of them are slow; what slows so many is no one machine."""
    later = np.ones((stages, 32))
    later[0, :slow] = np.repeat(np.linspace(1.3, 1.6, slow // 8), 8)
    job = WideOpJob(stages=stages, replicas=32, numbers=tuple(range(12)), seed=slow, factors=_since(5, later))

    verdict = judged(job.records())

    assert not verdict.culprits
    assert (verdict.symptom, verdict.cause, verdict.action.kind) == ("slow", "unknown", "none")
    assert any(f"ranks 0-{slow - 1}" in one.text and "before" in one.text for one in verdict.evidence)
    assert not any("all" in one.text and "as before" in one.text for one in verdict.evidence)


@pytest.mark.parametrize("over", [1, 6])
def test_many_that_are_slower_than_their_peers_and_than_before_are_listed(over: int) -> None:
    """At once, or step by step."""
    later = np.ones((4, 16))
    later[1, :8] = np.linspace(1.4, 1.6, 8)
    job = WideOpJob(stages=4, replicas=16, numbers=tuple(range(16)), factors=_since(4, later, over))

    verdict = judged(job.records())

    assert not verdict.culprits
    assert "ranks 16-23, and longer than they themselves did before step" in verdict.evidence[0].text


@pytest.mark.parametrize("stages", [1, 4])
@pytest.mark.parametrize("step", [0, 5])
def test_two_of_eight_are_named_and_no_other(stages: int, step: int) -> None:
    """Six peers show what is usual."""
    later = np.ones((stages, 8))
    later[-1, 2], later[-1, 5] = 1.5, 1.4
    job = WideOpJob(stages=stages, numbers=tuple(range(12)), factors=_since(step, later))

    found = {rank for one in judged(job.records()).culprits for rank in one.ranks}

    assert found == {8 * stages - 6, 8 * stages - 3}


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_that_slows_step_by_step_is_named(seed: int) -> None:
    """Its clock falls over eight steps."""
    later = np.ones((4, 8))
    later[1, 2] = 1.6
    job = WideOpJob(stages=4, numbers=tuple(range(16)), seed=seed, factors=_since(4, later, 8))

    assert [one.ranks for one in judged(job.records()).culprits] == [(10,)]


@pytest.mark.parametrize(("cell", "ranks", "seed"), [("half a rack throttled", 64, 36), ("restart storm", 1024, 11)])
def test_a_little_slower_half_and_cold_caches_of_one_stage_are_undecided(cell: str, ranks: int, seed: int) -> None:
    """The loudest of 64 workers does not decide how far apart halves are; steps long as a whole may be caches or data."""
    score = run_case(cell, ranks, seed)

    assert (score.fault_class, score.named, score.evicted) == ("slow, unknown", 0, 0)


def test_a_few_fast_machines_do_not_make_the_others_slow() -> None:
    """Four of 32 are of a newer model: the job's pace is that of the usual ones."""
    factors = np.ones((1, 32))
    factors[0, :4] = 0.7

    verdict = judged(WideOpJob(stages=1, replicas=32, seed=1, factors=lambda _: factors).records())

    assert (verdict.symptom, verdict.cause) == ("healthy", "none")


@pytest.mark.parametrize("seed", range(4))
def test_steps_after_a_restart_are_no_long_microbatches(seed: int) -> None:
    """All microbatches of a step are long together, on each rank as its caches have it."""
    job = WideOpJob(stages=2, numbers=tuple(range(15)), restarts=(5, 10), seed=seed)

    assert judged(job.records()).cause in ("none", "code", "unknown")


@pytest.mark.parametrize("seed", range(3))
def test_a_worker_that_is_longer_only_where_all_differ_is_not_slow(seed: int) -> None:
    """In most steps since one the others' caches are cold too; in the rest it is as they are."""
    draws = np.random.default_rng(seed)
    factors = {step: np.exp(draws.normal(0, 0.15, (2, 16))) for step in range(9, 20) if step % 5 != 1}
    for cold in factors.values():
        cold[1, 5] = 1.15
    job = WideOpJob(
        stages=2,
        replicas=16,
        numbers=tuple(range(20)),
        seed=seed,
        factors=lambda step: factors.get(step, np.ones((2, 16))),
    )

    assert not judged(job.records()).culprits


@pytest.mark.parametrize("grads", [True, False])
def test_steps_of_one_cuda_graph_do_not_show_that_a_job_is_healthy(grads: bool) -> None:
    """The waits for other stages are in each: all are long because of one."""
    factors = np.ones((4, 8))
    factors[1, 3] = 2.0
    job = WideOpJob(stages=4, graph="forward-backward-compute", grads=grads, factors=lambda _: factors)

    verdict = judged(job.records())

    assert not verdict.culprits
    assert verdict.symptom != "healthy"
