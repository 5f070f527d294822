"""A fault that recovers teaches the engine nothing: the same standstill is reported each time, and healthy pauses are learned."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

import pytest

from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import (
    Close,
    EngineEvent,
    EngineInstruction,
    EngineTick,
    Judge,
    Judged,
    Open,
    Received,
)
from analyzers.incidents.state import EngineState
from analyzers.incidents.step import step
from analyzers.model.verdict import Culprit, Root, Verdict
from collectors.records import ProcessState, Record
from service.packaged_knowledge import load
from tests.support.watched_jobs import START, WatchedJob, log_event, watched

FAULT = Verdict(
    symptom="hang", cause="machine", abstained=False, roots=(Root(root="r1", cause="machine", fault_class="never_entered"),),
    culprits=(Culprit(root="r1", kind="node", id="n1", probability=0.9),),
)  # fmt: skip
PAUSE = Verdict(
    symptom="hang",
    cause="none",
    abstained=False,
    roots=(Root(root="r1", cause="none", fault_class="pause_checkpoint"),),
)
NOTHING = Verdict(symptom="hang", cause="unknown", abstained=True)


class Engine:
    """The engine over a job's batches, with one verdict on everything; notes what is opened and closed."""

    def __init__(self, verdict: Verdict = NOTHING) -> None:
        self.state, self.verdict = EngineState(load()), verdict
        self.opened: list[float] = []
        self.closed: list[tuple[float, str]] = []
        self.seen: list[dict[str, int]] = []

    def run(self, job: WatchedJob, since: float, until: float) -> Engine:
        """Let time pass with a tick after each batch and a second later."""
        for batch in job.batches(since, until):
            self.give(batch, batch.received_at)
            self.give(EngineTick(), batch.received_at)
            self.give(EngineTick(), batch.received_at + 1.0)
        return self

    def give(self, event: EngineEvent, at: float) -> None:
        """Give an event, and judge at once what is asked."""
        _state, instructions = step(self.state, event, at)
        for one in instructions:
            self._note(one, at)

    def _note(self, one: EngineInstruction, at: float) -> None:
        if isinstance(one, Open):
            self.opened.append(at - START)
        elif isinstance(one, Close):
            self.closed.append((at - START, one.because))
        elif isinstance(one, Judge):
            self.seen.append(one.cut.seen)
            self.give(Judged(incident=one.incident, cut=one.cut, verdict=self.verdict), at)

    def reported(self, stops: Sequence[tuple[float, float]]) -> list[float | None]:
        """Return after how many seconds each stop was reported, None where it was not."""
        return [
            next((at - begin for at in self.opened if begin <= at <= begin + seconds + 15.0), None)
            for begin, seconds in stops
        ]


def stopped(stops: Sequence[tuple[float, float]], step_seconds: float = 1.0) -> Callable[..., float]:
    """The law of a job that stands still at those instants for so long."""
    clock = [0.0]
    left = list(stops)

    def law(_step: int, _noise: object) -> float:
        taken = step_seconds
        if left and clock[0] + step_seconds >= left[0][0]:
            taken += left.pop(0)[1]
        clock[0] += taken
        return taken

    return law


def apart(first: float, lengths: Sequence[float], between: float = 73.0) -> list[tuple[float, float]]:
    """Stops of these lengths, the job running in between for a while that no period divides."""
    found, at = [], first
    for number, seconds in enumerate(lengths):
        found.append((at, seconds))
        at += seconds + between + 7.3 * (number % 4)
    return found


SEQUENCES = {
    "55 s three times, then 170 s": apart(200.0, [55.0, 55.0, 55.0, 170.0]),
    "50 s four times": apart(200.0, [50.0] * 4),
    "50 s, 30 s after the start": apart(30.0, [50.0] * 4),
    "30 to 170 s, twenty times": apart(150.0, [30.0 + 7.0 * (13 * k % 21) for k in range(20)]),
}


@pytest.mark.parametrize("verdict", [FAULT, NOTHING], ids=["named", "unexplained"])
@pytest.mark.parametrize("stops", SEQUENCES.values(), ids=SEQUENCES)
def test_a_standstill_that_recovers_is_told_every_time(stops: list[tuple[float, float]], verdict: Verdict) -> None:
    """The fifth of fifty seconds as the first: in 35 s, whether or not a verdict explains it."""
    engine = Engine(verdict).run(WatchedJob(law=stopped(stops)), 0.0, stops[-1][0] + stops[-1][1] + 100.0)

    reported = engine.reported(stops)
    assert all(after is not None and after <= 40.0 for after in reported), reported
    assert len(engine.opened) == len(engine.closed) == len(stops)


