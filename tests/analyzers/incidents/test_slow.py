"""When a job that takes longer for its steps than before has an incident, when not, and how that ends."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import msgspec
import pytest

from analyzers.incidents.detectors.slow import detect
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Close, Open, Publish, Received
from analyzers.incidents.replay import rerun_engine
from analyzers.model.incident import Symptom
from collectors.records import COUNTED, Record, Steps
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, WatchedJob, step_record

Law = Callable[[int, random.Random], float]
BEGAN = 1_200.0


def slower(
    times: float, since: float = BEGAN, until: float = math.inf, seconds: float = 1.0, noise: float = 0.03
) -> Law:
    """Return steps of a second that take so many times as long in a span of the job's own time."""
    now = 0.0

    def law(_step: int, random: random.Random) -> float:
        nonlocal now
        length = seconds * math.exp(random.gauss(0, noise)) * (times if since <= now < until else 1.0)
        now += length
        return length

    return law


def shown(
    job: WatchedJob, seconds: float, change: Callable[[Received], Received] | None = None
) -> list[tuple[float, str]]:
    """Return when a slowdown was seen and when no more, looked for after every batch."""
    view, found, lasts = JobView("run", 0), list[tuple[float, str]](), False
    for given in job.batches(0.0, seconds):
        batch = given if change is None else change(given)
        view.take(batch, batch.records)
        slow = list(detect(view, batch.received_at))
        if bool(slow) != lasts:
            lasts = bool(slow)
            found.append((round(batch.received_at - START), slow[0].text if slow else "over"))
    return found


def shown_either_way(job: WatchedJob, seconds: float) -> list[tuple[float, str]]:
    """Return what is seen of one run by a log with the instant of each step, and by one with that of the newest alone."""
    views, found = (JobView("run", 0), JobView("run", 0)), list[tuple[float, str]]()
    for batch in job.batches(0.0, seconds):
        for view, read in zip(views, (batch, newest_alone(batch)), strict=True):
            view.take(read, read.records)
            found += ((round(batch.received_at - START), one.text) for one in detect(view, batch.received_at))
    return found


def instructions(job: WatchedJob, seconds: float) -> list[tuple[float, Any]]:
    """Return what the engine decides on a job, with the seconds since its start."""
    batches = [_on_its_node(batch) for batch in job.batches(0.0, seconds)]
    return [(round(at - START), one) for at, one in rerun_engine(batches, load())]


def _on_its_node(batch: Received) -> Received:
    return msgspec.structs.replace(
        batch, records=tuple(msgspec.structs.replace(record, node=batch.node) for record in batch.records)
    )


def _combined() -> Iterator[Any]:
    """Give every length of a step with every slowdown; one of each is not a second proof."""
    for seconds, times in product((0.2, 1.0, 12.0), (1.15, 1.3, 3.0)):
        is_first = (seconds, times) in {(0.2, 3.0), (1.0, 1.15), (12.0, 1.3)}
        yield pytest.param(seconds, times, marks=() if is_first else pytest.mark.acceptance)


@pytest.mark.parametrize(("seconds", "times"), [*_combined()])
def test_steps_that_take_longer_are_seen_within_three_minutes(times: float, seconds: float) -> None:
    """After two minutes of longer steps, and with the instant and the step at which they began."""
    job = WatchedJob(law=slower(times, seconds=seconds))

    (at, text), *more = shown(job, BEGAN + 420.0)

    assert not more
    assert BEGAN + 120.0 <= at <= BEGAN + 180.0 + 12 * seconds * times
    assert f"{seconds:.1g}"[0] in text
    assert abs(float(text.partition(", ")[2].split(" %")[0]) - 100 * (times - 1)) <= 8 * times


def test_a_slowdown_that_lasts_is_seen_beside_slow_minutes() -> None:
    """Other work slows the job for a minute in ten; that it is slower for a quarter of an hour is more than that."""

    def law(step: int, random: random.Random) -> float:
        busy = 1.6 if (step + 300) % 600 < 70 else 1.0
        return busy * random.uniform(0.95, 1.05) * (1.4 if step > 2_400 else 1.0)

    seen = shown(WatchedJob(nodes=1, law=law), 5_400.0)

    assert len(seen) == 1
    assert "% longer than" in seen[0][1]
    assert 2_600.0 <= seen[0][0] <= 4_000.0


