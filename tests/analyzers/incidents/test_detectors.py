"""What the detectors call a symptom and what not: jobs as their agents report them, batch after batch."""

from __future__ import annotations

import pytest

from analyzers.incidents.detectors import every_detector, find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.standstills import Standstill, Why
from analyzers.incidents.messages import Received
from collectors.records import RasCommunicator, RasRank, Record, Samples
from tests.support.symptoms_shown import alone, names
from tests.support.watched_jobs import (
    START,
    WatchedJob,
    feed,
    first_symptom,
    ring_record,
    step_record,
    watched,
)


def test_every_detector_is_a_file_of_its_own() -> None:
    """A detector is registered under its file's name."""
    expected = [
        "failure_logged", "hardware_event", "no_progress", "numeric", "outstanding", "rank_dead", "rank_silent",
        "rank_stopped", "role_stalled", "slow", "uneven_end", "zero_traffic",
    ]  # fmt: skip

    assert list(every_detector()) == expected


@pytest.mark.parametrize("seconds", [0.2, 1.0, 3.0])
def test_a_hang_is_seen_within_half_a_minute(seconds: float) -> None:
    """A job with short steps that stops is reported after at most 30 s, with the time of its last step."""
    job = WatchedJob(law=lambda _step, _noise: seconds, stopped_at=200.0)
    found = first_symptom(job, 400.0)

    assert found is not None
    assert found[0] <= 230.0
    assert names([found[1]]) == [("hang", "no_progress")]
    assert found[1].at == pytest.approx(START + 200.0, abs=seconds)


def test_a_job_of_few_steps_has_no_usual_interval() -> None:
    """Before its ninth step no interval of the job is known: the symptom gives the bound that holds for every job."""
    early = first_symptom(WatchedJob(law=lambda _step, _noise: 10.0, stopped_at=45.0), 400.0)
    later = first_symptom(WatchedJob(law=lambda _step, _noise: 1.0, stopped_at=45.0), 400.0)

    assert early is not None
    assert early[1].text.endswith("; too few timed steps to know the usual interval: two minutes are allowed")
    assert later is not None
    assert later[1].text.endswith("; the job's own rhythm allows 8 s")


@pytest.mark.parametrize("told_by", ["plain", "probe"])
def test_a_job_that_stops_soon_after_its_start_is_seen_as_fast(told_by: str) -> None:
    """Thirty steps in two seconds, all reported in one batch, are rhythm enough."""
    job = WatchedJob(law=lambda _step, _noise: 0.06, stopped_at=62.0, reporters=range(8), told_by=told_by)
    job.step, job.next_at = 0, 60.0
    found = first_symptom(job, 200.0)

    assert found is not None
    assert found[0] <= 92.0


def test_a_log_that_begins_before_its_reader_opens_nothing() -> None:
    """An agent that comes to a job after an hour reads all of its log at once: the job goes on, and so does the next batch."""
    job = WatchedJob(nodes=1, law=lambda _step, noise: noise.uniform(0.5, 3.0))

    assert all(
        not find_symptoms(view, batch.received_at)
        for view in [JobView("run", 0)]
        for batch in job.batches(3_600.0, 4_200.0)
        if view.take(batch, batch.records) is None
    )


def test_a_healthy_job_shows_nothing_for_an_hour() -> None:
    """Steps that take a second, a tenth more or less, are no symptom at any batch."""
    assert first_symptom(WatchedJob(law=lambda _step, noise: noise.gauss(1.0, 0.1)), 3_600.0) is None


def test_the_silence_of_an_agent_is_not_the_silence_of_the_job() -> None:
    """Where the node that tells of the steps is cut off, nothing is known of the job, and nothing is said."""
    assert first_symptom(WatchedJob(silent={"n0": 100.0}), 900.0) is None


def test_a_log_that_is_written_in_pieces_is_no_pause() -> None:
    """A program that writes 40 steps at once is silent for 40 s again and again, and trains all the time."""
    assert first_symptom(WatchedJob(buffered=40), 3_600.0) is None


