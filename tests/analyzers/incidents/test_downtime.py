"""What an incident cost its job, from what the engine sees of it afterwards."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from analyzers.incidents.downtime import Downtime, update_downtimes
from analyzers.incidents.memory import observe_batch
from analyzers.incidents.messages import Received
from analyzers.incidents.state import EngineState
from analyzers.knowledge import Knowledge
from collectors.records import Members, Placement, ProcessState, Record
from tests.support.watched_jobs import START, WatchedJob, step_record, watched

DETECTED_AT = START + 100.0
COST = Downtime(incident="inc-1", job="run", attempt=1, onset_at=START + 10.0, detected_at=DETECTED_AT, last_step=1_003)


class Seen:
    """What the engine has seen of a job on one node."""

    def __init__(self) -> None:
        self.state = EngineState(Knowledge())

    def tell(self, at: float, *records: Record) -> None:
        """Receive a batch, so many seconds after the start."""
        received = Received(
            sequence=self.state.sequence + 1, received_at=START + at, node="n0", records=records, sent_at=START + at
        )
        observe_batch(self.state, received)

    def steps(self, at: float, rows: Sequence[tuple[int, float]], attempt: int = 1) -> None:
        """Receive steps: number, and seconds after the start."""
        self.tell(at, step_record([(step, START + when) for step, when in rows], attempt=attempt))

    def trains(self, rows: Sequence[tuple[int, float]]) -> None:
        """Receive steps as an agent sends them: soon after each."""
        for step, when in rows:
            self.steps(when + 1.0, [(step, when)])

    def losses(self, at: float, rows: Sequence[tuple[int, float, float, int]]) -> None:
        """Receive steps with their loss: number, seconds after the start, loss, and what is NaN."""
        loss, nan = [row[2] for row in rows], [row[3] for row in rows]
        self.tell(at, step_record([(step, START + when) for step, when, *_ in rows], attempt=1, loss=loss, nan=nan))

    def run(self, at: float, attempt: int = 1) -> None:
        """Receive who runs."""
        ranks = Members.of([0, 1])
        self.tell(at, Placement(job="run", attempt=attempt, ranks=ranks, nodes=("n0",) * 2, pids=(7, 8), world_size=2))

    def end(self, at: float, rank: int, attempt: int = 1) -> None:
        """Receive that a rank's process was killed."""
        self.tell(
            at,
            ProcessState(
                job="run", attempt=attempt, rank=rank, node="n0", pid=7 + rank, state="X", signal=15, at=START + at
            ),
        )

    def cost(self) -> Downtime:
        """Return what is known of the cost."""
        return next(update_downtimes([COST], self.state.jobs.values()), COST)


def test_nothing_is_known_while_the_job_stands() -> None:
    """Steps from before, and the one that was under way, are neither an act nor a good step."""
    seen = Seen()
    seen.run(0)
    seen.steps(10, [(1_001, 4.0), (1_002, 6.0), (1_003, 8.0)])
    seen.run(150)

    assert seen.cost() == COST


def test_a_restart_from_a_checkpoint_loses_steps() -> None:
    """Attempt 2 begins anew at step 1,000 after the first ended: acted at the end, four steps are done twice."""
    seen = Seen()
    seen.run(0)
    seen.steps(10, [(1_002, 6.0), (1_003, 8.0)])
    seen.end(120, 0)
    seen.end(130, 1)
    seen.run(160, attempt=2)
    seen.steps(200, [(1_000, 190.0), (1_001, 192.0), (1_002, 194.0)], attempt=2)

    cost = seen.cost()

    assert cost.acted_at == START + 130
    assert cost.first_good_at == START + 190
    assert (cost.resumed_step, cost.steps_lost) == (1_000, 4)


def test_a_job_that_goes_on_by_itself_loses_time_and_no_step() -> None:
    """Two steps of the same attempt after the detection: nobody acted, and nothing was done twice."""
    seen = Seen()
    seen.run(0)
    seen.steps(10, [(1_002, 6.0), (1_003, 8.0)])
    seen.steps(300, [(1_004, 290.0), (1_005, 292.0), (1_006, 294.0)])

    cost = seen.cost()

    assert cost.acted_at is None
    assert cost.first_good_at == START + 290
    assert (cost.resumed_step, cost.steps_lost) == (1_004, 0)


