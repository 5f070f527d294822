"""Traces of more operations than are compared: fewer steps, the same answer, and the verdict says so."""

import numpy as np
import pytest

from analyzers.diagnosis.slow import sampling
from analyzers.diagnosis.slow.op_table import tabulate
from analyzers.diagnosis.slow.sampling import sampled, spread_runs
from simulation.traces.op_traces import OpJob
from tests.support.op_traces import Table, simulated

JOB = OpJob(stages=2, replicas=8, steps=40, worker=lambda stage, replica, _: 1.5 if (stage, replica) == (1, 3) else 1.0)


@pytest.fixture(scope="module")
def trace() -> Table:
    """The operations of a job with a slow worker, forty steps of them."""
    return simulated(JOB)


def test_fewer_steps_name_the_same_worker(trace: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of the steps is compared, and the evidence has how many of how many."""
    whole = trace.verdict()
    monkeypatch.setattr(sampling, "MOST_COMPARED", len(trace) // 3)
    some = trace.verdict()
    assert [one.ranks for one in some.culprits] == [one.ranks for one in whole.culprits]
    assert some.culprits
    assert any("of 40 steps are compared" in one.text for one in some.evidence)
    assert not any("steps are compared" in one.text for one in whole.evidence)


def test_every_worker_keeps_the_same_steps(trace: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole steps, whatever the order of the rows."""
    monkeypatch.setattr(sampling, "MOST_COMPARED", len(trace) // 3)
    records = list(trace.kept(np.random.default_rng(3).permutation(len(trace))).records())
    some = sampled(records)
    assert some.steps is not None
    assert some.all_steps == 40
    assert some.operations == len(some.steps) * len(trace) / 40
    table = tabulate(records, some.steps)
    each = len(trace) // (40 * len(table.workers))
    assert table.steps.tolist() == some.steps.tolist()
    assert np.unique(table.place, return_counts=True)[1].tolist() == [each] * (len(table.workers) * len(some.steps))


def test_small_traces_are_compared_whole(trace: Table) -> None:
    """As they are given."""
    assert sampled(list(trace.records())) == (None, len(trace), 0)


@pytest.mark.parametrize(("count", "keep"), [(60, 9), (60, 12), (40, 8), (9, 8), (1000, 50)])
def test_runs_reach_from_the_first_step_to_the_last(count: int, keep: int) -> None:
    """No more than asked for, each with a neighbour."""
    places = spread_runs(count, keep)
    assert (places[0], places[-1]) == (0, count - 1)
    assert len(places) <= keep
    assert (np.isin(places + 1, places) | np.isin(places - 1, places)).all()


def test_traces_without_steps_are_compared_whole(trace: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says which rows belong together."""
    monkeypatch.setattr(sampling, "MOST_COMPARED", 10)
    records = list(trace.changed(step=np.full(len(trace), -1)).records())
    assert sampled(records) == (None, len(trace), 0)