def test_a_pause_is_expected_where_it_came_before() -> None:
    """The first checkpoint may open an incident; those after it do not."""
    job = WatchedJob(law=lambda step, _noise: 61.0 if step % 500 == 0 else 1.0)
    view = watched(job, 700.0)
    opened = [
        batch.received_at
        for batch in job.batches(700.0, 4_000.0)
        if find_symptoms(feed(view, [batch]), batch.received_at)
    ]

    assert opened == []


def test_one_slow_teller_is_named() -> None:
    """Where every rank tells of its steps, the one that is behind is named as who showed it first."""
    rows = [(step, START + step) for step in range(1, 60)]
    view = JobView("run", 0)
    for turn in range(12):
        at = START + 5.0 + 10.0 * turn
        done = [row for row in rows if at - 10.0 < row[1] <= at]
        records = [step_record(done[: -1 if rank == 2 and turn == 6 else None], rank) for rank in range(4) if done]
        view.take(Received(sequence=turn, received_at=at, sent_at=at, node="n0", records=tuple(records)), records)

    (found,) = find_symptoms(view, START + 120.0)
    assert found.ranks == (2,)


def test_a_step_from_the_future_does_not_blind() -> None:
    """A line that claims to be of 2050 changes nothing: the hang after it is seen."""
    job = WatchedJob(stopped_at=200.0)
    job.extra.append((150.0, "n0", step_record([(151, 2_524_600_000.0)], at=START + 150.0)))
    found = first_symptom(job, 400.0)

    assert found is not None
    assert found[0] <= 230.0


def test_a_clock_that_is_off_changes_nothing() -> None:
    """A node whose clock is ten seconds ahead, or behind, shows the hang at the same time by ours."""
    plain = first_symptom(WatchedJob(stopped_at=200.0), 400.0)
    assert plain is not None
    for skew in (-10.0, 10.0):
        other = first_symptom(WatchedJob(stopped_at=200.0, skew={"n0": skew}), 400.0)

        assert other is not None
        assert other[0] == plain[0]
        assert other[1].at == pytest.approx(plain[1].at, abs=0.2)


def test_batches_that_waited_in_the_spool_are_no_silence() -> None:
    """After ten minutes without the service an agent sends what it has kept: at no batch of it does the job stand still."""
    job = WatchedJob(nodes=1)
    view = watched(job, 600.0)
    kept = list(job.batches(600.0, 1_200.0))
    for number, batch in enumerate(kept):
        at = START + 1_200.0 + 0.1 * number
        late = Received(sequence=batch.sequence, received_at=at, sent_at=at, node=batch.node, records=batch.records)
        view.take(late, late.records)
        assert find_symptoms(view, at) == []


def test_a_captured_graph_hides_collectives_and_is_no_symptom() -> None:
    """The ring stands still with a collective open while the steps go on."""
    job = WatchedJob()
    inside = [("all_reduce", 7, START + 5.0, None)]
    job.extra += [(at, "n0", ring_record(0, START + at, inside, 8)) for at in range(10, 900, 10)]

    assert first_symptom(job, 900.0) is None


def rings(open_since: float, until: float, ranks: int = 4, missing: int | None = 3) -> list[tuple[float, Record]]:
    """Rings of a job that tells of no steps: a collective each second, the last one open but for a rank that is missing."""
    found: list[tuple[float, Record]] = []
    for at in range(10, int(until), 10):
        done = [("all_reduce", k, START + k, START + k + 0.5) for k in range(max(1, at - 20), min(at, int(open_since)))]
        for rank in range(ranks):
            stuck = [("all_reduce", int(open_since), START + open_since, None)] if at > open_since else []
            rows = done if rank == missing else [*done, *stuck]
            found.append((float(at), ring_record(rank, START + at, rows, ranks)))
    return found


