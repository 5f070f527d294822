"""Traces that would make a verdict say something false, and what a verdict says of costs."""

from __future__ import annotations

import re

import numpy as np
import pytest

from service.reports.text import render
from simulation.traces.op_traces import OpJob
from tests.analyzers.diagnosis.test_slow import Slow, classes, named_nobody, ranks
from tests.support.op_traces import Table, simulated


def healthy() -> Table:
    """Return a job of four stages and four replicas in which nothing is slow."""
    return simulated(OpJob(seed=4))


@pytest.mark.parametrize("times", [1e3, 1e6])
def test_a_trace_in_another_unit_of_time_is_no_slow_machine(times: float) -> None:
    """No machine takes a hundred times as long: its file has milliseconds where the others have seconds."""
    table = healthy()
    of_one = table.columns["rank"] == 9
    verdict = table.changed(
        duration=np.where(of_one, table.columns["duration"] * times, table.columns["duration"])
    ).verdict()

    assert named_nobody(verdict)
    assert any("unit of time" in one.what for one in verdict.missing)


def test_a_slow_worker_by_ten_times_is_still_named() -> None:
    """What is slow by less than another unit would be stays a machine's."""
    assert ranks(simulated(OpJob(worker=Slow(10.0))).verdict()) == [9]


@pytest.mark.parametrize("whose", ["all", "one"])
def test_rows_that_are_there_twice_count_once(whose: str) -> None:
    """A table that was written twice shows no host that lets its device wait, and a slow worker costs what it did."""
    for job in (OpJob(seed=4), OpJob(worker=Slow(1.5))):
        table = simulated(job)
        again = np.flatnonzero(table.columns["rank"] == 5) if whose == "one" else np.arange(len(table))
        twice = table.kept(np.concatenate([np.arange(len(table)), again]))
        once, verdict = table.verdict(), twice.verdict()

        assert classes(verdict) == classes(once)
        assert [one.text for one in verdict.evidence] == [one.text for one in once.evidence]


@pytest.mark.parametrize("starts", [0.0, np.nan])
def test_stages_without_starts_are_not_called_healthy(starts: float) -> None:
    """Whether a stage or the data is uneven needs the order of operations."""
    for splits in ((), (1.0, 1.0, 1.0, 1.6)):
        table = simulated(OpJob(seed=4, splits=splits))
        verdict = table.changed(started=np.full(len(table), starts)).verdict()

        assert named_nobody(verdict)
        assert verdict.symptom != "healthy"


def test_a_hole_among_the_workers_is_not_healthy() -> None:
    """The worker that left no trace may be the slow one, and the grid of stages and replicas shows that it exists."""
    table = simulated(OpJob(worker=Slow(1.5)))
    verdict = table.kept(table.columns["rank"] != 9).verdict()

    assert named_nobody(verdict)
    assert verdict.symptom != "healthy"
    assert any("pp2/dp1 left no trace" in one.what for one in verdict.missing)


@pytest.mark.parametrize(("apart", "symptom"), [(1, "unknown"), (4, "healthy")])
def test_a_hole_among_the_ranks_is_not_healthy(apart: int, symptom: str) -> None:
    """Without stages and replicas their numbers show it; of a tensor-parallel group one may be traced."""
    table = simulated(OpJob(stages=1, replicas=8, worker=Slow(1.5, place=(0, 5) if apart == 1 else (9, 9))))
    table = table.kept(table.columns["rank"] != 5) if apart == 1 else table
    unset = np.full(len(table), -1)
    verdict = table.changed(pp=unset, dp=unset, rank=table.columns["rank"] * apart).verdict()
    assert verdict.symptom == symptom
    assert any("rank 5 left no trace" in one.what for one in verdict.missing) == (apart == 1)


