"""Timings of collectives and transfers: who comes late, what lies between ranks, and when no one is named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from analyzers.diagnosis.slow.paths import BLOCK, CELL, RECEIVER, SENDER, SlowCell, patterns, slow_cells
from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from service.packaged_knowledge import load
from simulation.traces.collective_traces import CollectiveJob
from tests.support.collective_cases import longest_collective, process_of, timings, verdict_of


def slow(*ranks: int, times: float = 1.5, since: int = 0) -> Callable[[int, int], float]:
    """Return that these ranks compute longer, from a step on."""
    return lambda rank, step: times if rank in ranks and step >= since else 1.0


def classes(verdict: Verdict) -> list[str]:
    """Return the fault classes of its roots."""
    return [root.fault_class for root in verdict.roots]


SHAPES = {
    "dp8": CollectiveJob(tensor=1, replicas=8),
    "tp2 dp4": CollectiveJob(tensor=2, replicas=4),
    "tp4 dp4": CollectiveJob(tensor=4, replicas=4),
    "pp4 dp4": CollectiveJob(tensor=1, stages=4, replicas=4),
    "tp2 pp2 dp4": CollectiveJob(tensor=2, stages=2, replicas=4),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(2))
def test_a_rank_that_comes_late_by_itself_is_named_and_no_victim_is(shape: str, seed: int) -> None:
    """Lateness goes from tensor parallel group to stages to replicas; it is followed back to who began it."""
    guilty = 5 + seed
    job = replace(SHAPES[shape], seed=seed, compute=slow(guilty))
    verdict = verdict_of(job)
    assert (verdict.symptom, classes(verdict)) == ("slow", ["late_rank"])
    assert [one.id in process_of(job, guilty) for one in verdict.culprits] == [True]
    assert verdict.action.kind == "probe"
    assert "what holds it up" in verdict.action.why


@pytest.mark.parametrize("shape", SHAPES)
def test_the_longest_collective_names_a_victim(shape: str) -> None:
    """The naive rule is wrong in every shape: who waits longest is not who is late."""
    job = replace(SHAPES[shape], compute=slow(5))
    assert longest_collective(job) != 5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_names_no_one(shape: str, seed: int) -> None:
    """Ranks that vary by a few per cent wait for another one each time."""
    verdict = verdict_of(replace(SHAPES[shape], seed=10 + seed, jitter=0.05))
    assert verdict.symptom in ("healthy", "unknown")
    assert not verdict.culprits


def test_a_job_without_stages_whose_ranks_keep_pace_is_healthy() -> None:
    """With stages it stays open whether they are split evenly."""
    assert verdict_of(SHAPES["dp8"]).symptom == "healthy"
    assert verdict_of(SHAPES["pp4 dp4"]).symptom == "unknown"


@pytest.mark.parametrize(
    "compute",
    [slow(0, 1, 2, 3), slow(0, 2, 4), lambda rank, _step: 1 + 0.06 * rank],
    ids=["half of them", "three of eight", "unlike machines"],
)
def test_many_that_come_late_are_no_machine(compute: Callable[[int, int], float]) -> None:
    """They share a cause, or differ steadily: none is named, and the job is not called healthy."""
    verdict = verdict_of(replace(SHAPES["dp8"], compute=compute))
    assert (verdict.symptom, verdict.abstained) == ("slow", True)
    assert not verdict.culprits


def test_one_that_alone_comes_late_at_times_costs_what_it_costs() -> None:
    """A checkpoint of rank 0 that the others wait for, every tenth step: none is named, and the job is not called healthy."""
    verdict = verdict_of(
        replace(SHAPES["dp8"], compute=lambda rank, step: 8.0 if rank == 0 and step % 10 == 5 else 1.0)
    )
    assert (verdict.symptom, verdict.abstained, verdict.culprits) == ("slow", True, ())
    assert "rank 0 alone comes late" in verdict.evidence[0].text.lower()


def test_of_two_peers_one_is_named_only_by_its_past() -> None:
    """One of two waits always; since a step that it did not before names the other."""
    pair = CollectiveJob(tensor=1, replicas=2)
    always, since = verdict_of(replace(pair, compute=slow(1))), verdict_of(replace(pair, compute=slow(1, since=14)))
    assert (always.symptom, always.culprits) == ("slow", ())
    assert [one.ranks for one in since.culprits] == [(1,)]


def test_a_rank_without_records_is_not_replaced_by_another() -> None:
    """All that left records wait alike: the one that is missing may be late, and no fabric is blamed for it."""
    job = replace(SHAPES["dp8"], compute=slow(5))
    without = verdict_of(replace(job, left_out=frozenset({5})))
    assert (without.symptom, without.culprits) == ("unknown", ())
    assert any("every rank" in one.what for one in without.missing)
    other = verdict_of(replace(job, left_out=frozenset({2})))
    assert [one.ranks for one in other.culprits] == [(5,)]


def test_without_the_time_between_operations_nothing_is_said_of_the_job() -> None:
    """A plugin that writes at the end alone shows waits, and not which part of a step they are."""
    verdict = verdict_of(replace(SHAPES["dp8"], compute=slow(5), verbose=False))
    assert (verdict.symptom, verdict.culprits) == ("unknown", ())
    assert any("NCCL_INSPECTOR_DUMP_VERBOSE" in one.what for one in verdict.missing)


def test_a_little_lateness_costs_the_job_too_little_for_a_verdict() -> None:
    """It is shown as evidence, with its share of the time."""
    verdict = verdict_of(replace(SHAPES["dp8"], compute=slow(5, times=1.08), jitter=0.005))
    assert verdict.symptom == "healthy"
    assert any("rank 5 comes last" in one.text for one in verdict.evidence)


def test_timings_of_the_hosts_calls_show_no_wait() -> None:
    """A call returns before the device is there: the shortest says nothing of who came last."""
    job = replace(SHAPES["dp8"], compute=slow(5))
    records = [msgspec.structs.replace(one, timing_source="collective_cpu") for one in timings(job)]
    window = Window.build(records)
    verdict = judge(window, infer(window), load())
    assert (verdict.symptom, verdict.culprits) == ("unknown", ())


def test_a_communicator_that_is_long_on_all_members_is_a_set_to_test() -> None:
    """Against others like it, or against its own past; no member is late, and none is evicted."""
    one_of_four = verdict_of(replace(SHAPES["tp4 dp4"], path=lambda a, b: 6.0 if (a, b) == (2, 14) else 1.0))
    assert (one_of_four.cause, classes(one_of_four)) == ("network", ["slow_fabric"])
    assert [one.kind for one in one_of_four.culprits] == ["group"]
    since = verdict_of(replace(SHAPES["dp8"], path=lambda _a, _b: 6.0, since=15))
    assert [(one.kind, one.ranks) for one in since.culprits] == [("group", tuple(range(8)))]
    assert {one_of_four.action.kind, since.action.kind} == {"probe"}


def test_a_slow_path_is_named_and_listed_and_not_who_waits_for_it() -> None:
    """The ranks at its ends come late to their other groups, by the transfer."""
    verdict = verdict_of(replace(SHAPES["pp4 dp4"], path=lambda a, b: 20.0 if (a, b) == (5, 6) else 1.0))
    assert classes(verdict) == ["slow_path"]
    assert [(one.kind, one.id, one.ranks) for one in verdict.culprits] == [("link", "rank 5 → rank 6", (5, 6))]
    assert [(one.source, one.target) for one in verdict.slow_paths] == [("rank 5", "rank 6")]
    assert verdict.action.kind == "probe"


def test_the_matrix_shows_sender_receiver_path_and_switch() -> None:
    """A row, a column, a cell and a block of eight ranks on four nodes that all send to all."""
    nodes = {rank: f"n{rank // 2}" for rank in range(8)}
    every = [(a, b) for a in range(8) for b in range(8) if nodes[a] != nodes[b]]
    shapes = {
        SENDER: lambda a, _b: a == 3,
        RECEIVER: lambda _a, b: b == 4,
        CELL: lambda a, b: (a, b) == (2, 6),
        BLOCK: lambda a, b: a < 4 <= b,
    }
    for kind, is_slow in shapes.items():
        seconds = {cell: 0.03 if is_slow(*cell) else 0.01 for cell in every}
        (found,) = patterns(slow_cells(seconds, dict.fromkeys(every, 1)), every, nodes)
        assert found.kind == kind
        assert {(one.source, one.target) for one in found.paths} == {cell for cell in every if is_slow(*cell)}


def test_all_transfers_between_two_nodes_are_the_path_between_them() -> None:
    """Neither node sends slowly to any other: nothing shows which side it is."""
    nodes = {0: "a", 1: "a", 2: "b", 3: "b"}
    (found,) = patterns([SlowCell(0, 2, 3.0), SlowCell(1, 3, 3.0)], [(0, 2), (1, 3), (2, 0), (3, 1)], nodes)
    assert (found.kind, found.ends) == (CELL, (0, 1, 2, 3))


def test_half_of_the_cells_slow_is_no_slow_cell() -> None:
    """The others are no more usual than they are."""
    seconds = {(0, rank): 0.01 if rank % 2 else 0.03 for rank in range(1, 9)}
    assert slow_cells(seconds, dict.fromkeys(seconds, 1)) == []


@pytest.mark.parametrize("newest", [20, 12])
def test_a_rank_that_comes_late_to_each_of_the_newest_is_late_now(newest: int) -> None:
    """It costs little of the whole record, and much since: it is named with since when, and by few with more doubt."""
    job = replace(SHAPES["dp8"], layers=1, layer_seconds=0.4, steps=200, jitter=0.005)
    verdict = verdict_of(replace(job, compute=slow(5, times=1.75, since=200 - newest)))
    whole = verdict_of(replace(job, steps=newest, compute=slow(5, times=1.75)))
    assert [one.ranks for one in verdict.culprits] == [(5,)]
    assert f"newest {newest} of 200 collectives" in verdict.evidence[0].text
    assert verdict.culprits[0].probability <= whole.culprits[0].probability
    assert (newest >= 20) == (verdict.culprits[0].probability == whole.culprits[0].probability)
    assert verdict.action.kind == "probe"


def test_lateness_that_began_before_also_when_it_was_a_little_is_now() -> None:
    """A rank that was a little late throughout, and is much later since, is not hidden by what it was."""
    job = replace(SHAPES["dp8"], layers=1, layer_seconds=0.4, steps=200, jitter=0.001)
    verdict = verdict_of(replace(job, compute=lambda rank, step: (1.75 if step >= 180 else 1.02) if rank == 5 else 1.0))
    assert "newest 20 of 200 collectives" in verdict.evidence[0].text


@pytest.mark.parametrize("newest", [1, 5])
def test_lateness_to_the_last_few_is_undecided(newest: int) -> None:
    """Five are no verdict and no health; one is what happens to every job."""
    job = replace(SHAPES["dp8"], layers=1, layer_seconds=0.4, steps=50, jitter=0.005)
    verdict = verdict_of(replace(job, compute=slow(5, times=1.75, since=50 - newest)))
    assert (verdict.symptom, verdict.culprits) == ("slow" if newest > 1 else "healthy", ())


def test_bursts_now_and_then_name_no_one_at_the_end_of_one() -> None:
    """Evaluations of rank 0 over twelve steps of each sixty: the newest burst is as those before."""
    job = replace(SHAPES["dp8"], layers=1, layer_seconds=0.4, steps=180, jitter=0.005)
    verdict = verdict_of(replace(job, compute=lambda rank, step: 1.75 if rank == 0 and step % 60 >= 48 else 1.0))
    assert (verdict.symptom, verdict.culprits) == ("slow", ())


def test_lateness_of_changing_ranks_at_the_end_is_no_ones() -> None:
    """Another rank in each of the newest steps."""
    job = replace(SHAPES["dp8"], layers=1, layer_seconds=0.4, steps=200, jitter=0.005)
    verdict = verdict_of(replace(job, compute=lambda rank, step: 1.75 if step >= 180 and rank == step % 8 else 1.0))
    assert verdict.culprits == ()
