"""Jobs whose logs number the steps of each epoch anew: they are as slow, or as well, as those that are numbered through."""

from __future__ import annotations

import json
import random
from array import array
from collections.abc import Callable, Iterable, Iterator

import msgspec
import pytest

from analyzers.incidents.job_views.pace_changes import Slowdown
from analyzers.incidents.job_views.step_pace import StepPace
from analyzers.incidents.messages import Received
from collectors.records import Record, Steps
from tests.analyzers.incidents.test_slow import shown, slower
from tests.support.watched_jobs import START, WatchedJob, step_record

Row = tuple[float, int]  # instant, number
LOOK_SECONDS = 10.0


def numbered_anew(epoch: int) -> Callable[[Received], Received]:
    """Return what makes of a batch that of a log whose numbers begin anew after so many steps."""

    def anew(record: Record) -> Record:
        if not isinstance(record, Steps):
            return record
        steps, at = array("q", record.columns["step"]), array("d", record.columns["at"])
        return step_record([(step % epoch, at) for step, at in zip(steps, at, strict=True)], at=record.at)

    return lambda batch: msgspec.structs.replace(batch, records=tuple(map(anew, batch.records)))


@pytest.mark.parametrize("epoch", [60, 15])
def test_steps_of_epochs_that_take_longer_are_seen_as_soon(epoch: int) -> None:
    """After six minutes of past, within three minutes, and by the log's own number."""
    job = WatchedJob(nodes=1, law=slower(1.5, since=360.0, seconds=0.5))

    ((at, text),) = shown(job, 780.0, numbered_anew(epoch))

    assert at <= 360.0 + 180.0
    assert float(text.partition(", ")[2].split(" %")[0]) == pytest.approx(50.0, abs=5.0)
    assert 0 <= int(text.partition("since step ")[2].partition(", ")[0]) < epoch


def rows_of(law: Callable[[float], float], epoch: int, seconds: float, seed: int = 1) -> list[Row]:
    """Return steps whose seconds are those that a function of the time gives, with some noise."""
    noise, now, rows = random.Random(seed), 0.0, list[Row]()
    while now < seconds:
        now += law(now) * noise.uniform(0.95, 1.05)
        rows.append((START + now, len(rows) % epoch))
    return rows


def looks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield the rows of each look, in their order."""
    seen, until = list[Row](), START + LOOK_SECONDS
    for row in rows:
        while row[0] > until:
            yield seen
            seen, until = [], until + LOOK_SECONDS
        seen.append(row)
    yield seen


def found_in(batches: Iterable[list[Row]], restart_at: float = 0.0) -> list[Slowdown]:
    """Return the slowdowns that are found; ``restart_at``: when what is known goes through its document."""
    pace, found = StepPace(), list[Slowdown]()
    for batch in batches:
        for at, step in batch:
            pace.add(at, step)
        pace.update(())
        if restart_at and batch and batch[-1][0] > START + restart_at:
            document, restart_at, pace = json.loads(json.dumps(pace.document())), 0.0, StepPace()
            pace.restore(document)
            for at, step in batch:
                pace.add(at, step)
        if pace.slowdown is not None and pace.slowdown not in found:
            found.append(pace.slowdown)
    return found


def half_longer(now: float) -> float:
    """Give half a second a step, and half as much again after a quarter of an hour."""
    return 0.5 if now < 900.0 else 0.75


def by_eight(rows: list[Row]) -> Iterator[list[Row]]:
    """Write each step eight times, as ranks do that share a log."""
    late = random.Random(2)
    return looks(sorted((at + late.uniform(0.0, 0.15), step) for at, step in rows for _ in range(8)))


def in_disorder(rows: list[Row]) -> Iterator[list[Row]]:
    """Send each row up to three seconds late."""
    late, until, sent = random.Random(3), START + LOOK_SECONDS, list[Row]()
    for at, row in sorted((row[0] + late.uniform(0.0, 3.0), row) for row in rows):
        if at > until:
            yield sent
            sent, until = [], until + LOOK_SECONDS
        sent.append(row)


def from_two_nodes(rows: list[Row]) -> Iterator[list[Row]]:
    """Send each look's rows twice, the second time by a clock that is behind."""
    return (again for look in looks(rows) for again in (look, [(at - 0.8, step) for at, step in look]))


READ = {"in order": looks, "by eight ranks": by_eight, "in disorder": in_disorder, "from two nodes": from_two_nodes}