@pytest.mark.parametrize("before", [1.04, 1.07])
def test_a_small_rise_hides_no_slowdown_and_is_not_its_beginning(before: float) -> None:
    """Other work costs the job some percent for eight minutes, which is no slowdown; then one rank becomes slow."""
    now = 0.0

    def law(_step: int, random: random.Random) -> float:
        nonlocal now
        times = 1.0 if now < BEGAN else before if now < BEGAN + 480.0 else 1.25
        length = times * math.exp(random.gauss(0, 0.02))
        now += length
        return length

    ((at, text),) = shown(WatchedJob(nodes=1, law=law), BEGAN + 780.0)

    since = int(text.partition("since step ")[2].partition(", ")[0].replace(",", ""))
    assert BEGAN + 600.0 <= at <= BEGAN + 660.0
    assert abs(since - (BEGAN + 480.0 / before)) <= 30


def test_a_slowdown_is_one_incident_that_closes_by_itself() -> None:
    """It opens once, stays open while steps take long, and closes when they are as before for a minute."""
    job = WatchedJob(law=slower(1.3, until=2_400.0))

    done = instructions(job, 3_600.0)

    opened = [(at, one.incident) for at, one in done if isinstance(one, Open)]
    closed = [(at, one) for at, one in done if isinstance(one, Close)]
    assert [one.kind for _, one in opened] == ["slow"]
    assert opened[0][1].onset_at == pytest.approx(START + BEGAN, abs=15.0)
    assert [one.incident for _, one in closed] == [opened[0][1].id]
    assert 2_460.0 <= closed[0][0] <= 2_520.0
    assert closed[0][1].recovered
    assert closed[0][1].because.startswith("a step takes as long as before again")


def test_nothing_is_named_or_done_where_only_steps_are_known() -> None:
    """The steps of ranks that train together become longer alike: the verdict names nobody and says what would decide."""
    done = instructions(WatchedJob(law=slower(1.5)), BEGAN + 600.0)

    verdicts = [one.verdict for _, one in done if isinstance(one, Publish)]
    assert verdicts
    for verdict in verdicts:
        assert (verdict.symptom, verdict.cause, verdict.abstained) == ("slow", "unknown", True)
        assert (verdict.culprits, verdict.action.kind) == ((), "none")
        assert any("who is not decided" in one.what for one in verdict.missing)


def _evaluations(every: int, length: float, noise: float = 0.05) -> Law:
    return lambda step, random: math.exp(random.gauss(0, noise)) + (length if step % every == 0 else 0.0)


def _grows(hours: float) -> Law:
    """Return steps that take twice as long after so many hours, growing all the time."""
    return lambda step, random: math.exp(random.gauss(0, 0.05)) * (1 + min(step / (3600 * hours), 2.0))


def _warms_up(step: int, random: random.Random) -> float:
    return random.uniform(0.9, 1.1) * (1 + 4 * math.exp(-step / 20))


HEALTHY: dict[str, Law] = {
    "jitter": lambda _step, random: random.uniform(0.5, 1.5),
    "wide": lambda _step, random: random.lognormvariate(0.0, 0.5),
    "long steps of many lengths": lambda _step, random: 30 * random.lognormvariate(0.0, 0.25),
    "bursts": lambda _step, random: 1.0 if random.random() < 0.98 else random.uniform(2.0, 4.0),
    "short evaluations": _evaluations(60, 8.0),
    "long evaluations": _evaluations(900, 600.0),
    "checkpoints at each hundredth step": _evaluations(100, 40.0),
    "evaluations that begin late": lambda step, random: random.uniform(0.9, 1.1) + (8.0 if step > 2000 and not step % 50 else 0),
    "lengths that grow in an hour": _grows(1.0),
    "lengths that grow in a quarter of an hour": _grows(0.25),
    "a slow start": _warms_up,
    "two speeds in turn": lambda step, random: random.uniform(0.9, 1.1) * (1.4 if step // 90 % 2 else 1.0),
    "half a minute of other work": lambda step, random: random.uniform(0.95, 1.05) * (1.6 if 0 < step % 700 < 30 else 1.0),
    "twice as fast from a moment on": lambda step, random: random.uniform(0.95, 1.05) * (0.5 if step > 1500 else 1.0),
}  # fmt: skip


MILDER = {"jitter", "short evaluations", "lengths that grow in an hour"}  # than another of the same kind


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.acceptance if name in MILDER else ()) for name in HEALTHY]
)
def test_a_healthy_job_is_not_slow(name: str) -> None:
    """Two hours of steps with their noise, pauses and growth open nothing, however its log is read."""
    assert shown_either_way(WatchedJob(nodes=1, law=HEALTHY[name], seed=3), 7_200.0) == []


