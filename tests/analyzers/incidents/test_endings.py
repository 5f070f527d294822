"""A job that is ended from outside is no crash; a rank's own death is one, however its launcher ends the others after it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Close, Ending, EngineInstruction, EngineTick, Open
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from analyzers.knowledge import Knowledge
from collectors.records import ProcessState
from tests.support.watched_jobs import START, WatchedJob, first_symptom, log_event, watched

End = tuple[float, int | None, int | None]
TERM: tuple[int | None, int | None] = (None, 15)
CTRL_C: tuple[int | None, int | None] = (None, 2)


def ended(**ranks: End) -> WatchedJob:
    """Return a job of two nodes with four ranks each that ends after 100 s; ``r3``: (seconds after that, code, signal)."""
    found = {int(name[1:]): (100.0 + end[0], end[1], end[2]) for name, end in ranks.items()}
    return WatchedJob(ended=found, stopped_at=100.0)


def all_by(how: tuple[int | None, int | None], **others: End) -> WatchedJob:
    """Return a job of which all ranks end in one way, but for some."""
    return ended(**{f"r{rank}": (0.01 * rank, *how) for rank in range(8)} | others)


OUTSIDE = {
    "the launcher got SIGTERM": all_by(TERM),
    "SIGTERM, and those that did not end were killed": all_by(TERM, r3=(30.0, None, 9), r4=(30.0, None, 9)),
    "handled, code 143": all_by((143, None)),
    "one saves first, and leaves well": all_by(TERM, r0=(4.0, 0, None)),
    "Ctrl-C": all_by(CTRL_C),
    "Ctrl-C, and most lost their peer before it ended": all_by((1, None), r5=(0.6, None, 2)),
    "its terminal was closed": all_by((None, 1)),
    "all were killed": all_by((None, 9)),
    "all reached their time limit": all_by((None, 14)),
    "a limit, and one saves for long and leaves well": all_by((None, 10), r0=(20.0, 0, None)),
    "a limit, and one saves still": all_by((None, 10), r0=(60.0, 0, None)),
    "a limit that most catch": all_by((0, None), r3=(-0.5, None, 10)),
    "a pod of four ranks was deleted": all_by((1, None), **{f"r{rank}": (-3.0, None, 15) for rank in range(4)}),
}
CRASHES = {
    "one was killed": all_by(TERM, r3=(-0.2, None, 9)),
    "one left with a code": all_by(TERM, r3=(-0.2, 1, None)),
    "one left with a code, read with the others": all_by(TERM, r3=(0.05, 1, None)),
    "one broke": all_by(TERM, r3=(-0.2, None, 11)),
    "one alone reached a limit of its own": all_by(TERM, r3=(-2.0, None, 14)),
    "one alone reached a limit, and the others wait for it": ended(r3=(0.0, None, 10)),
    "one reached a limit, and its peers lost it": all_by((1, None), r3=(-0.5, None, 10)),
    "one broke, its peers lost it": all_by((1, None), r3=(-0.5, None, 6)),
    "one left, and ten seconds later came Ctrl-C": all_by(CTRL_C, r3=(-10.0, 1, None)),
    "one alone was sent SIGTERM": ended(r3=(0.0, None, 15)),
    "one alone left with code 143": ended(r3=(0.0, 143, None)),
    "one alone was interrupted, and the others wait for it": ended(r3=(0.0, None, 2)),
    "one alone left with code 130": ended(r3=(0.0, 130, None)),
    "one alone was sent SIGQUIT": ended(r3=(0.0, None, 3)),
    "one was killed, and its scheduler killed the rest": all_by((None, 9), r3=(-2.0, None, 9)),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_job_that_is_ended_from_outside_opens_nothing(name: str) -> None:
    """Neither the ends of its processes nor what the last lines of its log report is a crash."""
    job = OUTSIDE[name]
    job.extra = [(102.0, "n1", log_event(102.0, exception="RuntimeError", message="Connection closed by peer", rank=5))]

    assert first_symptom(job, 145.0) is None


@pytest.mark.parametrize("name", CRASHES)
def test_a_rank_that_dies_by_itself_is_a_crash(name: str) -> None:
    """Whatever ends the others afterwards."""
    found = first_symptom(CRASHES[name], 145.0)

    assert found is not None
    assert found[1].kind == "crash"
    assert 3 in found[1].ranks


def test_the_launchers_word_decides_where_the_ends_do_not() -> None:
    """All ranks lost a peer, and their launcher reports that it was asked to stop before that."""
    silent, reported = all_by((1, None)), all_by((1, None))
    reported.extra = [(101.0, "n0", log_event(99.5, "terminated", signal=15))]
    late = all_by((1, None), r3=(-1.8, 1, None))
    late.extra = [(101.0, "n0", log_event(100.0, "terminated", signal=15))]

    views = [watched(job, 125.0) for job in (silent, reported, late)]
    assert [bool(find_symptoms(view, START + 125.0)) for view in views] == [True, False, True]


def test_a_container_that_is_killed_for_memory_is_a_crash() -> None:
    """Its kernel kills all processes of the control group together: that is no order from outside."""
    job = all_by((None, 9))
    for rank in range(8):
        for at, count in ((90.0, 3), (100.1, 4)):
            end = {"exit_code": None, "signal": 9, "state": "X"} if at > 100.0 else {"state": "R"}
            row = ProcessState(
                job="run", attempt=0, rank=rank, pid=100 + rank, at=START + at, started_at=START - 60.0, oom_kills_total=count,
                **end,
            )  # type: ignore[arg-type]  # fmt: skip
            job.extra.append((at + 1.0, f"n{rank // 4}", row))
    job.deaths_told = set(range(8))

    assert first_symptom(job, 130.0) is not None


@pytest.mark.parametrize("how", [(None, 15), (143, None), (None, 2), (None, 1)])
@pytest.mark.parametrize(("nodes", "ranks_a_node"), [(1, 2), (2, 1)])
def test_one_of_two_ranks_is_not_the_whole_job(
    nodes: int, ranks_a_node: int, how: tuple[int | None, int | None]
) -> None:
    """The other one waits for it."""
    job = WatchedJob(nodes=nodes, ranks_a_node=ranks_a_node, ended={1: (100.0, *how)}, stopped_at=100.0)

    assert first_symptom(job, 145.0) is not None


def test_the_log_states_how_a_rank_ended_that_no_agent_saw() -> None:
    """Its launcher reported that it was killed for memory; then it ended the others by SIGTERM, or a scheduler killed them."""
    unseen, for_memory = all_by(TERM, r3=(-0.2, None, None)), all_by((None, 9))
    unseen.extra = [(101.0, "n0", log_event(100.5, "exit", rank=3, signal=9))]
    for_memory.extra = [(101.0, "n0", log_event(100.2, "oom_kill", signal=9))]

    for job in (unseen, for_memory):
        assert first_symptom(job, 145.0) is not None


@pytest.mark.parametrize(("interrupted", "opens"), [(range(8), False), ((3,), True)])
def test_ctrl_c_shows_in_the_tracebacks_of_its_ranks(interrupted: Sequence[int], opens: bool) -> None:
    """Python leaves with 1 where it was handling a lost connection then; one rank alone is that rank's matter."""
    job = all_by((1, None), r5=(8.0, 1, None))
    words = {"exception": "KeyboardInterrupt", "message": ""}
    job.extra = [(101.0, f"n{rank // 4}", log_event(100.1, rank=rank, **words)) for rank in interrupted]

    assert (first_symptom(job, 145.0) is not None) is opens


