"""What the detectors make of ended ranks, of failures in logs, of hardware events and of losses."""

from __future__ import annotations

from math import inf, nan

import pytest

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.model.incident import Symptom
from collectors.records import DeviceState, KernelEvent, Record
from tests.support.sentences import numbers_in
from tests.support.symptoms_shown import alone, names
from tests.support.watched_jobs import (
    START,
    WatchedJob,
    first_symptom,
    log_event,
    step_record,
    watched,
)


def reported(job: WatchedJob, seconds: float) -> list[Symptom]:
    """The symptoms of a job after so many seconds."""
    return find_symptoms(watched(job, seconds), START + seconds)


@pytest.mark.parametrize(("code", "signal"), [(1, None), (None, 11), (None, 9), (137, None), (-6, None)])
def test_a_rank_that_dies_is_a_crash(code: int | None, signal: int | None) -> None:
    """A code other than 0, or a signal, is reported within a few seconds of its coming, with rank and node."""
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

    (found,) = reported(WatchedJob(ended=ended, stopped_at=100.0), 125.0)
    assert found.ranks[0] == 6
    assert found.nodes == ("n1",)
    assert numbers_in(found.text)[-3:] == [1, 7, 15]  # the exit code of the first; how many were ended, by which signal


def test_ranks_that_fail_of_themselves_are_not_called_ended() -> None:
    """Exit codes are each rank's own; signals before the first exit code are nobody's answer to it."""
    codes: dict[int, tuple[float, int | None, int | None]] = {
        5: (100.0, 1, None),
        6: (100.5, 1, None),
        7: (101.0, 1, None),
    }
    found, mixed = (
        next(one for one in reported(WatchedJob(ended=ended, stopped_at=100.0), 125.0) if one.detector == "rank_dead")
        for ended in (codes, codes | {4: (101.0, None, 15)})
    )

    assert numbers_in(found.text)[-2:] == [1, 2]
    assert numbers_in(mixed.text)[-4:] == [1, 2, 1, 15]


def test_a_rank_that_the_job_can_do_without_is_no_symptom_for_long() -> None:
    """Where steps go on for a while after the end, the job does not need that rank."""
    assert names(reported(WatchedJob(ended={5: (100.0, 1, None)}), 104.0)) == [("crash", "rank_dead")]
    assert reported(WatchedJob(ended={5: (100.0, 1, None)}), 130.0) == []


def test_some_ranks_that_end_well_leave_the_others_waiting() -> None:
    """Half of the ranks have no more data and leave with 0: after a minute that is a hang of the others, and no crash."""
    job = WatchedJob(ended=dict.fromkeys(range(4, 8), (100.0, 0, None)), stopped_at=100.0)

    assert ("hang", "uneven_end") not in names(reported(job, 140.0))
    job = WatchedJob(ended=dict.fromkeys(range(4, 8), (100.0, 0, None)), stopped_at=100.0)
    assert {kind for kind, _ in names(reported(job, 200.0))} == {"hang"}
    job = WatchedJob(ended=dict.fromkeys(range(4, 8), (100.0, 0, None)), stopped_at=100.0)
    assert ("hang", "uneven_end") in names(reported(job, 200.0))


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


WATCHDOG = {"event": "watchdog_timeout", "rank": 5, "text": "Watchdog caught timeout"}
BUS = {"event": "cuda_error", "rank": 5, "text": "GPU has fallen off the bus"}
ECC = {"event": "cuda_error", "rank": 5, "message": "CUDA error: uncorrectable ECC error encountered"}


def crashes(job: WatchedJob, seconds: float) -> list[tuple[int, ...]]:
    """Return the ranks of what logs report as a crash."""
    return [one.ranks for one in reported(job, seconds) if one.detector == "failure_logged"]


@pytest.mark.parametrize("words", [WATCHDOG, BUS, ECC])
def test_what_ends_a_rank_by_its_words_is_a_crash_once_no_step_follows(words: dict[str, object]) -> None:
    """The job has stopped: two steps later that is plain."""
    job = WatchedJob(stopped_at=100.0, extra=[(101.0, "n1", log_event(101.0, **words))])

    assert crashes(job, 125.0) == [(5,)]


@pytest.mark.parametrize("phase", [0.5, 5.0, 10.0, 19.5])
@pytest.mark.parametrize("step_seconds", [1.0, 20.0])
@pytest.mark.parametrize("words", [WATCHDOG, BUS, ECC, {"event": "exit", "signal": 11}, {"event": "fatal_python"}])
def test_a_job_that_prints_such_words_and_goes_on_is_well(
    words: dict[str, object], step_seconds: float, phase: float
) -> None:
    """A rank's own output may begin a line with them: alone they open nothing at any moment."""
    line = (400.0 + phase, "n1", log_event(400.0 + phase, **words))
    job = WatchedJob(extra=[line], law=lambda _step, noise: noise.gauss(step_seconds, step_seconds / 40))

    assert first_symptom(job, 900.0) is None