def newest_alone(batch: Received) -> Received:
    """A log without stamps: of all that an agent reads at once the newest step alone has an instant."""

    def without_stamps(record: Record) -> Record:
        if not isinstance(record, Steps):
            return record
        stamps = bytearray(record.columns["at"])
        nan = step_record([(0, math.nan)]).columns["at"]
        stamps[: 8 * (record.count - 1)] = nan * (record.count - 1)
        return msgspec.structs.replace(record, columns={**record.columns, "at": bytes(stamps)})

    return msgspec.structs.replace(batch, records=tuple(without_stamps(record) for record in batch.records))


def test_a_log_without_stamps_tells_of_a_slowdown_too() -> None:
    """When an agent read the log, and how many steps there were by then, is enough."""
    ((at, _),) = shown(WatchedJob(law=slower(1.3)), BEGAN + 420.0, newest_alone)

    assert at <= BEGAN + 200.0


def test_lines_that_are_counted_are_no_steps() -> None:
    """A log whose lines give no number may print fewer of them from a moment on: that is no slowdown."""

    def counted(batch: Received) -> Received:
        found = (
            msgspec.structs.replace(one, told_by=one.told_by + COUNTED) if isinstance(one, Steps) else one
            for one in batch.records
        )
        return msgspec.structs.replace(batch, records=tuple(found))

    assert shown(WatchedJob(law=slower(3.0)), BEGAN + 900.0, counted) == []


@pytest.mark.parametrize(
    ("work", "seen"), [(1.5, 0), (1.0, 1), (None, 1)], ids=["more work", "as much work", "a loader's rate"]
)
def test_steps_with_more_work_are_not_slow(work: float | None, seen: int) -> None:
    """Where the log has the tokens a second, steps that are longer because they hold more tokens are as fast as before.

    A rate that stays as it is while steps vary is not theirs.
    """
    before = START

    def rated(record: Record) -> Record:
        nonlocal before
        if not isinstance(record, Steps):
            return record
        rows, rates = list(_rows(record)), list[float]()
        for _, at in rows:
            tokens = 1000.0 * (work or 1.0) if at > START + BEGAN else 1000.0
            rates.append(1000.0 if work is None else tokens / max(at - before, 0.1))
            before = at
        return step_record(rows, tokens_per_second=rates, at=record.at)

    def with_rates(batch: Received) -> Received:
        return msgspec.structs.replace(batch, records=tuple(rated(record) for record in batch.records))

    assert len(shown(WatchedJob(law=slower(1.5)), BEGAN + 600.0, with_rates)) == seen


def _rows(record: Steps) -> Iterator[tuple[int, float]]:
    from array import array

    return zip(array("q", record.columns["step"]), array("d", record.columns["at"]), strict=True)


def test_a_gap_without_an_agent_is_no_slowdown() -> None:
    """The node that tells of the steps is cut off for ten minutes, and then sends what its agent read since."""
    job, view = WatchedJob(law=slower(1.0)), JobView("run", 0)
    found: list[Symptom] = []
    for batch in job.batches(0.0, 3_600.0):
        if not 1_500.0 < batch.received_at - START < 2_100.0:
            view.take(batch, batch.records)
            found += detect(view, batch.received_at)

    assert found == []


def test_a_log_that_is_read_again_changes_nothing() -> None:
    """An agent that lost its place sends the same steps again, with the same stamps, or all of them at the time of reading."""
    job, view = WatchedJob(nodes=1, law=slower(1.0)), JobView("run", 0)
    kept: list[Received] = []
    for batch in job.batches(0.0, 2_400.0):
        kept.append(batch)
        view.take(batch, batch.records)
        if abs(batch.received_at - START - 1_800.0) < 5.0:
            for number, earlier in enumerate(kept):
                again = newest_alone(earlier) if number % 2 else earlier
                late = msgspec.structs.replace(again, received_at=batch.received_at, sent_at=batch.sent_at)
                view.take(late, late.records)
        assert list(detect(view, batch.received_at)) == []