@pytest.mark.parametrize("seconds", [10.0, 20.0, 29.0])
def test_a_failure_that_was_logged_before_ctrl_c_stays_a_crash(seconds: float) -> None:
    """People stop a job that has failed: that it is stopped within half a minute hides nothing."""
    job = ended(**{f"r{rank}": (0.01 * rank, *CTRL_C) for rank in range(8)})
    job.extra = [(101.0, "n0", log_event(100.0 - seconds, "cuda_error", rank=3, message="uncorrectable ECC error"))]
    job.stopped_at = 100.0 - seconds

    view = watched(job, 125.0, JobView("run", 0))
    assert [one.detector for one in find_symptoms(view, START + 125.0)] == ["failure_logged"]


@pytest.mark.parametrize("reporters", [(0,), ()])
def test_the_end_of_an_earlier_run_says_nothing_of_a_later_one(reporters: tuple[int, ...]) -> None:
    """A job is stopped by Ctrl-C, started again under its name, and dies before its first step."""
    job = WatchedJob(
        nodes=1,
        ranks_a_node=4,
        ended=dict.fromkeys(range(4), (100.0, *CTRL_C)),
        stopped_at=100.0,
        reporters=reporters,
    )
    job.extra = [(101.0, "n0", log_event(100.0, "terminated", signal=2))]
    for rank in range(4):
        whose = {"job": "run", "attempt": 0, "rank": rank, "pid": 200 + rank, "started_at": START + 160.0}
        by = {"exit_code": 1} if rank == 2 else {"signal": 15}
        job.extra.append((175.0, "n0", ProcessState(**whose, state="R", at=START + 174.0)))  # type: ignore[arg-type]
        job.extra.append(
            (205.0, "n0", ProcessState(**whose, **by, state="X", at=START + 200.5 - by.get("exit_code", 0)))
        )  # type: ignore[arg-type]

    assert first_symptom(job, 300.0) is not None