def test_a_collective_that_most_of_its_members_wait_in_is_a_hang() -> None:
    """Three of four ranks are inside for more than 30 s, in a job that has run for an hour and tells of no steps."""
    (found,) = find_symptoms(alone(*rings(3_000.0, 3_060.0)), START + 3_060.0)

    assert names([found]) == [("hang", "outstanding")]
    assert found.ranks == (0, 1, 2)
    assert found.at == pytest.approx(START + 3_000.0)


def test_before_the_first_step_a_collective_may_take_ten_minutes() -> None:
    """A job that has moved for a minute only may still be starting: compiling, loading a checkpoint."""
    view = alone(*rings(60.0, 600.0))
    assert find_symptoms(view, START + 600.0) == []

    assert names(find_symptoms(alone(*rings(60.0, 720.0)), START + 720.0)) == [("hang", "outstanding")]


def counts(at: float, *launched: int) -> tuple[float, Record]:
    """A RAS report on one communicator."""
    ranks = tuple(RasRank(rank=rank, counts={"AllReduce": count}) for rank, count in enumerate(launched))
    return at, RasCommunicator(job="run", attempt=0, at=START + at, hash="ab", size=len(ranks), ranks=ranks)


def test_counts_that_stand_still_and_differ_are_a_hang() -> None:
    """NCCL's own counts, without a probe and without steps: one rank has launched less and nothing changes any more."""
    running = [counts(30.0 * turn, *[10 * turn] * 4) for turn in range(40)]
    stuck = [counts(1_200.0 + 30.0 * turn, 401, 401, 400, 401) for turn in range(4)]

    assert find_symptoms(alone(*running, *stuck[:1]), START + 1_200.0) == []
    assert names(find_symptoms(alone(*running, *stuck), START + 1_290.0)) == [("hang", "outstanding")]


def ports(at: float, words: int, *, metric: str = "port_xmit_data_words_total") -> tuple[float, Record]:
    """A node's InfiniBand counters."""
    from array import array

    return at, Samples(
        scope="infiniband", type="<i8", devices=("mlx5_0/1",), metrics=(metric,), at=START + at,
        ticks=array("d", [START + at]).tobytes(), values=array("q", [words]).tobytes(),
    )  # fmt: skip


def test_ports_that_stand_still_after_having_moved_are_a_hang() -> None:
    """A minute with next to no bytes, where gigabytes went before; never-moving ports say nothing."""
    moving = [ports(10.0 * turn, turn * 10**9) for turn in range(30)]
    still = [ports(300.0 + 10.0 * turn, 29 * 10**9 + 50 * turn) for turn in range(14)]

    assert find_symptoms(alone(*moving, *still[:5]), START + 350.0) == []
    assert names(find_symptoms(alone(*moving, *still[:9]), START + 390.0)) == [("hang", "zero_traffic")]
    assert find_symptoms(alone(*[ports(10.0 * turn, 7) for turn in range(60)]), START + 600.0) == []


@pytest.mark.parametrize(("whys", "bound"), [(("pause", "pause"), 180), (("pause",), 60), (("pause", "fault"), 60)])
def test_a_job_known_by_its_traffic_may_stand_still_as_long_as_its_own_pauses(
    whys: tuple[Why, ...], bound: int
) -> None:
    """Two checkpoints of two minutes that verdicts explained; one alone, or a fault's standstill, allows nothing."""
    moving = [ports(10.0 * turn, turn * 10**9) for turn in range(30)]
    seen = []
    for seconds in (bound - 10, bound + 20):
        view = alone(*moving, *(ports(300.0 + after, 29 * 10**9) for after in range(0, seconds, 10)))
        for number, why in enumerate(whys):
            view.progress.standstills.put(Standstill(key=f"inc-{number}", since=START, until=START + 120.0, why=why))
        seen.append(names(find_symptoms(view, START + 300.0 + seconds)))
    assert seen == [[], [("hang", "zero_traffic")]]
