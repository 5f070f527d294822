"""The very engine over the simulated fleet, a seed of each scene: pauses evict nobody, faults are named, blindness is reported.

The matrices with many seeds are ``tests/acceptance/healthy_fleet.py`` and ``tests/acceptance/blindness.py``.
"""

from __future__ import annotations

import pytest

from simulation.live.fleet import Cut, Fleet
from simulation.live.scene_list import BEGAN_AT, FAULTS, PAUSES, healthy_day, play
from tests.acceptance import blindness, healthy_fleet
from tests.support.simulated_fleet import Drive, drive, names, upper_bound

SEED = 3


@pytest.mark.system
@pytest.mark.parametrize("kind", PAUSES)
def test_a_pause_proposes_nobody(kind: str) -> None:
    """A job that pauses may open an incident; no version of its verdict would take a machine out, and it closes."""
    seen, _ = drive(play(kind, SEED), SEED)

    assert not seen.replacing
    if kind != "cuda_graphs":
        assert len(seen.closed) == len(seen.opened)


@pytest.mark.system
@pytest.mark.parametrize("kind", sorted(set(FAULTS) - {"dead_node"}))
def test_a_fault_is_named(kind: str) -> None:
    """The first published verdict names the rank at fault, and only its node is ever proposed."""
    scene = play(kind, SEED)

    seen, _ = drive(scene, SEED)

    first = next(one for one in seen.published if one.at > scene.truth.at)
    assert names(first.verdict, scene), first.verdict.culprits
    assert {node for one in seen.replacing for node in one.replaces} == set(
        scene.truth.nodes if scene.truth.evicts else ()
    )


def test_a_dead_node_is_at_most_probed() -> None:
    """A node that is silent while its peers wait is no proof: whatever is said of it, nobody is evicted."""
    seen, _ = drive(play("dead_node", SEED), SEED)

    assert seen.opened
    assert not seen.replacing


@pytest.mark.system
def test_a_node_that_dies_with_half_of_the_ranks_is_named() -> None:
    """The others stand at one line, and left the only dumps: that node alone fell silent, so that no dump was lost."""
    scene = play("dead_node", 5)
    seen, _ = drive(scene, 5)

    assert [(one.verdict.cause, one.verdict.action.kind) for one in seen.published] == [("machine", "probe")]
    assert names(seen.published[-1].verdict, scene)


def test_a_job_is_not_forgotten_with_its_teller() -> None:
    """Where the node that dies is the one whose log tells of the steps, the others' still ports open the incident."""
    seed = next(seed for seed in range(100) if (scene := play("dead_node", seed)).job.habits.reported_by == "log"
                and scene.job.node_of(scene.job.world - 1) in scene.truth.nodes)  # fmt: skip

    seen, _ = drive(play("dead_node", seed), seed)

    assert [one.symptoms[0].detector for one in seen.opened if one.job is not None] == ["zero_traffic"]
    assert not seen.replacing


@pytest.mark.system
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.acceptance) for seed in (1, 2))])
def test_a_healthy_morning_is_quiet(seed: int) -> None:
    """An hour of health, with checkpoints and evaluations, propose nobody and open next to nothing."""
    seen, _ = drive(healthy_day(seed, hours=1), seed)

    assert not seen.replacing
    assert len(seen.opened) <= 2
    assert seen.batches > 700


@pytest.mark.system
def test_an_evaluation_after_a_checkpoint_is_learned() -> None:
    """Every second checkpoint is followed by an evaluation: one silence, of which the newest verdict is healthy."""
    seen, _ = drive(healthy_day(15, hours=6), 15)

    assert len(seen.opened) == 2
    assert [one.verdict.symptom for one in seen.published] == ["hang", "hang", "healthy"]
    assert "rank 0 was in an evaluation" in seen.closed[-1].because


def test_the_control_would_have_evicted() -> None:
    """The naive rule takes innocent ranks out in the same runs in which the engine proposes nobody."""
    evicted = [healthy_fleet.run_one(kind, SEED)["naive_innocent"] for kind in ("compile_on_one_rank", "debugger")]

    assert all(evicted)


@pytest.mark.system
def test_cut_agents_tell_of_what_they_missed() -> None:
    """Where every agent of a job is cut for some minutes, nothing is opened of the job: it steps when it is seen again."""
    scene = healthy_day(2, hours=1)
    begin = BEGAN_AT + 1800
    fleet = Fleet([scene.job], 2, BEGAN_AT, [Cut(frozenset(scene.job.nodes), begin, begin + 240)])

    seen = Drive(fleet).run(scene.until)

    assert not [one for one in seen.opened if one.job is not None and begin < one.opened_at < begin + 300]
    assert not seen.replacing


@pytest.mark.system
@pytest.mark.parametrize("kind", ["restart", "cut"])
def test_a_blinded_fleet_proposes_nobody(kind: str) -> None:
    """Of 16 agents 30 % are cut, or the service is away: no machine is proposed."""
    row = blindness.run_one(kind, SEED, count=2)

    assert row["innocent"] == []
    assert row["naive_innocent"] > 0


def test_an_agreeing_bound() -> None:
    """Where nothing was seen in n days, the bound is the rule of three's 3 / n."""
    assert upper_bound(0, 300) == pytest.approx(3 / 300, rel=0.01)
    assert upper_bound(1, 300) == pytest.approx(4.744 / 300, rel=0.01)
