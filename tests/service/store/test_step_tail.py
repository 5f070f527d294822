"""A job's newest steps in memory: which step, how long they take, and what must not be believed or kept."""

from __future__ import annotations

from math import nan

import pytest

from collectors.records import Record
from service.store.log import Stored
from service.store.window.steps import MOST_JOBS, MOST_REPORTERS, MOST_ROWS, StepTail
from tests.support.watched_jobs import step_record

NOW = 1_763_000_000.0


def sent(*records: Record, received_at: float = NOW, ahead: float = 0.0) -> tuple[Stored, tuple[Record, ...]]:
    """Return a batch of a node whose clock is ahead."""
    return Stored(1, "n0", "b", received_at + ahead, received_at, len(records), b""), records


def test_a_steps_time_is_from_one_report_to_the_next() -> None:
    """Every step, or every tenth: the time is of one step, and the newest is known with its instant."""
    tail = StepTail()
    tail.add(*sent(step_record([(1, NOW - 3), (2, NOW - 2.5), (3, NOW - 1.5)], job="each")))
    tail.add(*sent(step_record([(10, NOW - 20), (20, NOW - 15), (30, NOW - 10)], job="tenth")))

    each, tenth = tail.find("each"), tail.find("tenth")

    assert each is not None
    assert (each.step, each.at) == (3, NOW - 1.5)
    assert each.recent_seconds == pytest.approx((0.5, 1.0))
    assert tenth is not None
    assert tenth.median_seconds == pytest.approx(0.5)
    assert tail.find("none") is None


def test_instants_are_by_the_services_clock() -> None:
    """A node whose clock is an hour ahead reports a step of a second ago, not of the future; one without instant is left out."""
    tail = StepTail()
    tail.add(*sent(step_record([(4, nan), (5, NOW + 3_599)], job="j"), ahead=3_600.0))

    found = tail.find("j")

    assert found is not None
    assert (found.step, found.at) == (5, pytest.approx(NOW - 1))
    assert found.median_seconds is None


def test_an_attempt_that_begins_anew_begins_with_its_own_steps() -> None:
    """After a restart the step is the new attempt's, though smaller; what the old one still sends changes nothing."""
    tail = StepTail()
    tail.add(*sent(step_record([(100, NOW - 9)], job="j", attempt=0)))
    tail.add(*sent(step_record([(51, NOW - 2)], job="j", attempt=1)))
    tail.add(*sent(step_record([(101, NOW)], job="j", attempt=0)))

    found = tail.find("j")

    assert found is not None
    assert (found.attempt, found.step) == (1, 51)


def test_a_job_that_starts_again_at_its_first_attempt_shows_its_steps() -> None:
    """Started by hand after its launcher's second restart, it counts attempts from 0 again: a few seconds show it."""
    tail = StepTail()
    tail.add(*sent(step_record([(step, NOW - 90 + step) for step in range(40, 61)], job="j", attempt=2)))
    for begin in (0, 5, 10):
        rows = [(step, NOW - 20 + step) for step in range(begin, begin + 5)]
        tail.add(*sent(step_record(rows, job="j", attempt=0)))

    found = tail.find("j")

    assert found is not None
    assert (found.attempt, found.step) == (0, 14)
    assert found.median_seconds == pytest.approx(1.0)


def test_the_last_words_of_an_earlier_attempt_do_not_hide_the_next() -> None:
    """They are from before it, or come while it goes on."""
    tail = StepTail()
    for second in range(10):
        tail.add(*sent(step_record([(second, NOW + second)], job="j", attempt=1), received_at=NOW + 60))
        late = [(100 + second, NOW + second + 0.5), (101 + second, NOW + second + 0.7)]
        tail.add(*sent(step_record(late, job="j", attempt=0), received_at=NOW + 60))
    tail.add(*sent(step_record([(80, NOW - 30), (81, NOW - 20)], job="j", attempt=0), received_at=NOW + 60))

    found = tail.find("j")

    assert found is not None
    assert (found.attempt, found.step) == (1, 9)


