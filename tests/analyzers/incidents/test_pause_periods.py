"""Every how many steps a job pauses: said where its pauses determine it, and never otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from analyzers.incidents.job_views import StepRhythm
from analyzers.incidents.job_views.pause_periods import Pause, recurrences
from analyzers.incidents.job_views.step_rhythm import MOST_PAUSES, StepRow
from tests.support.watched_jobs import START


@dataclass(frozen=True)
class Drawn:
    """A job that pauses every so many steps, for so long, and prints every ``stride``-th."""

    schedules: dict[int, float]
    first: int = 0
    steps: int = 1_000
    stride: int = 1
    by_chance: frozenset[int] = frozenset()

    def rhythm(self) -> StepRhythm:
        """Return what is learned from its steps."""
        found, at = StepRhythm(), START
        for step in range(self.first, self.first + self.steps):
            at += 1.0
            if step % self.stride == 0:
                found.add(StepRow(at, step))
            at += self.pause(step)
        return found

    def pause(self, step: int) -> float:
        """Return for how long it pauses after a step."""
        regular = sum(seconds for period, seconds in self.schedules.items() if step and step % period == 0)
        return regular + 30.0 * (step in self.by_chance)

    def periods(self) -> list[int]:
        """Return the periods that are stated."""
        return sorted(one["period"] for one in self.habits())

    def habits(self) -> list[dict[str, Any]]:
        """Return what is stated of its pauses."""
        return list(self.rhythm().document()["habits"])


def drawn(seed: int) -> Drawn:
    """One or two schedules, or none, pauses by chance, any first step, and lines of every step or some."""
    random = Random(seed)
    periods = random.sample([50, 75, 100, 150, 200, 250, 300, 500], random.choice([0, 1, 1, 2, 2]))
    first, steps = random.choice([0, 1, 1_000, 3_217]), random.randrange(200, 2_500)
    by_chance = frozenset(random.randrange(first, first + steps) for _ in range(random.choice([0, 0, 2, 6])))
    seconds = {period: random.uniform(8.0, 40.0) for period in periods}
    return Drawn(seconds, first, steps, random.choice([1, 1, 5, 10]), by_chance)


@pytest.mark.parametrize("seed", range(150))
def test_a_stated_period_is_one_that_the_job_has(seed: int) -> None:
    """Whatever is stated is a schedule of the job, and what has come at six places of each step's lines is stated."""
    job = drawn(seed)
    said = job.habits()

    for one in said:
        exact = [period for period, seconds in job.schedules.items() if one["seconds"] <= 2 * seconds + 2]
        both = math.lcm(*job.schedules)  # where two fall together they are longer than either
        assert any(abs(period - one["period"]) <= one["within"] for period in (*exact, both)), (job, said)
    last = job.first + job.steps - 2
    for period in job.schedules:
        of_another = any(period % other == 0 for other in job.schedules if other != period)
        rare = (
            sum(1 / other for other in job.schedules) + len(job.by_chance) / job.steps < 0.015
        )  # what is frequent is no pause
        if job.stride == 1 and rare and not of_another and last // period - max(job.first + 3, 1) // period >= 6:
            assert (period, 0) in [(one["period"], one["within"]) for one in said], (job, said)


@pytest.mark.parametrize(
    ("job", "periods"),
    [
        (Drawn({150: 20.0}, steps=640), [150]),
        (Drawn({150: 20.0}, steps=450), []),  # seen twice
        (Drawn({150: 20.0, 200: 15.0}, steps=449), []),  # 200, 300, 400: no pause came at 100
        (Drawn({150: 20.0, 200: 15.0}, steps=1_250), [150, 200]),
        (Drawn({100: 10.0, 150: 10.0}, steps=760), [100, 150]),
        (Drawn({100: 10.0, 500: 60.0}, steps=1_700), [100, 500]),
        (Drawn({}, steps=900, by_chance=frozenset({137, 191, 402, 655})), []),
        (Drawn({150: 20.0}, first=1_000, steps=480), []),  # three, and steps were not counted from there
        (Drawn({150: 20.0}, first=1_000, steps=680), [150]),
    ],
)
def test_what_is_stated_of_known_schedules(job: Drawn, periods: list[int]) -> None:
    """Two schedules among one another are two; what has come twice, or fits no one schedule, has none."""
    assert job.periods() == periods


def test_the_seconds_of_a_schedule_are_not_those_of_two_at_once() -> None:
    """Where a checkpoint and a validation fall together the pause is longer; each is said with its own."""
    found = {one["period"]: one["seconds"] for one in Drawn({150: 20.0, 200: 15.0}, steps=1_250).habits()}

    assert found == {150: pytest.approx(21.0), 200: pytest.approx(16.0)}


def test_lines_of_every_tenth_step_give_a_period_as_exactly_as_they_can() -> None:
    """A pause after step 1,522 lies between the lines 1,520 and 1,530: the period is known the better the more pauses came."""
    few, more = (Drawn({1_522: 20.0}, steps=steps, stride=10).habits() for steps in (7_000, 25_000))

    assert [abs(one["period"] - 1_522) <= one["within"] for one in (*few, *more)] == [True, True]
    assert more[0]["within"] < few[0]["within"] <= 4


def test_what_is_stated_outlives_the_memory_of_short_pauses_and_a_restart() -> None:
    """Of 150 short pauses and five long ones the newest short ones are remembered: both periods are, in a new engine too."""
    job = Drawn({100: 6.0, 3_000: 60.0}, steps=15_500)
    before = job.rhythm()
    after = StepRhythm()
    after.restore(before.document())

    assert len(before._folded) == MOST_PAUSES
    assert [one["period"] for one in before.document()["habits"]] == [100, 3_000]
    assert after.document()["habits"] == before.document()["habits"]


def naive(steps: list[int], first: int, newest: int) -> Iterator[tuple[int, ...]]:
    """Yield all sets of three and more pauses that lie at each place of some period between two steps."""
    for period in range(1, newest - first):
        for begin in range(max(first, 1), min(max(first, 1) + period, newest)):
            places = tuple(range(begin, newest, period))
            if set(places) <= set(steps) and len(places) >= (3 if begin - period <= 1 else 4):
                yield places


@pytest.mark.parametrize("seed", range(60))
def test_periods_are_those_of_a_search_through_all(seed: int) -> None:
    """Pauses alike, at drawn steps and at those of a drawn schedule: what is stated is of the largest sets, but for chance."""
    random = Random(seed)
    first, newest = random.choice([0, 40]), random.randrange(200, 400)
    period = random.randrange(20, 80)
    steps = {*range(period, newest, period), *(random.randrange(1, newest) for _ in range(random.randrange(4)))}
    steps = {step for step in steps if step >= first}
    pauses = [Pause(10.0 * step, step, 9.0) for step in sorted(steps)]
    expected = [set(one) for one in naive(sorted(steps), first, newest)]
    largest = [one for one in expected if not any(one < other for other in expected)]

    said = recurrences(pauses, first, newest)

    found = [{step for step in range(max(first, 1), newest) if (step - one.place) % one.period == 0} for one in said]
    assert all(one in largest for one in found)
    regular = {step for step in range(period, newest, period) if step >= first}
    assert regular in found or len(regular) < 5
