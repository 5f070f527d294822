"""Which kind of slowness a trace shows, then who, or nobody: simulated jobs, of which it is known what is slow."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from analyzers.model.verdict import Verdict
from simulation.traces.op_traces import OpJob, long_documents
from tests.support.op_traces import Table, judged, simulated

SLOW = (2, 1)  # stage and replica: rank 9 of 16


@dataclass(frozen=True)
class Slow:
    """One worker is that many times as slow, from a step on."""

    times: float = 1.3
    since: int = 0
    place: tuple[int, int] = SLOW

    def __call__(self, stage: int, replica: int, step: int) -> float:
        """Return how slow this worker is."""
        return self.times if (stage, replica) == self.place and step >= self.since else 1.0


def classes(verdict: Verdict) -> list[str]:
    """The classes of the verdict's roots."""
    return [root.fault_class for root in verdict.roots]


def ranks(verdict: Verdict) -> list[int]:
    """Every rank that is named."""
    return sorted(rank for culprit in verdict.culprits for rank in culprit.ranks)


def named_nobody(verdict: Verdict) -> bool:
    """No rank is named, and nothing is done to any."""
    return not ranks(verdict) and verdict.action.kind == "none"


@pytest.mark.parametrize("times", [1.15, 1.3, 3.0])
@pytest.mark.parametrize("place", [(0, 0), (2, 1), (3, 3)], ids=str)
def test_a_slow_worker_is_its_machine(times: float, place: tuple[int, int]) -> None:
    """Wherever it is: the stage of the culprit and its peers differ by nothing else."""
    verdict = simulated(OpJob(worker=Slow(times, place=place))).verdict()
    assert (verdict.symptom, verdict.cause, classes(verdict)) == ("slow", "machine", ["slow_worker"])
    assert ranks(verdict) == [place[0] * 4 + place[1]]


def test_a_worker_that_costs_a_tenth_is_evicted_and_one_that_costs_less_is_tested() -> None:
    """The action follows what the job would gain."""
    assert simulated(OpJob(worker=Slow(1.3))).verdict().action.kind == "evict"
    assert simulated(OpJob(worker=Slow(1.05))).verdict().action.kind == "probe"


def test_one_step_evicts_nobody() -> None:
    """A single step may be an accident."""
    verdict = simulated(OpJob(steps=1, worker=Slow())).verdict()
    assert verdict.action.kind in ("probe", "none")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("jitter", [0.01, 0.1])
@pytest.mark.parametrize("replicas", [3, 8])
def test_a_healthy_job_names_nobody(seed: int, jitter: float, replicas: int) -> None:
    """Noise, an ordinary last stage with its loss, one step or many."""
    for steps in (1, 6):
        job = OpJob(replicas=replicas, steps=steps, seed=seed, jitter=jitter, splits=(1, 1, 1, 1.05))
        verdict = simulated(job).verdict()
        assert (verdict.symptom, verdict.cause) == ("healthy", "none")
        assert named_nobody(verdict)


@pytest.mark.parametrize("jitter", [0.01, 0.1])
@pytest.mark.parametrize("stage", [0, 3])
def test_an_uneven_split_is_nobodys_fault(jitter: float, stage: int) -> None:
    """The stage is named, no rank of it; with heavy noise too."""
    splits = tuple(1.7 if one == stage else 1.0 for one in range(4))
    verdict = simulated(OpJob(splits=splits, jitter=jitter)).verdict()
    assert (verdict.symptom, verdict.cause, classes(verdict)) == ("slow", "imbalance", ["slow_stage"])
    assert [(one.kind, one.id) for one in verdict.culprits] == [("stage", str(stage))]
    assert named_nobody(verdict)


@pytest.mark.parametrize(("stages", "replicas"), [(4, 4), (2, 16), (1, 8)])
@pytest.mark.parametrize("seed", range(3))
def test_long_documents_are_the_datas(stages: int, replicas: int, seed: int) -> None:
    """Another replica is the longest in each step; every operation on its microbatch is."""
    job = OpJob(stages=stages, replicas=replicas, steps=8, seed=seed, length=long_documents)
    verdict = simulated(job).verdict()
    assert (verdict.symptom, verdict.cause) == ("slow", "data")
    assert named_nobody(verdict)


