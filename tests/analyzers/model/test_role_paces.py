"""A trainer whose own work at a step takes longer than before, beside peers that finish each step with it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from analyzers.model.role_paces import MOST_PACES, Pace, add_pace, slower_than_before
from collectors.records import RoleState
from tests.support.role_readings import JOB, START, named

STEP_SECONDS, READ_SECONDS = 4.0, 5.0


def trainers(
    worked: list[list[tuple[float, float]]], until: float = 600.0, seed: int = 0, checkpoint: float = 0.0
) -> list[RoleState]:
    """Return readings of trainers in step. ``worked``: of each, from when on a step takes it how many seconds."""
    return [
        one for rank, of in enumerate(worked) for one in _trainer(rank, of, until, Random(10 * seed + rank), checkpoint)
    ]


def _trainer(
    rank: int, worked: list[tuple[float, float]], until: float, random: Random, checkpoint: float
) -> Iterator[RoleState]:
    steps, total, read = 0, 0.0, 0.0
    while (after := steps * STEP_SECONDS) <= until:
        seconds = next(seconds for since, seconds in reversed(worked) if since <= after)
        total += seconds * random.lognormvariate(0.0, 0.3)
        total += checkpoint if rank == 0 and steps % 10 == 9 else 0.0
        steps += 1
        if after >= read:
            read += READ_SECONDS
            yield RoleState(
                **JOB, source="roles", at=START + after, received_at=START + after, role="trainer", instance=str(rank),
                node=f"t{rank}", phase="wait", phase_since=START + after, waiting_for="queue:experience", weights=steps,
                waiting_since=START + after, steps_total=steps, worked_seconds=total, renewed_at=START + after, state="serving",
            )  # fmt: skip


EVEN, SLOWS = [(0.0, 0.3)], [(0.0, 0.3), (300.0, 0.9)]


@pytest.mark.parametrize("until", [480.0, 600.0, 1_200.0])
@pytest.mark.parametrize("peers", [1, 3])
def test_a_trainer_that_works_longer_than_before_at_a_step_is_slow(until: float, peers: int) -> None:
    """Its peers finish each step with it, and work no longer: two are enough where the past is known."""
    assert named_at(trainers([EVEN] * peers + [SLOWS], until)) == [("role_slow", "trainer", str(peers))]


def test_two_trainers_without_a_past_are_not_compared() -> None:
    """Which of two does other work by design no reading says."""
    assert named_at(trainers([EVEN, [(0.0, 0.9)]])) == []


@pytest.mark.parametrize(
    "worked",
    [
        pytest.param([SLOWS, SLOWS], id="answers become longer for all"),
        pytest.param([SLOWS], id="a trainer alone"),
        pytest.param([EVEN, [(0.0, 0.3), (300.0, 0.5)]], id="less than twice as long"),
        pytest.param([EVEN, [(0.0, 0.3), (300.0, 0.9), (400.0, 0.3)]], id="it was slow and is not any more"),
        pytest.param([EVEN, [(0.0, 0.3), (550.0, 0.9)]], id="slow for too short a time"),
        pytest.param([EVEN, [(0.0, 0.3), (300.0, 0.1)]], id="quicker than before"),
    ],
)
def test_what_is_no_change_of_one_names_nobody(worked: list[list[tuple[float, float]]]) -> None:
    """Of all, of nobody to compare with, too little, over, or too young."""
    assert named_at(trainers(worked)) == []


def test_checkpoints_of_one_rank_and_chance_name_nobody() -> None:
    """One rank saves every tenth step, which takes it a minute; a step's length varies by a third."""
    for seed in range(30):
        assert named_at(trainers([EVEN] * 4, 1_800.0, seed, checkpoint=60.0)) == []


def test_the_past_stays_known_and_small() -> None:
    """After a day of readings some of the first hour are kept, and the newest are close together."""
    paces: list[Pace] = []
    for number in range(5_760):
        add_pace(paces, Pace(15.0 * number, number, float(number)))
    assert len(paces) == MOST_PACES
    assert paces[1].at < 15.0 * 5_760 / 8
    assert paces[-1].at - paces[-5].at == 60.0


def test_another_process_begins_anew() -> None:
    """A counter that goes back is that of a process that was started again: what it did before says nothing of now."""
    paces = [Pace(15.0 * number, number, float(number)) for number in range(10)]
    add_pace(paces, Pace(200.0, 2, 1.0))
    assert paces == [Pace(200.0, 2, 1.0)]
    assert list(slower_than_before({("trainer", "0"): paces}, 120.0, 2.0)) == []


def named_at(records: list[RoleState]) -> list[tuple[str, str, str]]:
    """Return who is named at the last reading."""
    return named(records, at=max(one.at or 0.0 for one in records))