def test_a_word_after_which_the_job_ran_for_long_is_not_of_its_end() -> None:
    """A notice of a preemption that did not come, in a job that reports no steps."""
    job = WatchedJob(ended={3: (1_000.0, 1, None)} | dict.fromkeys((0, 1, 2), (1000.5, None, 15)), reporters=())
    job.extra = [(100.0, "n0", log_event(100.0, "preempted"))]

    assert first_symptom(job, 1_060.0) is not None


def test_ranks_that_save_after_sigterm_leave_no_hang() -> None:
    """Six leave well at once, two save for minutes: their launcher was asked to stop."""
    job = ended(**{f"r{rank}": (0.0, 0, None) for rank in range(6)})
    job.extra = [(101.0, "n0", log_event(99.5, "terminated", signal=15))]

    assert first_symptom(job, 170.0) is None


@pytest.mark.parametrize(("until", "opens"), [(600.0, False), (60.0, True)])
def test_an_end_that_was_announced_opens_nothing(until: float, opens: bool) -> None:
    """A person has said that the job is being stopped: even a rank that dies first is of that, until the word expires."""
    job, state, said = CRASHES["one broke"], EngineState(Knowledge()), list[EngineInstruction]()
    job = WatchedJob(ended=dict(job.ended), stopped_at=100.0)
    step(state, Ending(job="run", at=START + 50.0, until=START + until, by="ann"), START + 50.0)
    for batch in job.batches(0.0, 150.0):
        said += step(state, batch, batch.received_at)[1]
        said += step(state, EngineTick(), batch.received_at + 1.0)[1]

    assert any(isinstance(one, Open) for one in said) is opens


def test_what_was_announced_is_the_end_of_that_run() -> None:
    """The job is started again before the word expires: its crash is one."""
    job, state, said = CRASHES["one broke"], EngineState(Knowledge()), list[EngineInstruction]()
    job = WatchedJob(ended=dict(job.ended), stopped_at=100.0)
    step(state, Ending(job="run", at=START - 120.0, until=START + 600.0, by="ann"), START - 120.0)
    for batch in job.batches(0.0, 150.0):
        said += step(state, batch, batch.received_at)[1]
        said += step(state, EngineTick(), batch.received_at + 1.0)[1]

    assert any(isinstance(one, Open) for one in said)


def test_an_incident_of_the_end_alone_is_closed_at_once() -> None:
    """Ranks that lost a peer look like a crash until the line of their launcher comes: then the incident closes."""
    job, state, said = all_by((1, None)), EngineState(Knowledge()), list[EngineInstruction]()
    job.extra = [(115.0, "n0", log_event(99.5, "terminated", signal=15))]
    for batch in job.batches(0.0, 150.0):
        said += step(state, batch, batch.received_at)[1]
        said += step(state, EngineTick(), batch.received_at + 1.0)[1]

    (closed,) = (one for one in said if isinstance(one, Close))
    assert "ended from outside" in closed.because
    assert closed.ended