@pytest.mark.parametrize("others", [1, 4])
def test_traces_of_two_units_are_not_compared(others: int) -> None:
    """Seconds of some, milliseconds of the others: half of them or one."""
    table = simulated(OpJob(stages=1, replicas=8))
    longer = np.where(table.columns["rank"] < others, 1e3, 1.0)
    verdict = table.changed(duration=table.columns["duration"] * longer).verdict()
    assert (verdict.symptom, verdict.culprits) == ("unknown", ())
    assert "the unit of time of each trace: that of rank" in verdict.missing[0].what


def test_seconds_for_each_token_are_not_compared_with_seconds() -> None:
    """One worker alone has a column of tokens."""
    table = simulated(OpJob(stages=1, replicas=8))
    verdict = table.changed(work=np.where(table.columns["rank"] == 5, 8192.0, np.nan)).verdict()
    assert verdict.symptom == "healthy"


def test_workers_that_end_before_the_others_did_not_become_slow() -> None:
    """Half of the ranks have no step of what takes longer, as those of another job."""
    table = simulated(OpJob(stages=1, replicas=8, steps=24))
    late = table.columns["step"] >= 12
    table = table.changed(duration=table.columns["duration"] * np.where(late, 1.6, 1.0))
    verdict = table.kept(~late | (table.columns["rank"] < 4)).verdict()
    assert "anks 0-3 (4 of 8) take" in verdict.evidence[0].text


def test_what_it_costs_is_in_the_report() -> None:
    """The first screen has the share of each step and GPU hours a day, T / T_ideal, and costs by operation, stage and kind."""
    verdict = simulated(OpJob(worker=Slow(1.5), jitter=0.001)).verdict()
    text = " ".join(render(verdict).split())

    share, hours = re.findall(
        r"costs the job (\d+) % of every step, at least (\d+) GPU hours a day \(16 ranks are known", text
    )[0]
    assert abs(int(hours) - 24 * 16 * int(share) / 100) <= 24 * 16 * 0.005 + 1
    costs = text.partition("What it costs")[2].partition("What to do")[0]
    assert "(T / T_ideal)" in costs
    for kind in ("forward-compute", "by that of one stage", "the split into stages", "uneven microbatches", "links"):
        assert kind in costs


@pytest.mark.parametrize("seed", range(1, 5))
def test_rows_that_were_lost_are_no_stalls(seed: int) -> None:
    """A step's last operation is missing, and the gap before the next step is no host that lets its device wait."""
    table = simulated(OpJob(stages=4, replicas=32, microbatches=4, steps=6, seed=seed))
    kept = np.random.default_rng(seed).random(len(table)) >= 0.05

    assert classes(table.kept(kept).verdict()) == []


def costs_of(table: Table) -> tuple[str, str]:
    """Return what the verdict says that a slow worker costs, and T / T_ideal."""
    text = render(table.verdict())
    return (
        re.findall(r"costs\s+the\s+job\s+(\d+)\s+%", text)[0],
        re.findall(r"([\d.]+)\s+times\s+\(T\s+/\s+T_ideal\)", text)[0],
    )


@pytest.mark.parametrize("lost", ["half the steps of the slow one", "durations", "all but four of its steps"])
def test_lost_rows_of_the_slow_worker_make_it_no_cheaper(lost: str) -> None:
    """A step of which its part is lost is no step that it did not slow."""
    table = simulated(OpJob(seed=4, stages=1, replicas=8, worker=Slow(1.5, place=(0, 2))))
    rank, step = table.columns["rank"], table.columns["step"]
    own = (rank == ranks(table.verdict())[0]) & (step % 2 == 1 if "four" not in lost else step >= 4)
    spoilt = (
        table.changed(duration=np.where(own, np.nan, table.columns["duration"]))
        if lost == "durations"
        else table.kept(np.flatnonzero(~own))
    )
    whole, left = costs_of(table), costs_of(spoilt)

    assert abs(int(whole[0]) - int(left[0])) <= 2
    assert abs(float(whole[1]) - float(left[1])) <= 0.03
