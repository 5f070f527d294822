"""Traces in which a worker had other work than its peers, at times, or while it warmed up: no machine, and no false cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collectors.records import OP_COLUMNS, OpTimings
from simulation.traces.op_traces import OpJob
from tests.analyzers.diagnosis.test_slow import Slow, named_nobody, ranks
from tests.support.op_traces import Table, judged, simulated

REPLICAS = OpJob(stages=1, replicas=8, microbatches=4, steps=24)


def _said(table: Table) -> str:
    verdict = table.verdict()
    return " ".join([*(one.why for one in verdict.culprits), *(one.text for one in verdict.evidence)])


def _of_rank(table: Table, rank: int, *words: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return (table.columns["rank"] == rank) & table.named(*words)


def _longer(table: Table, mine: np.ndarray[tuple[int], np.dtype[np.bool_]], times: float) -> Table:
    return table.changed(duration=np.where(mine, times, 1.0) * table.columns["duration"])


def test_one_of_two_that_has_become_slower_is_not_named_without_its_work() -> None:
    """Its past shows that it has changed, and not that its data have not: the other has other data."""
    table = simulated(replace(REPLICAS, replicas=2))
    late = _of_rank(table, 1, "compute") & (table.columns["step"] >= 12)
    verdict = _longer(table, late, 1.5).verdict()
    assert (verdict.symptom, verdict.abstained, verdict.action.kind) == ("slow", True, "none")


def test_one_of_two_with_tokens_is_tested() -> None:
    """As many tokens as before take longer."""
    table = simulated(replace(REPLICAS, replicas=2))
    late = _of_rank(table, 1, "compute") & (table.columns["step"] >= 12)
    verdict = _longer(table.changed(work=np.full(len(table), 4096.0)), late, 1.5).verdict()
    assert (ranks(verdict), verdict.action.kind) == ([1], "probe")


@pytest.mark.parametrize(
    ("tokens", "of_tokens_alone", "action"), [(False, False, "probe"), (True, False, "probe"), (True, True, "evict")]
)
def test_a_replica_of_one_stage_is_evicted_only_where_its_work_is_known(
    tokens: bool, of_tokens_alone: bool, action: str
) -> None:
    """As many tokens of longer documents look like a slow machine, unless what has no documents in it is as much longer."""
    table = simulated(OpJob(stages=1, replicas=8, microbatches=4, steps=24, worker=Slow(1.5, place=(0, 3))))
    table = table.changed(work=np.full(len(table), 4096.0)) if tokens else table
    table = _longer(table, _of_rank(table, 3, "optimizer"), 1.5) if of_tokens_alone else table
    verdict = table.verdict()
    assert (ranks(verdict), verdict.action.kind) == ([3], action)
    assert ("for as many tokens" in verdict.culprits[0].why) == tokens
    assert ("longer documents, images or experts" in verdict.culprits[0].why) == (tokens and not of_tokens_alone)


def test_half_as_many_microbatches_of_twice_the_length_are_the_same_work() -> None:
    """Every step of it takes as long as those of the others."""
    table = simulated(REPLICAS)
    dropped = (table.columns["rank"] == 3) & (table.columns["microbatch"] >= 2)
    verdict = _longer(table, _of_rank(table, 3, "compute"), 2.0).kept(np.flatnonzero(~dropped)).verdict()
    assert verdict.culprits == ()
    assert "other portions" in " ".join(one.text for one in verdict.evidence)


@pytest.mark.parametrize("every", [3, 4])
def test_a_worker_that_alone_is_slow_at_times_is_not_the_data(every: int) -> None:
    """Long microbatches come to all workers; these are of one."""
    table = simulated(REPLICAS)
    mine = _of_rank(table, 5, "compute") & (table.columns["step"] % every == 0)
    verdict = _longer(table, mine, 2.0).verdict()
    assert (verdict.symptom, verdict.abstained, verdict.cause) == ("slow", True, "unknown")
    assert "rank 5 (pp0/dp5) alone" in _said(_longer(table, mine, 2.0))


def test_a_worker_that_is_slow_by_turns_has_no_onset() -> None:
    """Since none of the steps it is slow in is it slow in all."""
    table = simulated(REPLICAS)
    mine = _of_rank(table, 3, "compute") & (table.columns["step"] % 2 == 1)
    assert "since step" not in _said(_longer(table, mine, 1.6))


@pytest.mark.parametrize(("steps", "times"), [(2, 5.0), (1, 20.0)])
def test_steps_of_warm_up_are_left_out(steps: int, times: float) -> None:
    """Compiling takes all of them long, and rank 0 longest; no step after it is any longer."""
    table = simulated(REPLICAS)
    first = (table.columns["step"] < steps) & table.named("compute")
    table = _longer(_longer(table, first, times), first & (table.columns["rank"] == 0), 1.5)
    verdict = table.verdict()
    assert (verdict.symptom, verdict.action.kind) == ("healthy", "none")
    assert f"{24 - steps} of 24 steps are compared" in _said(table)


def test_steps_that_were_long_for_longer_than_a_warm_up_stay() -> None:
    """Half of a trace is no warm-up."""
    table = simulated(REPLICAS)
    first = (table.columns["step"] < 12) & table.named("compute")
    assert "steps are compared" not in _said(_longer(table, first, 3.0))


def test_a_worker_that_numbers_its_steps_by_itself_is_not_compared() -> None:
    """Nothing is said of all workers by the steps of one."""
    table = simulated(replace(REPLICAS, worker=Slow(1.5, place=(0, 3))))
    own = table.columns["step"] + 100 * (table.columns["rank"] == 3)
    verdict = table.changed(step=own).verdict()
    assert (verdict.symptom, verdict.abstained) == ("unknown", True)
    assert "rank 3" in verdict.missing[0].what


def test_many_of_which_half_are_slow_are_listed_by_their_ranks() -> None:
    """Those that take longer, and those that do not."""
    table = simulated(replace(REPLICAS, worker=lambda _, replica, __: 1.5 if replica >= 4 else 1.0))
    said = _said(table)
    assert "anks 4-7 take 1.50 times as long as ranks 0-3" in said


def test_a_worker_that_the_job_waits_for_is_not_healthy_where_all_differ() -> None:
    """The others differ too much to say that it stands apart; the job still waits for it."""
    speeds = (1.0, 1.6, 4.0, 0.7)
    verdict = simulated(replace(REPLICAS, replicas=4, worker=lambda _, replica, __: speeds[replica])).verdict()
    assert (verdict.symptom, verdict.abstained, verdict.action.kind) == ("slow", True, "none")
    assert "rank 2" in verdict.evidence[0].text.lower()


@pytest.mark.parametrize("times", [1e3, 1e-3])
def test_a_trace_in_another_unit_is_no_slow_host(times: float) -> None:
    """All its times are a thousand times as long or as short; its starts are, too."""
    table = simulated(replace(REPLICAS, ahead_seconds=0.0))
    mine = np.where(table.columns["rank"] == 3, times, 1.0)
    verdict = table.changed(
        duration=table.columns["duration"] * mine, started=table.columns["started"] * mine
    ).verdict()
    assert (verdict.symptom, verdict.culprits) == ("unknown", ())
    assert "unit" in verdict.missing[0].what


@pytest.mark.parametrize("sends", [True, False])
def test_what_stages_wait_for_is_no_pause_of_the_host(sends: bool) -> None:
    """A healthy pipeline whose trace has no column of stages: its gaps are in every step."""
    table = simulated(OpJob(stages=4, replicas=1, microbatches=4, steps=12))
    table = table if sends else table.kept(np.flatnonzero(~table.named("send", "recv")))
    verdict = table.changed(pp=np.full(len(table), -1), dp=np.full(len(table), -1)).verdict()
    assert verdict.culprits == ()
    assert verdict.cause in ("unknown", "none")


def test_long_steps_of_changing_workers_are_the_data() -> None:
    """A hot expert that moves: in every step another worker has more."""
    worker = lambda _, replica, step: 1 + 0.5 * ((replica * 3 + step // 2) % 8) / 8  # noqa: E731
    verdict = simulated(replace(REPLICAS, worker=worker)).verdict()
    assert (verdict.symptom, verdict.cause, verdict.action.kind) == ("slow", "data", "none")


def test_what_unlike_machines_cost_is_stated() -> None:
    """Half of them are slow, each by another factor: none is named, and what that costs is no secret."""
    worker = lambda _, replica, __: 1.0 + 0.06 * replica  # noqa: E731
    said = _said(simulated(replace(REPLICAS, worker=worker)))
    assert "or unlike machines; were they as fast as their mean, the job would save 1" in said


def test_a_job_that_loses_a_sixth_to_unlike_workers_is_not_called_healthy() -> None:
    """They are spread so widely that none stands apart; and a job that waits for one alone is slow by it."""
    spread = lambda _, replica, __: 1.0 + 0.09 * replica  # noqa: E731
    verdict = simulated(replace(REPLICAS, worker=spread)).verdict()
    assert (verdict.symptom, named_nobody(verdict)) == ("slow", True)
    assert "who holds the job up" in verdict.missing[0].what


def test_one_operation_of_each_of_two_workers_shows_no_slow_job() -> None:
    """One of them took longer, once."""
    table = simulated(
        replace(REPLICAS, replicas=2, steps=1, microbatches=1, worker=lambda _, replica, __: 1 + replica / 3)
    )
    verdict = table.kept(table.named("forward-compute")).verdict()
    assert (verdict.symptom, verdict.action.kind) == ("unknown", "none")
    assert "more steps" in verdict.missing[0].what


@pytest.mark.parametrize("longer", [0.43, 0.15])
def test_one_loader_that_takes_longer_is_named_beside_those_of_all(longer: float) -> None:
    """Each rank loads for 0.15 s a step: where all do so in every step, it does not show whether that is slow."""
    names, records = ("data-loader", "forward-compute", "grads-allreduce"), []
    for rank in range(4):
        loads = longer if rank == 2 else 0.15
        step = [0.1, loads, 0.1, 0.1, 0.1, 0.02 + longer - loads]
        durations = np.array([step] * 12) * np.exp(np.random.default_rng(rank).normal(0, 0.01, (12, 6)))
        starts = np.arange(12)[:, None] * (0.45 + longer) + np.append(0.0, np.cumsum(step)[:-1])
        given = {
            "operation": np.tile([1, 0, 1, 1, 1, 2], 12), "step": np.repeat(np.arange(12), 6), "started": starts.ravel(),
            "duration": durations.ravel(), "microbatch": np.tile([0, -1, 1, 2, 3, -1], 12), "chunk": np.full(72, -1),
            "work": np.full(72, np.nan),
        }  # fmt: skip
        columns = {name: given[name].astype(kind).tobytes() for name, kind in OP_COLUMNS.items()}
        records.append(
            OpTimings(source=f"rank{rank}", rank=rank, strings=names, count=72, columns=columns, coordinates={"dp": rank},
                      told_by="x")
        )  # fmt: skip
    verdict = judged(records)
    assert [(one.id, root.fault_class) for one, root in zip(verdict.culprits, verdict.roots, strict=True)] == (
        [("2", "slow_loader")] if longer > 0.2 else []
    )
    assert verdict.action.kind not in ("evict", "drain_after_job")