def test_two_peers_without_a_past_are_left_open() -> None:
    """One of them is slow, and nothing shows which."""
    verdict = simulated(OpJob(replicas=2, worker=Slow())).verdict()
    assert verdict.abstained
    assert verdict.symptom == "slow"
    assert named_nobody(verdict)


def test_half_of_a_stage_is_left_open() -> None:
    """Half of the peers may as well be fast."""
    job = OpJob(worker=lambda stage, replica, _: 1.3 if stage == 1 and replica < 2 else 1.0)
    verdict = simulated(job).verdict()
    assert verdict.abstained
    assert named_nobody(verdict)


def test_a_slow_worker_that_nobody_waits_for_is_told() -> None:
    """The last stage is longer: the job waits for that, and would be no faster with the worker healed."""
    job = OpJob(splits=(1, 1, 1, 1.09), worker=Slow(1.05, place=(1, 1)), transfer=lambda *_: 1.0, microbatches=32)
    verdict = simulated(job).verdict()
    assert named_nobody(verdict) or verdict.action.kind == "probe"
    assert "rank 5" in " ".join(one.why for one in (*verdict.rejected, *verdict.culprits))


def test_unlike_machines_are_no_alarm() -> None:
    """Workers at several steady paces, none apart from the others."""
    verdict = simulated(OpJob(stages=1, replicas=12, worker=lambda _, replica, __: 1 + 0.08 * (replica % 4))).verdict()
    assert verdict.symptom == "healthy"
    assert named_nobody(verdict)


def _spoilt(table: Table, how: str) -> Table:
    draws = np.random.default_rng(5)
    seconds, started = table.columns["duration"], table.columns["started"]
    hit = draws.random(len(table)) < 0.05
    return {
        "shuffled": lambda: table.kept(draws.permutation(len(table))),
        "rows lost": lambda: table.kept(draws.random(len(table)) > 0.1),
        "no start": lambda: table.changed(started=np.full(len(table), np.nan)),
        "half precision": lambda: table.changed(duration=seconds.astype("f2").astype("f8")),
        "nan": lambda: table.changed(duration=np.where(hit, np.nan, seconds)),
        "zero": lambda: table.changed(duration=np.where(hit, 0.0, seconds)),
        "one outlier": lambda: table.changed(duration=np.where(np.arange(len(table)) == 40, 100.0, seconds)),
        "negative clocks": lambda: table.changed(started=started - 1e6),
        "a rank missing": lambda: table.kept(table.columns["rank"] != 6),
        "a stage missing": lambda: table.kept(table.columns["pp"] != 1),
        "no steps": lambda: table.changed(step=np.full(len(table), -1)),
        "no ranks": lambda: table.changed(rank=np.full(len(table), -1)),
    }[how]()


SPOILT = (
    "shuffled", "rows lost", "no start", "half precision", "nan", "zero", "one outlier", "negative clocks", "a rank missing",
    "a stage missing",
)  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_trace_names_the_same_worker(how: str) -> None:
    """Whatever befell the rows."""
    verdict = _spoilt(simulated(OpJob(worker=Slow())), how).verdict()
    assert ranks(verdict) == [9]
    assert verdict.cause == "machine"


@pytest.mark.parametrize("how", [*SPOILT, "no steps", "no ranks"])
def test_a_spoilt_healthy_trace_names_nobody(how: str) -> None:
    """Less evidence never makes a verdict bolder."""
    verdict = _spoilt(simulated(OpJob()), how).verdict()
    assert named_nobody(verdict)
    assert not [item for item in verdict.missing if "failed (" in item.what]


def test_a_trace_without_compute_is_unmeasured() -> None:
    """Transfers alone show who waited, not who was slow."""
    table = simulated(OpJob(worker=Slow()))
    verdict = judged(table.kept(~table.named("compute", "optimizer")).records())
    assert verdict.symptom == "unknown"
    assert verdict.missing
    assert named_nobody(verdict)


