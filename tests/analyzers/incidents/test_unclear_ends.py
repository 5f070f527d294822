"""Ends that show little: all ranks leave together with one code, one scan misses a rank, a word comes during a judgement."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
from msgspec.structs import replace

from analyzers.incidents.messages import Close, EngineInstruction, EngineTick, Judge, Judged, Open, Publish
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from analyzers.knowledge import Knowledge
from analyzers.model.verdict import Action, Culprit, Root, Verdict
from collectors.records import ProcessState
from tests.support.watched_jobs import START, WatchedJob, first_symptom, log_event

DATA = Verdict(
    symptom="hang", cause="data", abstained=False, version="0", knowledge="k",
    culprits=(Culprit(root="r1", kind="data", id="data", probability=0.6),),
    roots=(Root(root="r1", cause="data", fault_class="same_stack"),), action=Action(kind="none"),
)  # fmt: skip


def left(code: int = 1, apart: float = 0.1, **others: int) -> WatchedJob:
    """Return a job of eight ranks that leave with this code; ``r3``: another one's code."""
    codes = {rank: others.get(f"r{rank}", code) for rank in range(8)}
    return WatchedJob(ended={rank: (100.0 + rank * apart, codes[rank], None) for rank in codes}, reporters=())


def reported(
    job: WatchedJob, seconds: float, verdict: Callable[[float], Verdict] = lambda _now: DATA, judged_at: float = 0.0
) -> list[EngineInstruction]:
    """Return what the engine does. ``verdict``: of each judgement, which ends at ``judged_at`` or later."""
    state, said, asked = EngineState(Knowledge()), list[EngineInstruction](), list[Judge]()
    for batch in job.batches(0.0, seconds):
        now = batch.received_at
        events = [batch]
        if now >= START + judged_at:
            events += [Judged(incident=one.incident, cut=one.cut, verdict=verdict(now)) for one in asked]
            asked.clear()
        for event in (*events, EngineTick()):
            found = step(state, event, now + isinstance(event, EngineTick))[1]
            asked += [one for one in found if isinstance(one, Judge)]
            said += found
    return said


def crash_of_nobody_from(before: Verdict, at: float) -> Callable[[float], Verdict]:
    """Return what is judged: a verdict, and from an instant on that the job crashed and nobody can be named."""
    crashed = Verdict(
        symptom="crash", cause="unknown", abstained=True, version="0", knowledge="k", action=Action(kind="none")
    )
    return lambda now: before if now < at else crashed


def ending(job: WatchedJob) -> str:
    """Return how the job ended that did not die by itself, in the words of its closed incident."""
    (closed,) = (one for one in reported(job, 190.0) if isinstance(one, Close))
    return closed.ended


def killed_late(seconds: float, by: int = 9) -> WatchedJob:
    """Return a job of eight ranks of which seven leave with code 1, and a signal ends the last so long after."""
    job = left()
    job.ended[7] = (100.0 + seconds, None, by)
    return job


@pytest.mark.parametrize(
    "job",
    [left(), left(apart=0.6), killed_late(30.0), killed_late(10.5)],
    ids=[
        "at once",
        "on a busy machine",
        "one did not hear it, and its launcher killed it",
        "and the others took twenty seconds of the half minute to leave",
    ],
)
def test_ranks_that_leave_together_without_a_word_ask_for_nothing(job: WatchedJob) -> None:
    """Ctrl-C, which Python handles, looks like that, and so does an error that all meet: it opens, and is not called outside."""
    assert first_symptom(deepcopy(job), 140.0) is not None
    assert ending(job)


def test_the_end_of_a_hang_by_a_person_leaves_its_verdict() -> None:
    """One rank stands still, its peers wait; a person ends the job by Ctrl-C, which no log shows: that is no crash of anybody."""
    job = left()
    job.stopped_at, job.reporters = 20.0, (0,)
    stands = replace(
        DATA, cause="machine", culprits=(Culprit(root="r1", kind="node", id="n0", ranks=(3,), probability=0.9),)
    )
    said = reported(job, 190.0, crash_of_nobody_from(stands, START + 100.0))

    assert [one.verdict.symptom for one in said if isinstance(one, Publish)] == ["hang"]
    assert [bool(one.ended) for one in said if isinstance(one, Close)] == [True]


