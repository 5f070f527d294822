"""The simulated fleet alone: it tells what agents would tell, when they would, and the same again by the same seed."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from analyzers.model.topology import infer
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.records import CommandResult, Placement, ProcessState, Record, StackDump, Steps
from collectors.records.block import decode, encode
from service.packaged_knowledge import load
from simulation.live.fleet import Cut, Delivery, Fleet
from simulation.live.scene_list import BEGAN_AT, FAULTS, PAUSES, Scene, healthy_day, play

KINDS = (*PAUSES, *FAULTS)


def deliveries(fleet: Fleet, until: float) -> Iterator[Delivery]:
    """Yield what is received up to an instant."""
    while fleet.next_at < until:
        if (found := fleet.receive()) is not None:
            yield found


def batches(scene: Scene, until: float | None = None, **options: object) -> list[Delivery]:
    """Return everything that a scene's agents send."""
    return list(deliveries(Fleet([scene.job], 1, BEGAN_AT, **options), until or scene.until))  # type: ignore[arg-type]


def told_steps(found: list[Delivery]) -> dict[int | None, list[int]]:
    """Return the steps that each rank reported, in the order of their receipt."""
    steps: dict[int | None, list[int]] = defaultdict(list)
    for record in (record for one in found for record in one.records):
        if isinstance(record, Steps):
            steps[record.rank] += array("q", record.columns["step"])
    return steps


def answers(scene: Scene, verb: str, at: float) -> list[Record]:
    """Return what all nodes answer to one question."""
    fleet = Fleet([scene.job], 1, BEGAN_AT)
    list(deliveries(fleet, at))
    fleet.ask(at, scene.job.nodes, verb, "asked")
    found = [one.records for one in deliveries(fleet, at + 10)]
    return [record for records in found if isinstance(records[-1], CommandResult) for record in records]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_tells_the_same(kind: str) -> None:
    """Two runs of one seed give equal batches: nothing comes from a clock or from elsewhere."""
    assert batches(play(kind, 3)) == batches(play(kind, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_told_can_be_written(kind: str) -> None:
    """Every batch survives the codec that the real agents use: no value has a type that no agent could send."""
    for one in batches(play(kind, 2))[::7]:
        assert decode(encode(list(one.records))) == list(one.records)


@pytest.mark.parametrize("seed", range(6))
def test_every_step_is_told_once_and_in_order(seed: int) -> None:
    """A healthy job's log has no gap and no repetition, whatever is done between the steps."""
    scene = healthy_day(seed, hours=2)
    every = scene.job.habits.log_every if scene.job.habits.reported_by != "probe" else 1

    for steps in told_steps(batches(scene)).values():
        assert steps == list(range(steps[0], steps[-1] + 1, every))
        assert steps[0] == every


def test_agents_send_every_ten_seconds() -> None:
    """No node is silent for longer than an agent's interval while all is well, and none sends out of turn."""
    sent = defaultdict(list)
    for one in batches(healthy_day(0, hours=1)):
        sent[one.node].append(one.sent_at)

    for instants in sent.values():
        between = [later - earlier for earlier, later in pairwise(instants)]
        assert max(between) == pytest.approx(10.0, abs=0.01)
        assert min(between) == pytest.approx(10.0, abs=0.01)


def test_a_cut_agent_keeps_what_it_has() -> None:
    """What a cut agent could not send comes when the way is free: the same records, and nothing in between."""
    scene = play("evaluation", 4)
    begin, end = BEGAN_AT + 100, BEGAN_AT + 300
    node = scene.job.nodes[0]

    cut = batches(scene, cuts=[Cut(frozenset({node}), begin, end)])
    free = batches(play("evaluation", 4))

    assert not [one for one in cut if one.node == node and begin + 1 < one.received_at < end]
    assert [r for one in cut for r in one.records if r.node == node][:500] == [
        r for one in free for r in one.records if r.node == node
    ][:500]


def test_a_fast_clock_changes_instants_and_nothing_else() -> None:
    """Records of a node whose clock is ahead differ by exactly that, in every instant that they hold."""
    scene, node = play("spin", 1), play("spin", 1).job.nodes[0]

    plain = [r for one in batches(scene) for r in one.records if r.node == node]
    moved = batches(play("spin", 1), ahead_seconds={node: 7.5})
    ahead = [r for one in moved for r in one.records if r.node == node]

    assert len(plain) == len(ahead)
    for one, other in zip(plain, ahead, strict=True):
        assert other.at == pytest.approx((one.at or 0.0) + 7.5)
        if isinstance(one, Steps) and isinstance(other, Steps):
            first, second = array("d", one.columns["at"])[0], array("d", other.columns["at"])[0]
            assert second == pytest.approx(first + 7.5)
        if isinstance(one, ProcessState):
            assert other == msgspec.structs.replace(
                one, at=other.at, started_at=pytest.approx((one.started_at or 0.0) + 7.5)
            )


def test_a_dead_node_is_silent() -> None:
    """Nothing is received from a node after its power went, and it answers nothing."""
    scene = play("dead_node", 2)
    (node,) = scene.truth.nodes

    last = max(one.received_at for one in batches(scene) if one.node == node)

    assert last < scene.truth.at + 0.2
    assert {record.node for record in answers(play("dead_node", 2), "stacks", scene.truth.at + 60)} == {
        *scene.job.nodes
    } - {node}


def test_a_restarted_job_is_placed_anew() -> None:
    """Each attempt of a restart storm has its number and its own processes."""
    placed = {
        (record.attempt, record.pids)
        for one in batches(play("restart_storm", 1))
        for record in one.records
        if isinstance(record, Placement)
    }

    attempts = {attempt for attempt, _ in placed}
    assert len(attempts) >= 5
    assert len({pids for _, pids in placed}) == len(placed)


def test_an_answer_shows_who_stands() -> None:
    """Asked for stacks, agents look twice at every rank: the spinning one is in its loop, nobody else is."""
    scene = play("spin", 5)

    stacks = [r for r in answers(scene, "stacks", scene.truth.at + 30) if isinstance(r, StackDump)]

    assert len(stacks) == 2 * scene.job.world
    inside = {r.rank for r in stacks if r.threads[0].frames[0].function == "check_loss_scale"}
    assert inside == set(scene.truth.ranks)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_shown_of_a_spinning_rank_decides(seed: int) -> None:
    """The answers of a hang name the rank that was made to spin: the evidence is as good as a real job's."""
    scene = play("spin", seed)
    at = scene.truth.at + 30
    records = [record for verb in ("stacks", "recorders", "read") for record in answers(scene, verb, at)]
    records += [r for one in batches(play("spin", seed), at) for r in one.records if isinstance(r, Placement)]

    window = Window.build(records)
    verdict = judge(window, infer(window), load())

    assert [culprit.ranks for culprit in verdict.culprits] == [scene.truth.ranks]
    assert verdict.action.nodes == scene.truth.nodes