def test_another_run_is_not_compared_with_the_last() -> None:
    """Younger processes under the same name and attempt have a pace of their own, and what was slow before is over."""
    view = JobView("run", 0)
    for batch in WatchedJob(law=slower(1.4)).batches(0.0, BEGAN + 300.0):
        view.take(batch, batch.records)
    assert view.progress.slowdown is not None

    view.progress.forget(START + BEGAN + 300.0)

    assert view.progress.slowdown is None
    assert list(detect(view, START + BEGAN + 300.0)) == []


def test_an_engine_that_begins_anew_knows_the_slowdown() -> None:
    """What its predecessor wrote down is enough to go on, and to see that the steps are as before again."""
    job, view = WatchedJob(law=slower(1.4, until=2_400.0)), JobView("run", 0)
    for batch in job.batches(0.0, 1_800.0):
        view.take(batch, batch.records)
    document = msgspec.json.decode(msgspec.json.encode(view.document(START + 1_800.0)))
    before = view.progress.slowdown

    view = JobView("run", 0)
    view.restore(document)

    assert view.progress.slowdown == before
    assert before is not None
    for batch in job.batches(1_800.0, 3_000.0):
        view.take(batch, batch.records)
    over = view.progress.slowdown_after(before.since)
    assert view.progress.slowdown is None
    assert over is not None
    assert over.until == pytest.approx(START + 2_400.0, abs=25.0)


def test_a_slow_job_that_stops_has_an_incident_of_its_stop() -> None:
    """A hang is asked about and judged at once; the slowdown rests beside it."""
    done = instructions(WatchedJob(law=slower(1.3), stopped_at=2_000.0), 2_200.0)

    opened = [(at, one.incident.kind) for at, one in done if isinstance(one, Open)]
    assert [kind for _, kind in opened] == ["slow", "hang"]
    assert opened[1][0] <= 2_060.0
    assert not [one for _, one in done if isinstance(one, Close)]


def test_a_regular_slowdown_is_the_jobs_own() -> None:
    """A checkpoint that is written beside the training each half hour slows it for five minutes: reported twice, then known."""
    law = lambda step, random: random.uniform(0.95, 1.05) * (1.25 if step % 1_700 > 1_400 else 1.0)  # noqa: E731

    seen = shown(WatchedJob(nodes=1, law=law), 6 * 1_800.0)

    assert len([text for _, text in seen if text != "over"]) == 2


def test_a_slowdown_that_seems_over_is_known_before_it_is() -> None:
    """Two spans of steps as before are no end yet, and what is read in them is not of the slowdown."""
    view, known = JobView("run", 0), dict[float, float | None]()
    for batch in WatchedJob(law=slower(1.4, until=BEGAN + 200.0)).batches(0.0, BEGAN + 245.0):
        view.take(batch, batch.records)
        list(detect(view, batch.received_at))
        known[batch.received_at - START - BEGAN] = view.progress.recovered_at

    assert all(found is None for at, found in known.items() if at < 215.0)
    assert view.progress.slowdown is not None
    assert view.progress.recovered_at == pytest.approx(START + BEGAN + 200.0, abs=15.0)


def test_faults_that_come_again_are_seen_as_often() -> None:
    """One rank is slow, is well again, another is: roughly even distances and other sizes are no schedule of the job."""
    draw = random.Random(5)
    stretches, at = list[tuple[float, float, float]](), 420.0
    while at < 7_200.0:
        stretches.append((at, at + draw.uniform(330.0, 400.0), draw.choice((1.18, 1.25, 1.4, 1.5))))
        at = stretches[-1][1] + draw.uniform(120.0, 260.0)
    now = 0.0

    def law(_step: int, random: random.Random) -> float:
        nonlocal now
        times = next((times for begin, end, times in stretches if begin <= now < end), 1.0)
        length = 0.6 * times * math.exp(random.gauss(0, 0.06))
        now += length
        return length

    opened = [at for at, text in shown(WatchedJob(nodes=1, law=law), 7_600.0) if text != "over"]
    found = [any(begin + 60.0 <= at <= end + 90.0 for at in opened) for begin, end, _ in stretches]

    assert len(stretches) >= 12
    assert found.count(False) <= 1
    assert len(opened) <= len(stretches)
