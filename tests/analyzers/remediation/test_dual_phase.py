"""Dual-phase replay: two runs on groups of machines name the one that computes wrongly, or the plan is refused."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from analyzers.remediation.dual_phase import ReplayPlan, ReplayUnsuited, count_repeats, intersect_groups, plan_replay


def named(count: int) -> list[str]:
    """Name so many machines."""
    return [f"m{number}" for number in range(count)]


def candidates(size: int, groups: int, machine: int) -> list[int]:
    """The oracle: all machines that share both groups with one, by the paper's two formulas."""
    return [x for x in range(size * groups) if x // size == machine // size and x % groups == machine % groups]


def replayed(plan: ReplayPlan, faulty: str, shows: float = 1.0, seed: int = 0) -> set[str]:
    """Run the plan: the groups in which the faulty machine showed in one of the repeats."""
    chance = random.Random(seed)
    return {
        group.name
        for group in (*plan.horizontal, *plan.vertical)
        if faulty in group.nodes and any(chance.random() < shows for _ in range(plan.repeats))
    }


def test_the_papers_example_names_machine_13() -> None:
    """Of 24 machines in groups of 4, machine 13 lies in H3 and V1, and is the only one that does (ByteRobust, Figure 6)."""
    made = plan_replay(named(24), pipeline_nodes=4, data_parallel=6)

    assert (made.group_nodes, len(made.horizontal), len(made.vertical)) == (4, 6, 6)
    assert made.horizontal[3].nodes == ("m12", "m13", "m14", "m15")
    assert made.vertical[1].nodes == ("m1", "m7", "m13", "m19")
    assert intersect_groups(made, ["H3", "V1"]) == ("m13",)


def test_an_ambiguous_split_is_refused() -> None:
    """Groups of 6 nodes, 4 of them, leave sets of 2: the replay is refused and the sentence says so."""
    assert max(len(candidates(6, 4, machine)) for machine in range(24)) == 2

    with pytest.raises(ReplayUnsuited, match="up to 2 machines in one intersection"):
        plan_replay(named(24), pipeline_nodes=6, data_parallel=4)


@given(st.integers(1, 12), st.integers(1, 24), st.data())
def test_every_plan_names_every_machine(pipeline_nodes: int, data_parallel: int, data: st.DataObject) -> None:
    """Whichever machine is faulty, its two groups name it alone; a plan is refused only where no split could."""
    machines = named(pipeline_nodes * data_parallel)
    faulty = data.draw(st.integers(0, len(machines) - 1))
    unique = [
        k
        for k in range(1, data_parallel + 1)
        if data_parallel % k == 0
        and all(len(candidates(k * pipeline_nodes, data_parallel // k, x)) == 1 for x in range(len(machines)))
    ]
    try:
        made = plan_replay(machines, pipeline_nodes, data_parallel)
    except ReplayUnsuited:
        assert unique == []
        return

    assert made.replicas == max(unique)
    assert intersect_groups(made, replayed(made, machines[faulty])) == (machines[faulty],)
    for phase in (made.horizontal, made.vertical):
        assert sorted(node for group in phase for node in group.nodes) == sorted(machines)
        assert {len(group.nodes) for group in phase} == {made.group_nodes}
    assert made.group_nodes == made.replicas * pipeline_nodes


@given(st.floats(0.02, 1.0), st.floats(0.5, 0.999))
def test_repeats_show_the_fault_as_often_as_wished(shows: float, wished: float) -> None:
    """With that many runs both phases show the fault with the wished probability, and with one fewer they do not."""
    count = count_repeats(shows, wished)

    assert (1 - (1 - shows) ** count) ** 2 >= wished - 1e-9
    assert count == 1 or (1 - (1 - shows) ** (count - 1)) ** 2 < wished + 1e-9


def test_a_fault_of_a_low_rate_is_found_by_repeating() -> None:
    """A fault that shows in one run of five is found in 96 of 100 replays or more, and in less than 10 without repeats."""
    machines = named(24)
    often = plan_replay(machines, 4, 6, shows=0.2, wished=0.99)
    once = plan_replay(machines, 4, 6)

    def found(made: ReplayPlan) -> int:
        return sum(intersect_groups(made, replayed(made, "m13", 0.2, seed)) == ("m13",) for seed in range(100))

    assert often.repeats == 24
    assert found(often) >= 96
    assert found(once) < 10


def test_a_phase_that_shows_nothing_names_nobody() -> None:
    """With no bad group in one of the phases nobody is named."""
    made = plan_replay(named(24), 4, 6)

    assert intersect_groups(made, []) == ()
    assert intersect_groups(made, ["H3"]) == ()
    assert intersect_groups(made, ["V1"]) == ()


@given(st.integers(0, 23), st.integers(0, 23))
def test_two_faulty_machines_are_among_those_named(one: int, other: int) -> None:
    """Two faulty machines are among those that are named, and more than one name says: check, do not evict."""
    assume(one != other)
    made = plan_replay(named(24), 4, 6)

    names = intersect_groups(made, replayed(made, f"m{one}") | replayed(made, f"m{other}"))

    assert {f"m{one}", f"m{other}"} <= set(names)
    assert len(names) in (2, 3, 4)


@pytest.mark.parametrize(
    ("machines", "pipeline_nodes", "data_parallel", "says"),
    [
        (named(23), 4, 6, "23 machines are not 6 replicas of 4 nodes"),
        ([], 0, 0, "0 machines"),
        (named(24), -4, -6, "whole job"),
        (["m0"] * 24, 4, 6, "named twice"),
    ],
)
def test_jobs_that_cannot_be_split_are_refused(
    machines: list[str], pipeline_nodes: int, data_parallel: int, says: str
) -> None:
    """Machines that are no whole job are refused with what is wrong."""
    with pytest.raises(ReplayUnsuited, match=says):
        plan_replay(machines, pipeline_nodes, data_parallel)


@pytest.mark.parametrize("shows", [0.0, -1.0, 1.5, math.nan, 2e-9])
def test_a_rate_that_no_replay_meets_is_refused(shows: float) -> None:
    """A fault that hardly ever shows, or a rate that is none, is refused rather than replayed for days."""
    with pytest.raises(ReplayUnsuited, match="shows"):
        count_repeats(shows)


def test_a_group_that_is_not_there_is_told() -> None:
    """A bad group of another plan is an error, not an acquittal of everybody."""
    with pytest.raises(ValueError, match="no group H9"):
        intersect_groups(plan_replay(named(24), 4, 6), ["H9", "V1"])
