"""A crash that a launcher answers with the next attempt at once: it is reported, of its own attempt, and closed as restarted."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Close, EngineInstruction, EngineTick, Judge, Judged, Open, Received
from analyzers.incidents.restarts import befell_before
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from analyzers.model.verdict import Verdict
from collectors.records import KernelEvent, LogEvent, Members, Placement, ProcessState, Record, StackDump
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, WatchedJob, log_event, step_record

End = tuple[float, int | None, int | None]
TERM = (None, 15)
RAISED: dict[int, End] = {2: (100.0, 1, None)} | dict.fromkeys((0, 1, 3), (100.3, *TERM))
RESTARTED_AT = 101.0
GOES_ON = [
    (at, step_record([(at - 110 + one, START + at - 10.0 + one) for one in range(10)], 0, "plain", at=START + at))
    for at in (120, 130, 140, 150)
]


def restarted(ended: dict[int, End], *more: tuple[float, Record], attempt: int = 1) -> WatchedJob:
    """A job on one node that ends, and whose next attempt, with a number or without, the agent reads together with the ends."""
    job = WatchedJob(nodes=1, ended=ended, stopped_at=99.0)
    placement = Placement(
        job="run", attempt=attempt, at=START + RESTARTED_AT, ranks=Members.of(range(4)), nodes=("n0",) * 4,
        pids=tuple(range(200, 204)), started_ats=(START + RESTARTED_AT,) * 4, world_size=4,
    )  # fmt: skip
    job.extra = [(RESTARTED_AT, "n0", placement), *((at, "n0", record) for at, record in more)]
    for at in range(103, 200, 10):
        for rank in range(4):
            whose = {"job": "run", "attempt": attempt, "rank": rank, "pid": 200 + rank}
            row = ProcessState(**whose, state="R", at=START + at, started_at=START + RESTARTED_AT)  # type: ignore[arg-type]
            job.extra.append((float(at), "n0", row))
    return job


def played(job: WatchedJob, until: float = 200.0, seconds_between: float = 4.0) -> list[EngineInstruction]:
    """What an engine says of it that is given each batch and then a tick; a verdict is reported at the next one."""
    state, said, asked = EngineState(load()), list[EngineInstruction](), list[Judge]()
    batches = [job.batch(0, at) for at in (*range(0, 100, 10), 102.0, *range(110, int(until), 10))]
    for batch in batches:
        for event, at in ((batch, batch.received_at), *_ticks(batch.received_at, seconds_between)):
            reported = step(state, event, at)[1]
            for one in list(asked):
                asked.remove(one)
                verdict = Verdict(symptom="crash", cause="code", abstained=False, attempt=one.attempt)
                reported += step(state, Judged(incident=one.incident, cut=one.cut, verdict=verdict), at)[1]
            asked += [one for one in reported if isinstance(one, Judge)]
            said += reported
    return said


def _ticks(at: float, seconds: float) -> Iterable[tuple[EngineTick, float]]:
    return ((EngineTick(), at + seconds * number) for number in (1, 2))


def opened(said: Iterable[EngineInstruction]) -> list[tuple[str, int | None]]:
    """Kind and attempt of the incidents."""
    return [(one.incident.kind, one.incident.attempt) for one in said if isinstance(one, Open)]


@pytest.mark.parametrize("killed", [False, True])
def test_the_crash_of_a_restarted_attempt_is_told(killed: bool) -> None:
    """The next attempt began before it was clear that not all ranks end."""
    ends = {**RAISED, 2: (100.0, None, 9)} if killed else RAISED
    said = played(restarted(ends))

    assert opened(said) == [("crash", 0)]
    (closed,) = (one for one in said if isinstance(one, Close))
    assert "restarted" in closed.because
    assert "attempt 1" in closed.because
    assert not closed.recovered


@pytest.mark.parametrize(("node", "closes"), [("stranger", False), ("n0", True)])
def test_a_later_attempt_without_the_jobs_nodes_is_no_restart(node: str, closes: bool) -> None:
    """A job's only node is lost, and a later attempt does steps: without that node, a stranger may have invented it."""
    job = WatchedJob(nodes=1, stopped_at=99.0)
    state, said = EngineState(load()), list[EngineInstruction]()
    for at in range(0, 500, 10):
        reported = list[EngineInstruction]()
        if at <= 120:
            reported = step(state, job.batch(0, float(at)), START + at)[1]
        elif at >= 200:
            placed = Placement(
                job="run", attempt=9, at=START + at, ranks=Members.of(range(4)), nodes=(node,) * 4,
                pids=tuple(range(200, 204)), started_ats=(START + 120.0,) * 4, world_size=4,
            )  # fmt: skip
            done = step_record([(at - 100, START + at)], 0, "plain", at=START + at, attempt=9)
            more = {"sequence": 10_000 + at, "received_at": START + at, "sent_at": START + at}
            reported = step(state, Received(node=node, records=(placed, done), **more), START + at)[1]  # type: ignore[arg-type]
        reported += step(state, EngineTick(), START + at + 4.0)[1]
        for one in [one for one in reported if isinstance(one, Judge)]:
            verdict = Verdict(symptom="crash", cause="code", abstained=False, attempt=one.attempt)
            reported += step(state, Judged(incident=one.incident, cut=one.cut, verdict=verdict), START + at + 4.0)[1]
        said += reported

    assert state.jobs["run", 9].newest_step is not None
    assert [attempt for _, attempt in opened(said)] == [0]
    assert any("restarted" in one.because for one in said if isinstance(one, Close)) is closes