@pytest.mark.parametrize("odd", [(math.nan, 1), (900.0, 0)], ids=["nan", "spike"])
def test_a_step_with_wrong_numbers_is_no_good_step(odd: tuple[float, int]) -> None:
    """The job goes on with wrong numbers: it trains again from the first step of those that are right."""
    seen = Seen()
    seen.run(0)
    before = [(1_000 + step, 1.0 + step, 2.0, 0) for step in range(60)]
    wrong = [(1_060 + step, 98.0 + step, *odd) for step in range(40)]
    seen.losses(140, [*before, *wrong])
    lasting = seen.cost()
    seen.losses(200, [(1_100 + step, 150.0 + step, 2.0, 0) for step in range(4)])
    early = seen.cost()
    seen.losses(220, [(1_104 + step, 154.0 + step, 2.0, 0) for step in range(20)])

    assert lasting == early == COST
    assert seen.cost().first_good_at == START + 150
    assert seen.cost().resumed_step == 1_100


def test_one_dead_rank_is_no_act() -> None:
    """While the others of the attempt still hang nobody has acted; the end of the last is the act."""
    seen = Seen()
    seen.run(0)
    seen.end(120, 1)
    before = seen.cost().acted_at
    seen.end(180, 0)

    assert before is None
    assert seen.cost().acted_at == START + 180


def test_another_job_is_not_this_one() -> None:
    """Steps of a job of another name change nothing."""
    seen = Seen()
    seen.run(0)
    seen.tell(300, step_record([(5, START + 290.0)], attempt=2, job="other"))

    assert seen.cost() == COST


def test_a_job_that_goes_on_without_one_of_its_roles_does_not_stand() -> None:
    """A rollout is lost at 10 s, and steps come before and after that, some of them longer: no second is lost."""
    seen = Seen()
    seen.run(0)
    longer = [(1_060 + step, 120.0 + 3.0 * step) for step in range(6)]
    seen.trains([*((1_000 + step, 2.0 * step) for step in range(60)), *longer])
    cost = seen.cost()

    assert cost.first_good_at is not None
    assert cost.stood_at == cost.first_good_at


def test_a_job_that_stops_after_one_of_its_roles_stands_since_its_last_step() -> None:
    """The others have work until 60 s; a new attempt makes its first step at 190 s."""
    seen = Seen()
    seen.run(0)
    seen.trains([(1_000 + step, 2.0 * step) for step in range(31)])
    waiting = seen.cost()
    seen.run(160, attempt=2)
    seen.steps(200, [(1_030, 190.0), (1_031, 192.0), (1_032, 194.0)], attempt=2)

    assert (waiting.stood_at, waiting.first_good_at) == (START + 60.0, None)
    assert (seen.cost().stood_at, seen.cost().first_good_at) == (START + 60.0, START + 190.0)


def test_one_late_step_between_two_stops_is_no_pace() -> None:
    """No step comes for 50 s after the first sign: what comes later does not make that training."""
    seen = Seen()
    seen.run(0)
    seen.trains([*((1_000 + step, 0.5 * step) for step in range(21)), (1_021, 60.0)])

    assert seen.cost().stood_at is None


@pytest.mark.parametrize("seconds", [1_500.0, 2_300.0])
def test_the_first_good_step_of_a_slow_job_is_one_after_its_slowdown(seconds: float) -> None:
    """Steps take 2.5 s instead of 1 s from 1,000 s to 2,000 s: they go on all the time, and are good again after that."""
    now = 0.0

    def law(_step: int, _noise: object) -> float:
        nonlocal now
        length = 2.5 if 1_000.0 <= now < 2_000.0 else 1.0
        now += length
        return length

    detected = Downtime(
        incident="inc-1", job="run", attempt=0, kind="slow", onset_at=START + 1_000.0, detected_at=START + 1_200.0
    )

    (cost,) = update_downtimes([detected], [watched(WatchedJob(law=law), seconds)])

    assert cost.stood_at is not None
    if seconds < 2_000.0:
        assert cost.first_good_at is None
        assert cost.stood_at >= START + seconds - 30.0
    else:
        assert cost.first_good_at == pytest.approx(START + 2_000.0, abs=15.0)
        assert cost.stood_at == cost.first_good_at
