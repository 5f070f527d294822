"""What the detectors call a symptom and what not: jobs as their agents report them, batch after batch."""

from __future__ import annotations

from math import inf, nan

import pytest

from analyzers.incidents.detectors import every_detector, find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Received
from analyzers.model.incident import Symptom
from collectors.records import DeviceState, KernelEvent, RasCommunicator, RasRank, Record, Samples
from service.packaged_knowledge import load
from tests.support.watched_jobs import (
    START,
    WatchedJob,
    feed,
    first_symptom,
    log_event,
    ring_record,
    step_record,
    watched,
)


def told(job: WatchedJob, seconds: float) -> list[Symptom]:
    """The symptoms of a job after so many seconds."""
    return find_symptoms(watched(job, seconds), START + seconds)


def names(found: list[Symptom]) -> list[tuple[str, str]]:
    """Kind and detector of each symptom."""
    return [(one.kind, one.detector) for one in found]


def alone(*records: tuple[float, Record], node: str = "n0") -> JobView:
    """A view that was given each record in a batch of its own, some seconds after the start."""
    view = JobView("run", 0, load())
    for number, (at, record) in enumerate(records, 1):
        batch = Received(sequence=number, received_at=START + at, node=node, records=(record,), sent_at=START + at)
        view.take(batch, batch.records)
    return view


def test_every_detector_is_a_file_of_its_own() -> None:
    """A detector is registered under its file's name."""
    expected = [
        "failure_logged", "hardware_event", "no_progress", "numeric", "outstanding", "rank_dead", "rank_silent",
        "rank_stopped", "role_stalled", "uneven_end", "zero_traffic",
    ]  # fmt: skip

    assert list(every_detector()) == expected


# --- no_progress


@pytest.mark.parametrize("seconds", [0.2, 1.0, 3.0])
def test_a_hang_is_seen_within_half_a_minute(seconds: float) -> None:
    """A job with short steps that stops is told of after at most 30 s, with the time of its last step."""
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
    """Thirty steps in two seconds, all told in one batch, are rhythm enough."""
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


# --- outstanding, zero_traffic


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
    """Two minutes with next to no bytes, where gigabytes went before; never-moving ports say nothing."""
    moving = [ports(10.0 * turn, turn * 10**9) for turn in range(30)]
    still = [ports(300.0 + 10.0 * turn, 29 * 10**9 + 50 * turn) for turn in range(14)]

    assert find_symptoms(alone(*moving, *still[:8]), START + 380.0) == []
    assert names(find_symptoms(alone(*moving, *still), START + 440.0)) == [("hang", "zero_traffic")]
    assert find_symptoms(alone(*[ports(10.0 * turn, 7) for turn in range(60)]), START + 600.0) == []


# --- ranks that end


@pytest.mark.parametrize(("code", "signal"), [(1, None), (None, 11), (None, 9), (137, None), (-6, None)])
def test_a_rank_that_dies_is_a_crash(code: int | None, signal: int | None) -> None:
    """A code other than 0, or a signal, is told of within a few seconds of its coming, with rank and node."""
    job = WatchedJob(ended={5: (100.0, code, signal)}, stopped_at=100.0)
    found = first_symptom(job, 200.0)

    assert found is not None
    assert names([found[1]]) == [("crash", "rank_dead")]
    assert (found[1].ranks, found[1].nodes) == ((5,), ("n1",))
    assert found[0] <= 111.0


@pytest.mark.parametrize("how", [(0, None), (None, 15), (143, None), (None, 9), (None, None)])
def test_a_job_that_ends_as_a_whole_is_no_crash(how: tuple[int | None, int | None]) -> None:
    """All ranks end well, by the scheduler's signal, or in a way that nobody may see: that is an end."""
    job = WatchedJob(ended={rank: (100.0 + 0.1 * rank, *how) for rank in range(8)}, stopped_at=100.0)

    assert first_symptom(job, 400.0) is None


def test_a_launcher_that_ends_the_rest_does_not_hide_the_first() -> None:
    """One rank fails, and torchrun ends the others with SIGTERM a second later."""
    ended: dict[int, tuple[float, int | None, int | None]] = dict.fromkeys(range(8), (101.0, None, 15))
    ended[6] = (100.0, 1, None)

    (found,) = told(WatchedJob(ended=ended, stopped_at=100.0), 125.0)
    assert found.ranks[0] == 6
    assert found.nodes == ("n1",)