def test_the_bound_is_what_it_was_before_the_faults() -> None:
    """Four standstills leave the job's bound where its steps put it."""
    stops = SEQUENCES["50 s four times"]
    engine = Engine().run(WatchedJob(law=stopped(stops)), 0.0, stops[-1][0] + 200.0)

    view = engine.state.jobs["run", 0]
    assert view.progress.allowed_seconds <= 10.0


@pytest.mark.parametrize("seed", [2, 3])
def test_short_stalls_of_a_fault_do_not_hide_its_long_ones(seed: int) -> None:
    """Sixty stalls of random lengths, most below the bound: they raised it to a minute, step by step."""
    noise = random.Random(seed)
    stops = apart(200.0, [min(300.0, 3.0 + noise.expovariate(1.0 / 18.0)) for _ in range(60)], between=97.0)
    engine = Engine().run(WatchedJob(nodes=1, ranks_a_node=2, law=stopped(stops), seed=seed), 0.0, stops[-1][0] + 400.0)

    long = [seen for (_, seconds), seen in zip(stops, engine.reported(stops), strict=True) if seconds >= 30.0]
    assert len(long) == 18
    assert None not in long


def test_a_node_is_counted_each_time_it_shows_up() -> None:
    """The cut of the fourth judgement holds that the node showed up three times before."""
    stops = SEQUENCES["50 s four times"]
    engine = Engine(FAULT).run(WatchedJob(law=stopped(stops)), 0.0, stops[-1][0] + 60.0)

    assert engine.seen[0] == {}
    assert engine.seen[-1] == {"n1": 3}


def test_pauses_that_a_verdict_explains_are_learned_at_their_place() -> None:
    """A checkpoint of 40 s every 50 steps opens one incident, whose verdict says what it was, and then no more."""
    job = WatchedJob(law=lambda number, _: 41.0 if number % 50 == 0 else 1.0)
    engine = Engine(PAUSE).run(job, 0.0, 1_500.0)

    assert len(engine.opened) == 1
    assert engine.state.jobs["run", 0].progress.rhythm.allowed_seconds(549) >= 60.0


def test_unexplained_pauses_at_the_places_of_a_round_period_are_learned() -> None:
    """Nobody could say what they were, but they come every 100 steps: after two or three they are the job's."""
    job = WatchedJob(law=lambda number, _: 41.0 if number % 100 == 0 else 1.0)
    engine = Engine(NOTHING).run(job, 0.0, 2_400.0)

    assert 1 <= len(engine.opened) <= 3


def test_faults_are_not_learned_even_at_the_places_of_a_period() -> None:
    """What a verdict names as a machine's is reported also where it comes every 50 steps."""
    job = WatchedJob(law=lambda number, _: 41.0 if number % 50 == 0 else 1.0)
    engine = Engine(FAULT).run(job, 0.0, 1_000.0)

    assert len(engine.opened) >= 9


def healthy(law: Callable[..., float], seconds: float = 3_600.0) -> list[float]:
    """When the engine opened incidents of a job that has no fault, every pause of it explained."""
    return Engine(PAUSE).run(WatchedJob(law=law), 0.0, seconds).opened


@pytest.mark.parametrize("first", [60.0, 110.0])
def test_a_slow_first_step_opens_nothing(first: float) -> None:
    """Compiling in the first step, and twice as long as usual in the next two."""
    assert healthy(lambda step, _: first if step == 1 else 2.0 if step <= 3 else 1.0) == []


def test_short_checkpoints_and_evaluations_open_nothing() -> None:
    """Seven seconds every 20 steps, and steps that vary, are within every bound."""
    assert healthy(lambda step, noise: noise.uniform(0.6, 1.4) + 5.0 * (step % 20 == 0)) == []


# --- agents that restart


