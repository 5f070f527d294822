"""A job that moves again is not judged any more: its verdict is that of the fault, until it stops again or is closed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analyzers.incidents.judgement import judge_cut
from analyzers.incidents.messages import Ask, EngineInstruction, Judge, Judged, Merge, Publish, Received
from analyzers.model.incident import Cut
from analyzers.model.verdict import Action, Culprit, Root, Verdict
from collectors.records import CommandResult, FlightRecorderDump, StackDump
from service.packaged_knowledge import load
from tests.analyzers.incidents.test_repeated_stops import FAULT, Engine, WithStates, state_of, stopped
from tests.support import live_hangs
from tests.support.live_hangs import Hang
from tests.support.watched_jobs import START, WatchedJob

DATA = Verdict(
    symptom="hang", cause="data", abstained=False, roots=(Root(root="r1", cause="data", fault_class="stuck_data"),),
    culprits=(Culprit(root="r1", kind="data", id="data", probability=0.8),),
)  # fmt: skip
CODE = Verdict(
    symptom="hang", cause="code", abstained=False, roots=(Root(root="r1", cause="code", fault_class="desync"),),
    culprits=(Culprit(root="r1", kind="code", id="code", probability=0.9),), action=Action(kind="rollback"),
)  # fmt: skip
NOBODY = Verdict(symptom="hang", cause="unknown", abstained=True, action=Action(kind="none"))
OTHER = Verdict(
    symptom="hang", cause="machine", abstained=False, roots=FAULT.roots,
    culprits=(Culprit(root="r1", kind="node", id="n0", probability=0.9),), action=Action(kind="evict", nodes=("n0",)),
)  # fmt: skip


HANG_AT = live_hangs.START + 70.0


class JudgedByTime(Engine):
    """The engine with a verdict for each cut, and agents that answer at once; notes what is published and joined."""

    def __init__(self, says: Callable[[float], Verdict]) -> None:
        super().__init__()
        self.says = says
        self.published: list[tuple[float, Verdict]] = []
        self.joined: list[str] = []
        self.cuts: list[Cut] = []

    def _note(self, one: EngineInstruction, at: float) -> None:
        if isinstance(one, Judge):
            self.cuts.append(one.cut)
            verdict = self.says(one.cut.at - START)
            self.give(Judged(incident=one.incident, cut=one.cut, verdict=verdict), at)
            return
        if isinstance(one, Ask):
            for node in one.nodes:
                answer = CommandResult(command="c", verb=one.verb)
                self.give(Received(sequence=0, received_at=at, node=node, records=(answer,), sent_at=at), at)
        if isinstance(one, Publish):
            self.published.append((one.cut.at - START, one.verdict))
        if isinstance(one, Merge):
            self.joined.append(one.symptom.text)
        super()._note(one, at)


def until(instant: float, before: Verdict, after: Verdict) -> Callable[[float], Verdict]:
    """Say one thing of what was seen before an instant, and another of what was seen after it."""
    return lambda at: before if at < instant else after


def resumed(stop: float, go: float, step_seconds: float) -> WatchedJob:
    """A job whose rank 5 is stopped for a while; the step under way ends when it goes on."""
    states = [state_of(5, at, "T" if stop <= at < go else "R", at) for at in range(5, 500, 10)]
    return WithStates(law=stopped([(stop, go - stop)], step_seconds), extra=states)


@pytest.mark.system
def test_nothing_new_is_said_of_a_job_that_moves_again() -> None:
    """A round that falls between SIGCONT and the closing, at any instant, for steps of 1 to 25 s."""
    said = 0
    for number, go in enumerate(range(160, 250, 5)):
        for step_seconds in (1.0, 10.0, 25.0):
            engine = JudgedByTime(until(float(go), FAULT, (DATA, CODE, OTHER)[number % 3]))
            engine.run(resumed(100.0, float(go), step_seconds), 0.0, go + 100.0)

            said += bool(engine.published)
            new = [(at, one.cause, one.action.kind) for at, one in engine.published if one is not FAULT]
            assert new == [], (step_seconds, go)
    assert said > 40


@pytest.mark.system
@pytest.mark.parametrize("reporters", [(0,), ()], ids=["steps", "no steps"])
def test_a_stopped_process_that_goes_on(reporters: tuple[int, ...]) -> None:
    """Its state is R again, and the incident is open for 20 s more: the version that named it stays."""
    for go in range(200, 260, 3):
        states = [state_of(5, at, "T" if 100 <= at < go else "R", at) for at in range(5, 400, 10)]
        engine = JudgedByTime(until(float(go), FAULT, CODE))
        engine.run(WithStates(reporters=reporters, extra=states), 0.0, 400.0)

        assert [one for _, one in engine.published] == [FAULT], go
        assert len(engine.closed) == 1


def test_data_is_not_blamed_from_stacks_of_a_job_that_goes_on() -> None:
    """All ranks waited for a peer elsewhere, which decides nothing; then it answered, and all of them read data again."""
    for go in range(160, 250, 5):
        spent = [(rank, at, float(min(at, 100) + max(0, at - go))) for rank in range(8) for at in range(5, 400, 10)]
        states = [state_of(rank, at, "S" if 100 <= at < go else "R", cpu) for rank, at, cpu in spent]
        engine = JudgedByTime(until(float(go), NOBODY, DATA))
        engine.run(WithStates(law=stopped([(100.0, go - 100.0)]), extra=states), 0.0, go + 100.0)
        assert DATA not in [one for _, one in engine.published], go

    stands = JudgedByTime(until(160.0, NOBODY, DATA)).run(WatchedJob(stopped_at=100.0), 0.0, 300.0)
    assert DATA in [one for _, one in stands.published]


def test_a_first_verdict_after_the_job_moved_names_nothing() -> None:
    """The stop was over before anything was judged: evidence of a job that trains names no machine."""
    engine = JudgedByTime(lambda _at: OTHER)
    engine.run(resumed(100.0, 112.0, 25.0), 0.0, 300.0)

    assert all(cut.moved_at is not None for cut in engine.cuts if cut.at > START + 130.0)
    assert all(not one.culprits for at, one in engine.published if at > 130.0)


def test_the_verdict_of_a_cut_that_says_so_abstains() -> None:
    """The reason is in the cut, so that a replay gives the same bytes. Without it the same records name a rank."""
    records = tuple(Hang().records())

    def judged(moved_at: float | None) -> Verdict:
        cut = Cut(after=0, through=0, at=HANG_AT, moved_at=moved_at)
        return judge_cut(Judge(incident="inc-1", cut=cut, records=records, attempt=1), load()).verdict

    standing, moving = judged(None), judged(HANG_AT - 5.0)

    assert (standing.abstained, [one.ranks for one in standing.culprits]) == (False, [(2,)])
    assert (moving.abstained, moving.culprits, moving.action.kind) == (True, (), "none")
    assert any("has moved again" in one.what for one in moving.missing)


@pytest.mark.parametrize(("looks", "stands_still", "named"), [(1, False, False), (2, False, True), (1, True, True)])
def test_one_look_at_a_job_that_may_run_on_names_nobody(looks: int, stands_still: bool, named: bool) -> None:
    """In a running job, too, one rank computes at some moment while its peers wait in a collective."""
    records = tuple(record for record in Hang().records() if not isinstance(record, FlightRecorderDump))
    cut = Cut(after=0, through=0, at=HANG_AT, looks=looks, stands_still=stands_still)
    verdict = judge_cut(Judge(incident="inc-1", cut=cut, records=records, attempt=1), load()).verdict

    assert bool(verdict.culprits) is named
    assert verdict.abstained is not named


def test_a_job_of_which_a_part_moves_is_judged_again_in_the_end() -> None:
    """Half of the ranks use their CPU time again and no step comes: a minute later the evidence counts."""
    extra = []
    for rank in range(8):
        for at in range(5, 500, 10):
            busy = at < 100 or (at >= 170 and rank < 4)
            spent = float(min(at, 100) + (max(0, at - 170) if rank < 4 else 0))
            row = state_of(rank, at, "R" if busy else "S", spent)
            extra.append(row)
    job = WithStates(law=stopped([(100.0, 1_000.0)]), extra=extra)
    engine = JudgedByTime(until(175.0, FAULT, CODE)).run(job, 0.0, 600.0)

    changed = [at for at, one in engine.published if one is CODE]
    assert changed
    assert changed[0] > 175.0 + 40.0
    assert engine.closed == []


# --- stops within one incident


def twice(first: float) -> tuple[WatchedJob, float]:
    """A job of 5 s a step that stops, ends its step, and stops again; and when it stops the second time."""
    lengths = {20: first, 21: 60.0}
    return WatchedJob(law=lambda step, _noise: 5.0 + lengths.get(step, 0.0)), 20 * 5.0 + first


def test_a_second_stop_within_an_incident_is_told_counted_and_judged() -> None:
    """The step under way between two stops closes no incident: the second is a symptom of its own, with a round of its own."""
    job, again_at = twice(60.0)
    engine = JudgedByTime(until(again_at, FAULT, OTHER)).run(job, 0.0, again_at + 55.0)

    assert len(engine.opened) == 1
    assert engine.closed == []
    assert any("stopped again" in text for text in engine.joined), engine.joined
    assert [one for _, one in engine.published] == [FAULT, OTHER]
    counted = engine.state.jobs["run", 0].progress.standstills.counted("")
    assert counted == {"n1": 1, "n0": 1}
    assert engine.cuts[-1].seen == {"n1": 1}


def test_the_second_stop_is_over_when_the_job_moves() -> None:
    """Two steps after the second stop close the incident."""
    job, again_at = twice(60.0)
    engine = JudgedByTime(lambda _at: FAULT).run(job, 0.0, again_at + 200.0)

    assert len(engine.opened) == len(engine.closed) == 1
    assert engine.closed[0][0] > again_at + 60.0


def test_one_stop_that_two_detectors_see_is_one() -> None:
    """No step, and then a process in state T: the second sign is no second stop."""
    states = [state_of(5, at, "T" if 100 <= at < 200 else "R", at) for at in range(5, 300, 10)]
    engine = JudgedByTime(lambda _at: FAULT).run(WithStates(law=stopped([(100.0, 100.0)]), extra=states), 0.0, 300.0)

    assert not any("again" in text for text in engine.joined)
    assert engine.state.jobs["run", 0].progress.standstills.counted("") == {"n1": 1}


@pytest.mark.parametrize(("before", "named"), [(-5.0, True), (30.0, False)])
def test_a_stack_from_well_before_the_stop_names_nobody(before: float, named: bool) -> None:
    """No newer one has come: where a rank was while the job ran is not where it stands."""
    records = tuple(record for record in Hang().records() if not isinstance(record, FlightRecorderDump))
    newest_at = max(record.at or 0.0 for record in records if isinstance(record, StackDump))
    cut = Cut(after=0, through=0, at=HANG_AT, looks=1, onset_at=newest_at + before)
    verdict = judge_cut(Judge(incident="inc-1", cut=cut, records=records, attempt=1), load()).verdict

    assert any(one.ranks == (2,) for one in verdict.culprits) is named