def test_a_restart_from_outside_is_no_crash() -> None:
    """All ranks were sent SIGTERM, and the next attempt runs."""
    assert opened(played(restarted(dict.fromkeys(range(4), (100.0, *TERM))))) == []


def test_a_restart_of_which_the_ends_were_not_all_seen_is_no_crash() -> None:
    """One rank was seen to end by SIGTERM, of the others it is not known: a launcher or a scheduler ended them."""
    unseen = dict.fromkeys((0, 1, 2), (100.0, None, None))
    assert opened(played(restarted({**unseen, 3: (100.0, *TERM)}))) == []


def test_what_happens_to_the_next_attempt_is_not_of_the_last_one() -> None:
    """A failure later than its restart opens nothing for it."""
    later = log_event(130.0, "cuda_error", rank=1, message="an illegal memory access was encountered")
    ends = dict.fromkeys(range(4), (100.0, *TERM))
    assert ("crash", 0) not in opened(played(restarted(ends, (130.0, later))))


def test_its_evidence_ends_with_it() -> None:
    """What no attempt is named for, and happened after the restart, is not of the one before."""
    xid = KernelEvent(node="n0", at=START + 105.0, event="xid", code=79, text="GPU has fallen off the bus")
    line = LogEvent(job="run", node="n0", at=START + 106.0, event="traceback", exception="KeyError", source="log:9")
    early = KernelEvent(node="n0", at=START + 99.0, event="xid", code=94, text="Contained ECC error")
    said = played(restarted(RAISED, (99.5, early), (105.0, xid), (106.0, line)))

    judged = [one for one in said if isinstance(one, Judge) and one.attempt == 0]
    assert judged
    records = [record for one in judged for record in one.records]
    assert {record.code for record in records if isinstance(record, KernelEvent)} == {94}
    assert not [record for record in records if isinstance(record, LogEvent) and record.exception == "KeyError"]


@pytest.mark.parametrize("reporters", [(0,), ()])
def test_its_log_tells_the_crash_where_no_agent_saw_the_ends(reporters: tuple[int, ...]) -> None:
    """Its line names the attempt that wrote it, and is read after the next one began."""
    line = log_event(99.9, rank=2, exception="ValueError", message="bad shard")
    job = restarted(dict.fromkeys(range(4), (100.0, None, None)), (101.5, line))
    job.reporters = reporters

    assert opened(played(job)) == [("crash", 0)]


@pytest.mark.parametrize("written_at", [99.5, 100.0])
def test_a_job_that_is_started_again_by_hand_is_not_judged_by_its_last_run(written_at: float) -> None:
    """Under the same name and number: what broke before is not what breaks now; what the kernel said is of the node.

    The next run begins 0.7 s after the last end.
    """
    before = log_event(written_at, rank=2, exception="ValueError", message="bad shard")
    xid = KernelEvent(node="n0", at=START + 99.0, event="xid", code=94, text="Contained ECC error")
    now = log_event(190.0, rank=1, exception="KeyError", message="vocab")
    read = (written_at + 0.3, before)
    said = played(restarted(RAISED, (99.0, xid), read, *GOES_ON, (190.0, now), attempt=0), until=260.0)

    assert opened(said) == [("crash", 0), ("hang", 0)]
    judged = [one for one in said if isinstance(one, Judge)]
    failures = [{getattr(record, "exception", None) for record in one.records} - {None} for one in judged]
    assert failures[0] == {"ValueError"}
    assert failures[-1] == {"KeyError"}
    assert all(any(isinstance(record, KernelEvent) for record in one.records) for one in judged)


def test_what_befell_the_last_run_opens_nothing_in_the_next() -> None:
    """Its last words are read when the next run of the same number is there already."""
    words = log_event(99.5, rank=2, exception="ValueError", message="bad shard")
    stopped = dict.fromkeys(range(4), (100.0, *TERM))

    assert opened(played(restarted(stopped, (125.0, words), attempt=0), until=180.0)) == []


def test_an_incident_of_the_last_run_is_not_judged_by_the_next() -> None:
    """It opened in time; where the ranks of the new run stand, and what these log, is not of it."""
    words = log_event(99.5, rank=2, exception="ValueError", message="bad shard")
    later = log_event(112.0, rank=1, exception="KeyError", message="vocab")
    stack = StackDump(job="run", attempt=0, rank=1, pid=901, node="n0", at=START + 112.0)
    said = played(restarted(RAISED, (99.8, words), (112.0, later), (112.0, stack), *GOES_ON, attempt=0), until=180.0)

    (closed,) = (one for one in said if isinstance(one, Close))
    records = [record for one in said if isinstance(one, Judge) for record in one.records]
    assert records
    assert not [record for record in records if isinstance(record, StackDump)]
    assert not [record for record in records if isinstance(record, LogEvent) and record.exception == "KeyError"]
    assert closed.ended


@pytest.mark.parametrize(
    "last", [(100.4, 1, None), (131.0, None, 9)], ids=["lost its peers", "did not leave when asked"]
)
def test_a_stop_that_ranks_leave_in_their_own_ways_opens_nothing_in_the_next_run(last: End) -> None:
    """Those that were asked first show that it was a stop; what ends later is of it."""
    stopped = {**dict.fromkeys(range(3), (100.0, *TERM)), 3: last}
    words = log_event(100.3, rank=3, exception="RuntimeError", message="Connection closed by peer")
    view = JobView("run", 0)
    job = restarted(stopped, (125.0, words), attempt=0)
    for at in (*range(0, 100, 10), 102.0, *range(110, 180, 10)):
        batch = job.batch(0, at)
        view.take(batch, list(batch.records))

    assert befell_before(view) == view.run_began_at > 0.0