def test_a_span_without_an_agent_is_nobodys_standstill() -> None:
    """The agent of the node whose log tells of the steps is away for ten minutes: nothing opens, and nothing is learned."""
    job = WatchedJob(nodes=1)
    engine = Engine()
    for begin in (300.0, 1_500.0, 2_700.0):
        engine.run(job, begin - 300.0 if begin == 300.0 else begin - 600.0, begin)
        job.reported.clear()  # its log is read from where the job is now
        job.done.clear()
        job.step += 600
        job.next_at = begin + 600.0
    engine.run(job, 3_300.0, 3_400.0)

    assert engine.opened == []
    assert engine.state.jobs["run", 0].progress.allowed_seconds <= 10.0


# --- processes


def state_of(rank: int, at: float, state: str, cpu: float | None = None) -> tuple[float, str, Record]:
    """What an agent reads of a rank's process; ranks 0 to 3 are on n0, the others on n1."""
    row = ProcessState(
        job="run",
        attempt=0,
        rank=rank,
        pid=100 + rank,
        state=state,
        at=START + at,
        started_at=START - 60.0,
        cpu_seconds=cpu,
    )
    return at, f"n{rank // 4}", row


class WithStates(WatchedJob):
    """A job of which one rank's state is given, instead of running."""

    def batch(self, number: int, at: float) -> Received:
        """One node's batch without what is said of the rank elsewhere."""
        reported = super().batch(number, at)
        given = {row.rank for when, _, row in self.extra if when <= at + 60.0 and when >= at - 60.0}
        kept = tuple(
            one for one in reported.records
            if not (isinstance(one, ProcessState) and one.rank in given and one.state == "R" and one.cpu_seconds is None)
        )  # fmt: skip
        return Received(
            sequence=reported.sequence,
            received_at=reported.received_at,
            node=reported.node,
            records=kept,
            sent_at=reported.sent_at,
        )


@pytest.mark.parametrize("reporters", [(0,), ()], ids=["steps", "no steps"])
def test_a_stopped_process_is_told_whatever_the_steps_say(reporters: tuple[int, ...]) -> None:
    """A rank in state T for 100 s is reported after 20 s and the time that its agent takes; SIGCONT closes the incident."""
    extra = [state_of(5, 100.0 + 10.0 * k, "T", 7.0) for k in range(11)]
    extra += [state_of(5, 210.0 + 10.0 * k, "R", 7.0 + k) for k in range(20)]
    job = WithStates(reporters=reporters, extra=extra)
    engine = Engine().run(job, 0.0, 400.0)

    assert len(engine.opened) == 1
    assert 120.0 <= engine.opened[0] <= 145.0
    (closed,) = engine.closed
    assert 210.0 <= closed[0] <= 260.0


def test_a_process_in_the_kernel_that_gains_no_cpu_time_is_told() -> None:
    """State D in all readings of 20 s with the same CPU time is a symptom; a writer that is often in D is none."""
    stuck = [state_of(5, 100.0 + 10.0 * k, "D", 7.0) for k in range(6)]
    busy = [state_of(5, 100.0 + 10.0 * k, "D", 7.0 + k) for k in range(6)]

    assert len(Engine().run(WithStates(reporters=(), extra=stuck), 0.0, 160.0).opened) == 1
    assert Engine().run(WithStates(reporters=(), extra=busy), 0.0, 160.0).opened == []


def test_a_job_that_is_suspended_as_a_whole_is_no_rank_that_is_stopped() -> None:
    """All processes in state T: somebody suspended the job."""
    extra = [state_of(rank, 100.0 + 10.0 * k, "T", 7.0) for rank in range(8) for k in range(6)]

    assert Engine().run(WithStates(reporters=(), extra=extra), 0.0, 160.0).opened == []


def suspended(rank: int, read: Iterable[float], until: float = 160.0) -> list[tuple[float, str, Record]]:
    """Return what is read of a rank that a person stops at 100 and continues later."""
    return [state_of(rank, at, "T" if 100.0 <= at < until else "R", 7.0 if at < until else at) for at in read]


@pytest.mark.parametrize(
    ("read", "opened"),
    [
        ([*range(60, 160, 10)], False),  # the agent is late with what came after the stop
        ([*range(60, 100, 10), *range(160, 220, 10)], False),  # it was silent during the stop
        ([*range(60, 160, 10), *range(160, 300, 10)], False),
    ],
    ids=["silent after", "silent during", "never silent"],
)
def test_a_node_that_is_silent_makes_no_stopped_rank_of_a_suspended_job(read: list[int], opened: bool) -> None:
    """All ranks were stopped and went on; of one node only a part of that has arrived."""
    late = [row for rank in range(4) for row in suspended(rank, map(float, read))]
    other = [row for rank in range(4, 8) for row in suspended(rank, map(float, range(60, 300, 10)))]

    assert bool(Engine().run(WithStates(reporters=(), extra=late + other), 0.0, 230.0).opened) is opened