def test_what_ends_a_rank_is_a_crash_at_once_where_a_process_ends() -> None:
    """The words come with the death of the rank: nobody waits for a step that will not come."""
    line = (101.0, "n1", log_event(101.0, **ECC))
    job = WatchedJob(extra=[line], ended={5: (101.5, None, 6)}, stopped_at=100.0)

    assert crashes(job, 111.0) == [(5,)]


@pytest.mark.parametrize(("node", "backed"), [("n1", True), ("n0", False)])
def test_a_line_of_the_nodes_kernel_backs_what_a_log_says(node: str, backed: bool) -> None:
    """Another node's kernel does not."""
    kernel = KernelEvent(event="xid", code=79, pci="0000:3b:00", at=START + 101.0, text="GPU has fallen off the bus")
    said = [(102.0, "n1", log_event(102.0, **BUS)), (103.0, node, kernel)]
    job = WatchedJob(extra=said, law=lambda _step, noise: noise.gauss(20.0, 0.5))

    assert bool(crashes(job, 115.0)) is backed


def test_words_of_a_job_without_steps_wait_for_its_counters() -> None:
    """Nothing says that it goes on: half a minute later that is a crash, and not at once."""
    job = WatchedJob(reporters=(), extra=[(101.0, "n1", log_event(101.0, **ECC))])

    assert (crashes(job, 120.0), crashes(job, 145.0)) == ([], [(5,)])


def test_a_failure_without_a_word_is_told_once() -> None:
    """A launcher's line may say nothing but its kind: the symptom's sentence does not say the kind twice."""
    job = WatchedJob(stopped_at=100.0)
    job.extra.append((101.0, "n1", log_event(101.0, "torchrun_failure", rank=5, exit_code=1)))
    (found,) = [one for one in reported(job, 125.0) if one.kind == "crash"]

    assert found.text == "the log of rank 5 reports torchrun_failure"


def test_an_exception_that_the_job_survives_is_none() -> None:
    """Programs log what they handle: with steps after it an exception opens nothing, and without any it does."""
    line = (100.0, "n0", log_event(100.0, exception="builtins.ValueError", message="no token", rank=0))
    going_on, stuck = WatchedJob(extra=[line]), WatchedJob(extra=[line], stopped_at=100.0)

    assert first_symptom(going_on, 600.0) is None
    assert ("crash", "failure_logged") in names(reported(stuck, 125.0))


def test_an_exception_in_a_job_without_steps_is_one_where_a_rank_ends() -> None:
    """No step shows whether the job goes on: the end of a rank does, and a standstill is a symptom of its own."""
    line = (100.0, "n0", log_event(100.0, exception="ValueError", message="no token", rank=0))
    going_on = WatchedJob(reporters=(), extra=[line])
    ended = WatchedJob(reporters=(), extra=[line], ended={0: (101.0, 1, None)})

    assert first_symptom(going_on, 300.0) is None
    assert ("crash", "failure_logged") in names(reported(ended, 125.0))


@pytest.mark.parametrize(("code", "opens"), [(0, False), (1, True)])
def test_what_is_logged_after_a_good_end_is_another_programs(code: int, opens: bool) -> None:
    """A batch script goes on in the same file."""
    line = (180.0, "n0", log_event(180.0, "torchrun_failure", message="ValueError: no table"))
    job = WatchedJob(extra=[line], ended=dict.fromkeys(range(8), (100.0, code, None)), stopped_at=100.0)

    assert ("failure_logged" in {one.detector for one in reported(job, 190.0)}) is opens


def test_a_traceback_that_was_cut_before_its_last_line_opens_nothing() -> None:
    """torchrun prints one when it is asked to stop."""
    line = (100.0, "n0", log_event(100.0, text="cut traceback"))

    assert "failure_logged" not in {one.detector for one in reported(WatchedJob(extra=[line], stopped_at=100.0), 125.0)}


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


def kernel(code: int, **more: object) -> Record:
    """An Xid of a GPU."""
    known = {"event": "xid", "code": code, "pci": "0000:9b:00", "node": "n0", "at": START + 50.0, "text": f"Xid {code}"}
    return KernelEvent(**{**known, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("code", [79, 48, 119, 95])
def test_an_xid_that_asks_for_a_machine_is_a_symptom(code: int) -> None:
    """A GPU off the bus, or with a memory that failed, is reported at once, with its node."""
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


def losses(values: list[float], *, flags: dict[int, int] | None = None, skipped: tuple[int, ...] = ()) -> JobView:
    """The view of a job that reported these losses, a step a second."""
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
    """A loss that is NaN is reported at once; a step that the optimizer skipped for an overflow is normal."""
    values = [*USUAL, nan]

    assert names(find_symptoms(losses(values, flags={101: 1}), START + 101.0)) == [("numeric", "nan")]
    assert find_symptoms(losses(values, flags={101: 3}, skipped=(101,)), START + 101.0) == []
    assert find_symptoms(losses(values), START + 101.0) == []