def test_a_rank_that_the_job_can_do_without_is_no_symptom_for_long() -> None:
    """Where steps go on for a while after the end, the job does not need that rank."""
    assert names(told(WatchedJob(ended={5: (100.0, 1, None)}), 104.0)) == [("crash", "rank_dead")]
    assert told(WatchedJob(ended={5: (100.0, 1, None)}), 130.0) == []


def test_some_ranks_that_end_well_leave_the_others_waiting() -> None:
    """Half of the ranks have no more data and leave with 0: after a minute that is a hang of the others, and no crash."""
    job = WatchedJob(ended=dict.fromkeys(range(4, 8), (100.0, 0, None)), stopped_at=100.0)

    assert ("hang", "uneven_end") not in names(told(job, 140.0))
    job = WatchedJob(ended=dict.fromkeys(range(4, 8), (100.0, 0, None)), stopped_at=100.0)
    assert {kind for kind, _ in names(told(job, 200.0))} == {"hang"}
    job = WatchedJob(ended=dict.fromkeys(range(4, 8), (100.0, 0, None)), stopped_at=100.0)
    assert ("hang", "uneven_end") in names(told(job, 200.0))


def test_a_rank_that_is_not_seen_any_more_is_a_silence() -> None:
    """Its node tells of the other ranks and not of this one, for more than a minute."""
    job = WatchedJob(stopped_at=100.0)
    view = JobView("run", 0)
    for batch in job.batches(0.0, 300.0):
        gone = batch.received_at > START + 100.0
        records = [each for each in batch.records if not (gone and each.rank == 6)]
        view.take(batch, records)
    found = [one for one in find_symptoms(view, START + 300.0) if one.detector == "rank_silent"]

    assert [one.ranks for one in found] == [(6,)]


def test_a_silent_node_makes_no_rank_silent() -> None:
    """An agent that is cut off says nothing of its ranks: that is no symptom of theirs."""
    assert first_symptom(WatchedJob(silent={"n1": 100.0}), 600.0) is None


# --- logs


def test_a_watchdog_that_gives_up_is_a_crash_at_once() -> None:
    """What ends a rank by its words needs no waiting."""
    job = WatchedJob(stopped_at=100.0)
    job.extra.append((101.0, "n1", log_event(101.0, "watchdog_timeout", rank=5, text="Watchdog caught timeout")))
    found = [one for one in told(job, 111.0) if one.kind == "crash"]

    assert [one.ranks for one in found] == [(5,)]


def test_a_failure_without_a_word_is_told_once() -> None:
    """A launcher's line may say nothing but its kind: the symptom's sentence does not say the kind twice."""
    job = WatchedJob(stopped_at=100.0)
    job.extra.append((101.0, "n1", log_event(101.0, "torchrun_failure", rank=5, exit_code=1)))
    (found,) = [one for one in told(job, 111.0) if one.kind == "crash"]

    assert found.text == "the log of rank 5 reports torchrun_failure"


def test_an_exception_that_the_job_survives_is_none() -> None:
    """Programs log what they handle: with steps after it an exception opens nothing, and without any it does."""
    line = (100.0, "n0", log_event(100.0, exception="builtins.ValueError", message="no token", rank=0))
    going_on, stuck = WatchedJob(extra=[line]), WatchedJob(extra=[line], stopped_at=100.0)

    assert first_symptom(going_on, 600.0) is None
    assert ("crash", "failure_logged") in names(told(stuck, 125.0))


@pytest.mark.parametrize("phase", [0.5, 5.0, 10.0, 19.5])
def test_an_exception_in_the_middle_of_a_long_step_waits_for_its_end(phase: float) -> None:
    """Steps of 20 s go on: at no moment is the exception taken for the end of the job."""
    line = (400.0 + phase, "n0", log_event(400.0 + phase, exception="ValueError", message="no token", rank=0))

    assert first_symptom(WatchedJob(extra=[line], law=lambda _step, noise: noise.gauss(20.0, 0.5)), 900.0) is None