def test_a_rank_that_stays_stopped_when_the_others_go_on_is_found() -> None:
    """The person continues all but one."""
    extra = [
        row for rank in range(8) for row in suspended(rank, map(float, range(60, 300, 10)), 160.0 if rank else 400.0)
    ]

    (opened,) = Engine().run(WithStates(reporters=(), extra=extra), 0.0, 230.0).opened
    assert 160.0 <= opened <= 200.0


def test_another_run_of_the_same_number_forgets_the_rhythm() -> None:
    """Where attempts are not counted, younger processes of most ranks begin anew."""
    view = watched(WatchedJob(), 300.0)
    assert view.progress.rhythm.p99_seconds() is not None
    again = WatchedJob(sequence=10_000)
    for batch in again.batches(400.0, 410.0):
        records = [
            ProcessState(
                job="run",
                attempt=0,
                rank=one.rank,
                pid=900 + (one.rank or 0),
                state="R",
                at=one.at,
                started_at=START + 390.0,
            )
            for one in batch.records
            if isinstance(one, ProcessState)
        ]
        view.take(batch, records)

    assert view.progress.rhythm.p99_seconds() is None
    assert isinstance(view, JobView)


class Closes(Engine):
    """Notes whether each incident that closes had passed by itself."""

    def __init__(self) -> None:
        super().__init__(FAULT)
        self.passed: list[bool] = []

    def _note(self, one: EngineInstruction, at: float) -> None:
        if isinstance(one, Close):
            self.passed.append(one.recovered)
        super()._note(one, at)


def stopped_until(go: float, end: float, code: int = 0, reporters: tuple[int, ...] = (0,)) -> WithStates:
    """A job whose rank 5 is stopped for a while, and which ends as its ranks' code says; its last steps are read later."""
    reads = [(rank, float(at)) for rank in range(8) for at in range(1, int(end) - 9, 10)]
    held = [(rank, at, rank == 5 and 100.0 <= at < go) for rank, at in reads]
    states = [state_of(rank, at, "T" if stops else "S", 7.0 if stops else at) for rank, at, stops in held]
    ends: dict[int, tuple[float, int | None, int | None]] = {rank: (end + 0.1 * rank, code, None) for rank in range(8)}
    law = stopped([(100.0, go - 100.0)])
    return WithStates(law=law, reporters=reporters, extra=states, stopped_at=end, ended=ends)


@pytest.mark.parametrize("reporters", [(0,), ()], ids=["steps", "no steps"])
@pytest.mark.parametrize("after", [1.0, 3.0, 6.0, 9.0, 22.0])
def test_a_job_that_a_person_continues_and_that_ends_well_soon_has_recovered(
    after: float, reporters: tuple[int, ...]
) -> None:
    """SIGSTOP and SIGCONT shortly before its last step: nothing was done, and the node that was named is no worse for it."""
    job = stopped_until(200.0, 200.0 + after, reporters=reporters)

    assert Closes().run(job, 0.0, 400.0).passed == [True]


@pytest.mark.parametrize("words", ["", "terminated"], ids=["it failed", "it was ended, and left well"])
def test_a_job_that_stood_still_and_was_ended_has_not_recovered(words: str) -> None:
    """Whoever starts it again does so because of the stop: the node that was named stays out."""
    job = stopped_until(200.0, 201.0, code=0 if words else 1, reporters=())
    job.extra += [(201.2, "n0", log_event(200.5, words, signal=15))] if words else []

    assert Closes().run(job, 0.0, 400.0).passed == [False]


def test_a_job_that_ends_well_without_having_moved_has_not_recovered() -> None:
    """Its ranks leave with 0, as servers do when they are asked to; none of them was stopped, and no step followed."""
    ends: dict[int, tuple[float, int | None, int | None]] = dict.fromkeys(range(8), (200.0, 0, None))

    assert Closes().run(WatchedJob(stopped_at=100.0, ended=ends), 0.0, 400.0).passed == [False]