@pytest.mark.parametrize("how", READ)
@pytest.mark.parametrize("epoch", [200, 20, 15])
def test_however_rows_come_a_slowdown_is_one(how: str, epoch: int) -> None:
    """Also where an epoch is shorter than the spans that are compared."""
    (found,) = found_in(READ[how](rows_of(half_longer, epoch, 1_200.0)))

    assert found.since == pytest.approx(START + 900.0, abs=15.0)
    assert found.found_at <= START + 1_060.0
    assert found.share == pytest.approx(0.5, abs=0.05)
    assert found.step < epoch


@pytest.mark.parametrize("how", READ)
@pytest.mark.parametrize("epoch", [15, 9])
def test_steps_of_short_epochs_that_are_hardly_longer_are_not_slow(how: str, epoch: int) -> None:
    """One step in twenty fewer in ten seconds is no other pace, whatever their numbers are by then."""
    assert found_in(READ[how](rows_of(lambda now: 0.5 if now < 1_800.0 else 0.525, epoch, 3_000.0))) == []


@pytest.mark.parametrize("epoch", [200, 60, 20])
def test_a_log_without_stamps_shows_a_slowdown_of_epochs(epoch: int) -> None:
    """The newest step of each reading has an instant, and what lies between two epochs is not counted."""
    rows = rows_of(half_longer, epoch, 1_200.0)
    newest = {int(at // 5): (at, step) for at, step in rows}

    (found,) = found_in(looks(newest.values()))

    assert found.since == pytest.approx(START + 900.0, abs=15.0)
    assert found.found_at <= START + 1_060.0
    assert found.share == pytest.approx(0.5, abs=0.08)


@pytest.mark.parametrize("restart_at", [300.0, 600.0, 950.0])
def test_an_engine_that_begins_anew_counts_on(restart_at: float) -> None:
    """What it finds is what it finds without, and a row that comes twice counts once."""
    rows = rows_of(half_longer, 17, 1_200.0)

    (found,), (anew,) = found_in(looks(rows)), found_in(looks(rows), restart_at)

    assert (found.since, found.step, found.counted) == (anew.since, anew.step, anew.counted)
    assert found.counted == pytest.approx(1_800 * 16 / 17, abs=30)


def test_another_count_in_the_log_ends_none() -> None:
    """Evaluations number their own steps: the training's count goes on after them, at its pace."""
    rows, late = list[Row](), 0.0
    for at, step in rows_of(half_longer, 10**9, 1_200.0):
        rows.append((at + late, step))
        if step % 40 == 39:
            rows += ((at + late + 0.2 * number, number) for number in range(1, 6))
            late += 1.0

    (found,) = found_in(looks(rows))

    assert found.share == pytest.approx(0.5, abs=0.08)
    assert found_in(looks(row for row in rows if row[0] < START + 900.0)) == []


@pytest.mark.parametrize("back", [100, 700, 1_500])
def test_steps_that_are_done_again_are_steps(back: int) -> None:
    """A job that goes on from an earlier checkpoint after a pause is not slow by that, and is where its steps take longer."""
    resumed = [
        (at + 90.0, step - back) if at > START + 840.0 else (at, step)
        for at, step in rows_of(half_longer, 10**9, 1_500.0)
    ]

    (found,) = found_in(looks(resumed))

    assert found.since == pytest.approx(START + 990.0, abs=15.0)
    assert found_in(looks(row for row in resumed if row[0] < START + 990.0)) == []


def test_three_slowdowns_at_uneven_distances_are_no_habit_of_epochs() -> None:
    """Their numbers within an epoch lie near each other by chance: only steps counted through can be evenly apart."""
    slow = ((585.0, 885.0), (1_800.0, 2_100.0), (3_710.0, 4_010.0))
    law = lambda now: 0.75 if any(since <= now < until for since, until in slow) else 0.5  # noqa: E731

    found = found_in(looks(rows_of(law, 60, 4_000.0)))

    assert [round((one.since - START) / 100.0) for one in found] == [6, 18, 37]


def test_a_pace_is_known_after_the_first_minute_and_four_that_make_a_past() -> None:
    """Before, no slowdown can be seen, and pages and commands say so."""
    pace, known = StepPace(), []
    for step in range(1, 400):
        pace.add(START + step, step)
        known.append(pace.document()["has_past"])

    assert known.index(True) == 300
    assert all(known[300:])