def test_lines_that_were_counted_are_no_steps() -> None:
    """A log without step numbers has a time a line; where something else gives numbers, that is shown."""
    tail = StepTail()
    rows = [(1, NOW - 6), (2, NOW - 3), (3, NOW)]
    tail.add(*sent(step_record(rows, job="j", told_by="transformers lines")))
    counted = tail.find("j")
    tail.add(*sent(step_record([(20, NOW - 8), (30, NOW - 5)], job="j", told_by="bar")))
    numbered = tail.find("j")

    assert counted is not None
    assert (counted.step, counted.unit, counted.median_seconds) == (3, "line", pytest.approx(3.0))
    assert numbered is not None
    assert (numbered.step, numbered.unit, numbered.median_seconds) == (30, "step", pytest.approx(0.3))


def test_what_is_sent_twice_counts_once() -> None:
    """A spool's repetition and older rows change nothing."""
    tail = StepTail()
    rows = step_record([(1, NOW - 2), (2, NOW - 1)], job="j")
    for batch in (rows, rows, step_record([(1, NOW - 2)], job="j")):
        tail.add(*sent(batch))

    found = tail.find("j")

    assert found is not None
    assert found.recent_seconds == pytest.approx((1.0,))


def test_memory_is_bounded() -> None:
    """Rows, reporters and jobs each have a bound: the oldest row, the highest rank, the job longest unseen go."""
    tail = StepTail()
    tail.add(
        *sent(step_record([(step, NOW + step) for step in range(2 * MOST_ROWS)], job="long"), received_at=NOW + 1e6)
    )
    for rank in range(10, 0, -1):
        tail.add(*sent(step_record([(1, NOW)], job="wide", rank=rank)))
    found = tail.find("long")
    assert found is not None
    assert len(found.recent_seconds) == MOST_ROWS - 1
    assert sorted(rank for rank, _ in tail._jobs["wide"].reporters) == list(range(1, MOST_REPORTERS + 1))

    for number in range(MOST_JOBS):
        tail.add(*sent(step_record([(1, NOW)], job=f"j{number}")))

    assert tail.find("long") is None
    assert tail.find(f"j{MOST_JOBS - 1}") is not None


def test_a_run_of_the_same_attempt_begins_with_its_own_steps() -> None:
    """Where somebody starts a job again under its name, the times of the run before it are not this one's."""
    tail = StepTail()
    tail.add(*sent(step_record([(step, NOW - 100 + step) for step in range(1, 50)], job="j")))
    tail.add(*sent(step_record([(step, NOW - 20 + step / 4) for step in range(1, 41)], job="j")))

    found = tail.find("j", NOW - 21)

    assert found is not None
    assert (found.step, len(found.recent_seconds)) == (40, 39)
    assert found.median_seconds == pytest.approx(0.25)
    assert tail.find("j", NOW + 1) is None


@pytest.mark.parametrize("seconds", [0.21, 0.4, 0.47, 0.9, 1.5, 2.6, 7.3, 20.0])
@pytest.mark.parametrize("every", [1, 5])
def test_stamps_of_whole_seconds_tell_the_time_of_a_step(seconds: float, every: int) -> None:
    """Which is a count over a span: their differences are one, or none."""
    tail = StepTail()
    rows = [(step, float(int(NOW - 3_000 + step * seconds))) for step in range(0, 140, every)]
    tail.add(*sent(step_record(rows, job="j")))

    found = tail.find("j")

    assert found is not None
    assert found.median_seconds == pytest.approx(seconds, rel=0.2)
    assert max(found.recent_seconds) < seconds + 1.5


def test_a_pause_between_stamps_of_whole_seconds_stays_one_step() -> None:
    """It is neither spread over the steps beside it, nor does it change the median."""
    tail = StepTail()
    rows = [(step, float(int(NOW - 3_000 + step * 0.4 + (30 if step > 70 else 0)))) for step in range(140)]
    tail.add(*sent(step_record(rows, job="j")))

    found = tail.find("j")

    assert found is not None
    assert found.median_seconds == pytest.approx(0.4, rel=0.2)
    assert max(found.recent_seconds) == pytest.approx(30.4, abs=1.0)


@pytest.mark.parametrize("steps", [130, 700])
def test_a_pause_is_not_the_longest_step(steps: int) -> None:
    """A validation of 20 s every 150 steps of 0.66 s, the first of them not seen again: the longest step is one without it."""
    tail, at = StepTail(), NOW - 3_000
    for step in range(170 - 130, 170 - 130 + steps):
        tail.add(*sent(step_record([(step, at := at + 0.66 + (20.0 if step % 150 == 1 else 0.0))], job="j")))

    found = tail.find("j")

    assert found is not None
    assert found.longest() == pytest.approx((0.66, 20.66))