@pytest.mark.parametrize(
    "job",
    [left(apart=3.0), left(r3=3), left(134), killed_late(3.0), killed_late(30.0, 15)],
    ids=[
        "one after the other",
        "one with another code",
        "all aborted themselves",
        "one was killed",
        "a launcher ended one",
    ],
)
def test_ranks_that_leave_otherwise_died(job: WatchedJob) -> None:
    """Their order, their codes or their signal are of a failure."""
    assert ending(job) == ""


@pytest.mark.parametrize("seconds", [10.5, 14.0])
def test_one_that_leaves_before_all_others_are_killed_died(seconds: float) -> None:
    """It did not leave together with anybody."""
    job = left()
    job.ended.update(dict.fromkeys(range(1, 8), (100.0 + seconds, None, 9)))

    assert ending(job) == ""


def test_ranks_that_leave_together_and_say_why_died() -> None:
    """One of them has raised an exception."""
    job = left()
    job.extra = [(101.0, "n0", log_event(99.5, exception="ValueError", message="17 tokens", rank=3))]

    assert ending(job) == ""


def test_a_part_of_a_job_that_leaves_together_died() -> None:
    """Nobody sees the ranks of a third node, which the job has."""
    job = left()
    job.world = 12

    assert {one.ended for one in reported(job, 190.0) if isinstance(one, Close)} <= {""}


def missed(at: float = 100.0, lives: bool = True) -> WatchedJob:
    """Return a job of which a scan does not find rank 3, which lives, or has ended while no agent ran."""
    job = WatchedJob(ended={} if lives else {3: (at, None, None)}, reporters=())
    row = ProcessState(
        job="run", attempt=0, rank=3, pid=103, state="X", at=START + at, started_at=START - 60.0
    )  # fmt: skip
    job.extra = [(at + 0.5, "n0", row)] if lives else []
    return job


@pytest.mark.parametrize("at", [95.0, 100.0, 104.0])
def test_a_rank_that_one_scan_misses_has_not_ended(at: float) -> None:
    """The next reading finds it."""
    assert first_symptom(missed(at), 200.0) is None


def test_a_rank_that_no_later_scan_finds_has_ended() -> None:
    """It ended while no agent ran: its peers wait for it."""
    found = first_symptom(missed(lives=False), 200.0)

    assert found is not None
    assert found[1].ranks == (3,)


def test_an_end_counts_once_its_agent_has_looked_again() -> None:
    """Its node sends nothing after that scan: it may have been a bad one."""
    job = missed(lives=False)
    job.silent = {"n0": 105.0}
    found = first_symptom(job, 140.0)

    assert found is None or found[1].detector != "rank_dead"


def test_a_rank_that_is_found_again_closes_its_crash() -> None:
    """A busy agent finds it after half a minute: nobody died."""
    job = missed(lives=False)
    alive = ProcessState(job="run", attempt=0, rank=3, pid=103, state="S", at=START + 135.0, started_at=START - 60.0)
    job.extra = [(136.0, "n0", alive)]
    said = reported(job, 160.0)

    opened = [one for one in said if isinstance(one, Open)]
    closed = [one for one in said if isinstance(one, Close)]
    assert [one.incident.kind for one in opened] == ["crash"]
    assert [one.recovered for one in closed] == [True]


def test_a_rank_that_is_started_again_is_not_found_again() -> None:
    """Another process has its number: the first did end, and why is judged."""
    job = missed(lives=False)
    other = ProcessState(job="run", attempt=0, rank=3, pid=303, state="S", at=START + 125.0, started_at=START + 120.0)
    job.extra = [(126.0, "n0", other)]

    assert not any(isinstance(one, Close) for one in reported(job, 135.0, judged_at=1_000.0))


@pytest.mark.parametrize("stopped", [True, False])
def test_a_word_that_comes_during_a_judgement_goes_before_it(stopped: bool) -> None:
    """A save was cut short by Ctrl-C: what the ranks did then is no cause."""
    job = WatchedJob(stopped_at=80.0, ended=dict.fromkeys(range(8), (116.0, 1, None)) if stopped else {})
    job.extra = [(118.0, "n0", log_event(109.5, "terminated", signal=2))] if stopped else []
    said = reported(job, 150.0, judged_at=119.0)

    assert any(isinstance(one, Open) for one in said)
    assert any(isinstance(one, Publish) for one in said) is not stopped
    assert any(isinstance(one, Close) for one in said) is stopped
