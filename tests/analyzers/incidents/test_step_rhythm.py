"""How long a job may be silent: by its own step times, and by where and how long it has paused before."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.incidents.job_views import JobView, StepRhythm
from analyzers.incidents.job_views.progress import StepSeries
from analyzers.incidents.job_views.step_rhythm import (
    EARLY_SECONDS,
    MOST_PAUSES,
    MOST_ROWS,
    SHORTEST_SECONDS,
    Habit,
    StepRow,
)
from analyzers.incidents.messages import Received
from tests.support.sentences import numbers_in
from tests.support.watched_jobs import START, step_record


def rhythm(seconds: Callable[[int], float], steps: int, found: StepRhythm | None = None, begin: int = 1) -> StepRhythm:
    """The rhythm of a job whose step k takes so many seconds."""
    found = found or StepRhythm()
    at = found.rows[-1].at if found.rows else START
    for step in range(begin, begin + steps):
        at += seconds(step)
        found.add(StepRow(at, step))
    return found


def test_before_the_first_step_there_is_no_bound() -> None:
    """A job that has reported nothing may be silent for ever: other signs show that it does not start."""
    assert StepRhythm().allowed_seconds() == math.inf


def test_a_few_steps_give_a_wide_bound() -> None:
    """Five steps are no rhythm: two minutes, or four times the longest, whichever is more."""
    assert rhythm(lambda _: 1.0, 5).allowed_seconds() == EARLY_SECONDS
    assert rhythm(lambda _: 50.0, 5).allowed_seconds() == pytest.approx(200.0)


@pytest.mark.parametrize(("seconds", "bound"), [(0.2, SHORTEST_SECONDS), (1.0, SHORTEST_SECONDS), (60.0, 120.0)])
def test_the_bound_is_twice_what_one_step_in_a_hundred_takes(seconds: float, bound: float) -> None:
    """Steps of 60 s allow 120 s of silence; very short ones allow eight seconds."""
    assert rhythm(lambda _: seconds, 60).allowed_seconds() == pytest.approx(bound)


def test_slow_first_steps_are_no_part_of_the_rhythm() -> None:
    """Compiling for a minute in each of the first three steps leaves the bound where the later ones put it."""
    found = rhythm(lambda step: 60.0 if step <= 3 else 1.0, 20)

    assert found.allowed_seconds() == SHORTEST_SECONDS


def test_one_long_pause_changes_nothing_and_a_second_one_does() -> None:
    """A pause of 300 s at no round step may be an accident; two are how this job is."""
    once = rhythm(lambda step: 300.0 if step == 137 else 1.0, 200)
    twice = rhythm(lambda step: 300.0 if step in {137, 191} else 1.0, 400)

    assert once.allowed_seconds() <= 60.0
    assert twice.allowed_seconds() == pytest.approx(450.0)


def test_a_checkpoint_is_expected_at_its_place_only() -> None:
    """After two pauses of a minute, 500 steps apart, silence after step 1,499 may be half as long again, elsewhere not."""
    found = rhythm(lambda step: 61.0 if step % 500 == 0 else 1.0, 1_499)

    assert found.allowed_seconds() == pytest.approx(1.5 * 61.0)
    assert found.allowed_seconds(1_700) == SHORTEST_SECONDS


def test_a_first_checkpoint_at_a_round_step_is_expected_again() -> None:
    """One pause after step 499 lets expect the next at 999, but not at 700."""
    found = rhythm(lambda step: 61.0 if step % 500 == 0 else 1.0, 999)

    assert found.allowed_seconds() == pytest.approx(1.5 * 61.0)


def test_an_evaluation_among_checkpoints_has_a_place_of_its_own() -> None:
    """Checkpoints every 500 steps and an evaluation every 1,000 are two habits of different length."""
    found = rhythm(lambda step: 1.0 + 20.0 * (step % 500 == 0) + 120.0 * (step % 1_000 == 0), 4_499)

    assert 1.5 * 21.0 <= found.allowed_seconds(4_499) < 60.0
    assert found.allowed_seconds(4_999) == pytest.approx(1.5 * 141.0)


def test_a_job_that_stops_to_pause_loses_the_habit() -> None:
    """Where most places of a habit have gone by without a pause it is none."""
    found = rhythm(lambda step: 61.0 if step in {500, 1_000} else 1.0, 4_499)

    assert found.allowed_seconds() < 1.5 * 61.0 + 1.0
    assert Habit(500, 499, 61.0).meets(4_499, 1)


def test_a_pause_by_the_clock_comes_at_nearly_the_same_number_of_steps() -> None:
    """Every half an hour is every 1,800 steps, give or take some."""
    found = rhythm(lambda step: 46.0 if step in {1_803, 3_598, 5_404} else 1.0, 7_201)

    assert found.allowed_seconds() == pytest.approx(1.5 * 46.0)


def test_a_day_of_steps_is_held_in_bounded_memory() -> None:
    """What is kept of 100,000 steps with 200 pauses is some hundred rows and pauses, the long ones among them."""
    found = rhythm(lambda step: 1.0 + 10.0 * (step % 500 == 0) + 500.0 * (step % 25_000 == 0), 99_999)

    assert len(found.rows) <= MOST_ROWS
    assert len(found._folded) <= MOST_PAUSES
    assert found.allowed_seconds() == pytest.approx(1.5 * 511.0)


def test_pauses_are_forgotten_after_a_day() -> None:
    """Two long pauses of the day before yesterday allow nothing today."""
    found = rhythm(lambda step: 300.0 if step in {137, 191} else 1.0, 1_000)
    rhythm(lambda _: 60.0, 3_000, found, begin=1_001)

    assert found.allowed_seconds() == pytest.approx(120.0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.1, 100.0), min_size=10, max_size=200), st.randoms(use_true_random=False))
def test_the_order_in_which_steps_come_makes_no_difference(seconds: list[float], order: random.Random) -> None:
    """Steps that come in any order, and some of them twice, give the same rhythm."""
    rows, at = [], START
    for step, taken in enumerate(seconds):
        at += taken
        rows.append(StepRow(at, step))
    shuffled = [*rows, *rows[::3]]
    order.shuffle(shuffled)
    one, other = StepRhythm(), StepRhythm()
    for row in rows:
        one.add(row)
    for row in shuffled:
        other.add(row)

    assert (other.rows, other.p99_seconds()) == (one.rows, one.p99_seconds())
    assert other.allowed_seconds() == one.allowed_seconds()


def test_a_new_run_has_none_of_the_last_runs_odd_steps() -> None:
    """The steps are forgotten with what was odd about them, until the new run makes its own."""
    series = StepSeries(StepRhythm())
    for step in range(20):
        series.take(StepRow(float(step), step, loss=math.nan if step > 15 else 1.0, nan=int(step > 15)))
    before = series.trouble()
    series.rhythm.forget(100.0)

    assert before is not None
    assert series.trouble() is None


def test_a_loss_without_stamps_is_nan_from_its_first_step_on() -> None:
    """Of lines without stamps the newest alone has an instant; those read with it say where the NaN began, or was over."""
    view = JobView("run", 0)
    batches = [(range(1, 26), {5}), (range(26, 59), set[int]()), (range(59, 70), set(range(60, 70)))]
    for number, (steps, odd) in enumerate(batches):
        rows = [(step, math.nan) for step in steps]
        losses = [math.nan if step in odd else 1.0 for step in steps]
        at = START + 10.0 * number
        reported = step_record(rows, at=at, loss=losses, nan=[int(step in odd) for step in steps])
        batch = Received(sequence=number + 1, received_at=at, node="n0", records=(reported,), sent_at=at)
        view.take(batch, batch.records)

    found = view.progress.trouble()

    assert found is not None
    assert (found.step, numbers_in(found.text)) == (60, [60])


@pytest.mark.parametrize(("unread", "pauses"), [(43, 0), (0, 2)])
def test_steps_that_an_absent_agent_read_later_are_no_pause(unread: int, pauses: int) -> None:
    """It was away for 43 s, twice, and the job did its steps meanwhile; one that did none has paused."""
    found, at, step = StepRhythm(), START, 0
    for turn in range(120):
        away = turn in (61, 97)
        at, step = (at + 43.0, step + max(1, unread)) if away else (at + 1.0, step + 1)
        found.add(StepRow(at, step))

    assert len(found.document()["pauses"]) == pauses
    longest = max(found.allowed_seconds(later) for later in range(step, step + 60))
    assert (longest < 20.0) is (pauses == 0)