@pytest.mark.parametrize(
    "more",
    [{"exception": "SignalException"}, {"event": "exit", "signal": 15}, {"event": "exit", "exit_code": 0},
     {"event": "torchrun_failure", "exit_code": -15}, {"event": "nccl_warning"}, {"event": "preempted"}],
)  # fmt: skip
def test_a_job_that_was_asked_to_end_is_no_crash(more: dict[str, object]) -> None:
    """What a log says of a SIGTERM, a good exit, a warning or a preemption opens nothing."""
    line = (100.0, "n0", log_event(100.0, **more))  # type: ignore[arg-type]
    job = WatchedJob(extra=[line], ended=dict.fromkeys(range(8), (100.0, None, 15)), stopped_at=100.0)

    assert first_symptom(job, 300.0) is None


def test_yesterdays_log_opens_nothing() -> None:
    """A log that is read for the first time tells of failures of an earlier run."""
    job = WatchedJob(extra=[(5.0, "n0", log_event(-86_400.0, "cuda_error", text="CUDA error"))])

    assert first_symptom(job, 120.0) is None


# --- devices


def kernel(code: int, **more: object) -> Record:
    """An Xid of a GPU."""
    known = {"event": "xid", "code": code, "pci": "0000:9b:00", "node": "n0", "at": START + 50.0, "text": f"Xid {code}"}
    return KernelEvent(**{**known, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [79, 48, 119, 95])
def test_an_xid_that_asks_for_a_machine_is_a_symptom(code: int) -> None:
    """A GPU off the bus, or with a memory that failed, is told of at once, with its node."""
    (found,) = find_symptoms(alone((50.0, kernel(code))), START + 51.0)

    assert names([found]) == [("hardware", "hardware_event")]
    assert found.nodes == ("n0",)
    assert found.at == pytest.approx(START + 50.0)


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 92, 4_000])
def test_an_xid_of_the_application_opens_nothing(code: int) -> None:
    """What the program did itself, what was corrected, and a code that nobody knows, are left to the job's own signs."""
    assert find_symptoms(alone((50.0, kernel(code))), START + 51.0) == []


def test_a_gpu_that_the_library_calls_lost_is_a_symptom() -> None:
    """Where no kernel log can be read, the library's word counts."""
    lost = DeviceState(device="GPU-1", state="lost", pci="0000:9b:00", node="n0", at=START + 50.0, source="nvml")

    assert names(find_symptoms(alone((50.0, lost)), START + 51.0)) == [("hardware", "hardware_event")]


# --- losses


def losses(values: list[float], *, flags: dict[int, int] | None = None, skipped: tuple[int, ...] = ()) -> JobView:
    """The view of a job that told these losses, a step a second."""
    rows = [(step, START + step) for step in range(1, len(values) + 1)]
    steps = range(1, len(values) + 1)
    record = step_record(
        rows, loss=values, nan=[(flags or {}).get(step, 0) for step in steps],
        skipped=[int(step in skipped) for step in steps],
    )  # fmt: skip
    return alone((float(len(values)), record))


USUAL = [2.0 + 0.01 * (step % 7) for step in range(100)]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([*USUAL, 11.0, 11.0], ["spike"]),
        ([*USUAL, 11.0], []),
        ([*USUAL, 11.0, 11.0, *USUAL[:12]], []),
        ([*USUAL, inf], ["nan"]),
        ([9.0, 60.0, 55.0, *USUAL[:30]], []),
        ([-value for value in USUAL], []),
    ],
)
def test_a_loss_five_times_the_usual_is_numeric_trouble(values: list[float], expected: list[str]) -> None:
    """Two such steps are, one is noise, what came back is over, and warming up is no trouble."""
    assert [one.detector for one in find_symptoms(losses(values), START + len(values))] == expected


def test_nan_is_trouble_and_a_skipped_step_is_not() -> None:
    """A loss that is NaN is told of at once; a step that the optimizer skipped for an overflow is normal."""
    values = [*USUAL, nan]

    assert names(find_symptoms(losses(values, flags={101: 1}), START + 101.0)) == [("numeric", "nan")]
    assert find_symptoms(losses(values, flags={101: 3}, skipped=(101,)), START + 101.0) == []
    assert find_symptoms(losses(values), START + 101.0) == []