def test_a_slow_link_is_named_by_its_ends() -> None:
    """Its transfers take longer than those between the same stages of other replicas; the ranks only wait."""
    job = OpJob(transfer=lambda stage, replica, _: 200.0 if (stage, replica) == (0, 2) else 1.0)
    verdict = simulated(job).verdict()
    assert (verdict.symptom, verdict.cause) == ("slow", "network")
    assert [(one.kind, one.ranks) for one in verdict.culprits] == [("link", (2, 6))]
    assert verdict.action.kind == "probe"
    (path,) = verdict.slow_paths
    assert (path.source.split(" (")[0], path.target.split(" (")[0]) == ("rank 2", "rank 6")
    assert path.times > 50


def test_a_rank_whose_every_transfer_is_slow_is_the_sender() -> None:
    """To the next stage and back to the one before: both paths are listed, and what they share is who sends."""
    job = OpJob(transfer=lambda stage, replica, _: 200.0 if (stage, replica) == (1, 2) else 1.0)
    verdict = simulated(job).verdict()
    assert (verdict.symptom, verdict.cause) == ("slow", "network")
    assert [(one.kind, one.ranks) for one in verdict.culprits] == [("rank", (6,))]
    assert "sends" in verdict.culprits[0].why
    assert {(one.source.split(" (")[0], one.target.split(" (")[0]) for one in verdict.slow_paths} == {
        ("rank 6", "rank 2"),
        ("rank 6", "rank 10"),
    }


@pytest.mark.parametrize("seed", range(3))
def test_pauses_of_changing_workers_are_the_codes(seed: int) -> None:
    """Garbage collection that each rank does when it likes."""
    job = OpJob(seed=seed, pause=lambda _, __, ___, draws: 0.6 if draws.random() < 0.1 else 0.0)
    verdict = simulated(job).verdict()
    assert (verdict.symptom, verdict.cause, classes(verdict)) == ("slow", "code", ["slow_pauses"])
    assert named_nobody(verdict)


def test_a_host_that_always_stalls_is_tested_and_not_evicted() -> None:
    """Its device waits for it, for what no trace of the device has."""
    verdict = simulated(OpJob(pause=lambda stage, replica, *_: 0.7 if (stage, replica) == SLOW else 0.0)).verdict()
    assert (classes(verdict), ranks(verdict), verdict.action.kind) == (["slow_host"], [9], "probe")


def test_gaps_everywhere_are_no_stall() -> None:
    """Between all operations of a worker runs what the trace does not have: that is no proof against its host."""
    table = simulated(OpJob())
    shorter = np.where((table.columns["rank"] == 9) & table.named("compute"), 0.5, 1.0)
    alike = np.where((table.columns["rank"] % 4 == 1) & table.named("compute"), 0.999, 1.0)
    verdict = table.changed(duration=table.columns["duration"] * shorter * alike).verdict()
    assert not ranks(verdict)


@pytest.mark.parametrize("slow", [{0, 1}, {2}], ids=str)
def test_whole_replicas_that_are_slow_are_left_open(slow: set[int]) -> None:
    """Half a rack that throttles, or a replica that has more of everything."""
    verdict = simulated(OpJob(worker=lambda _, replica, __: 1.3 if replica in slow else 1.0)).verdict()
    assert verdict.abstained
    assert verdict.symptom == "slow"
    assert named_nobody(verdict)


@pytest.mark.parametrize("replicas", [2, 4])
def test_the_past_names_the_step_since_which_a_worker_is_slow(replicas: int) -> None:
    """Of two replicas too."""
    verdict = simulated(OpJob(replicas=replicas, steps=20, worker=Slow(since=12))).verdict()
    assert ranks(verdict) == [2 * replicas + 1]
    assert "since step 12" in verdict.culprits[0].why


def test_tokens_explain_long_operations() -> None:
    """A worker that gets twice the tokens is not slow; one that takes longer for the same is."""
    table = simulated(OpJob(worker=Slow(2.0)))
    twice = np.where((table.columns["rank"] == 9) & table.named("compute"), 2000.0, 1000.0)
    assert not ranks(table.changed(work=twice).verdict())
    assert ranks(table.changed(work=np.full(len(table), 1000.0)).verdict()) == [9]
