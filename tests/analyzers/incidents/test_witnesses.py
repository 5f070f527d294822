"""A job that reports no steps: what its processes, connections and stacks say of it, and what nobody read."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

import msgspec
import pytest

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.pace import Paces
from analyzers.incidents.messages import EngineTick, Received
from collectors.records import Frame, ProcessState, Record, Samples, StackDump, Thread
from tests.analyzers.incidents.test_repeated_stops import Engine
from tests.support.watched_jobs import START, WatchedJob, log_event, ring_record, step_record, watched

Span = tuple[float, float]
STILL: Span = (600.0, 1_200.0)


class Mute:
    """A node of two ranks whose job prints nothing; it stands still in a span, and its agent is away in others."""

    def __init__(
        self, still: Span = STILL, away: Iterable[Span] = (), *, traffic: bool = True, spins: bool = False
    ) -> None:
        self.still, self.away, self.traffic, self.spins = still, tuple(away), traffic, spins
        self.sequence = 0

    def worked(self, at: float) -> float:
        """How long the job has worked."""
        begin, end = self.still
        return at - max(0.0, min(at, end) - begin) if at > begin else at

    def batches(self, since: float, until: float) -> Iterable[Received]:
        """What the agent sends every ten seconds."""
        for turn in range(int(since // 10), int(until // 10)):
            at = 10.0 * turn
            if not any(begin <= at < end for begin, end in self.away):
                self.sequence += 1
                records = tuple(self.records(at))
                yield Received(
                    sequence=self.sequence, received_at=START + at, sent_at=START + at, node="n0", records=records
                )

    def records(self, at: float) -> Iterable[Record]:
        """What it read at an instant."""
        worked, still = self.worked(at), self.still[0] < at <= self.still[1]
        for rank in range(2):
            cpu = at if self.spins else worked * 0.8
            yield ProcessState(
                job="run", attempt=0, rank=rank, pid=100 + rank, state="S" if still and not self.spins else "R",
                at=START + at, started_at=START - 60.0, cpu_seconds=cpu, voluntary_switches=int(90 * worked),
            )  # fmt: skip
        if self.traffic:
            yield Samples(
                scope="socket", type="<i8", devices=("10.0.0.1:4>10.0.0.2:5",), metrics=("bytes_sent_total",),
                at=START + at, ticks=array("d", [START + at]).tobytes(),
                values=array("q", [int(50_000 * worked)]).tobytes(),
            )  # fmt: skip


def test_a_job_without_steps_recovers() -> None:
    """No bytes for ten minutes open one incident; when they move again as before it closes within half a minute."""
    engine = Engine().run(Mute(), 0.0, 1_500.0)  # type: ignore[arg-type]

    assert len(engine.opened) == 1
    assert 660.0 <= engine.opened[0] <= 680.0
    (closed,) = engine.closed
    assert 1_210.0 <= closed[0] <= 1_240.0
    assert "moves again" in closed[1]


def test_a_job_that_stays_hung_does_not_recover() -> None:
    """An hour later nothing has moved, and the incident is open."""
    engine = Engine().run(Mute((600.0, 9_999.0)), 0.0, 4_200.0)  # type: ignore[arg-type]

    assert (len(engine.opened), engine.closed) == (1, [])


def test_a_rank_that_spins_is_no_sign_of_life() -> None:
    """CPU time at the usual pace proves nothing where it never fell."""
    engine = Engine().run(Mute((600.0, 9_999.0), spins=True), 0.0, 2_000.0)  # type: ignore[arg-type]

    assert (len(engine.opened), engine.closed) == (1, [])


@pytest.mark.parametrize("away", [(300.0, 900.0), (590.0, 1_190.0), (500.0, 620.0)])
def test_the_silence_of_an_agent_is_no_standstill_of_a_job(away: Span) -> None:
    """The agent is away for minutes in a job that goes on: nothing opens at its return."""
    engine = Engine().run(Mute((9_000.0, 9_999.0), [away]), 0.0, 2_000.0)  # type: ignore[arg-type]

    assert engine.opened == []


def test_an_agent_that_returns_to_a_hung_job_tells_it() -> None:
    """The hang goes on: the bound is counted anew from the return."""
    engine = Engine().run(Mute((600.0, 9_999.0), [(610.0, 900.0)]), 0.0, 1_500.0)  # type: ignore[arg-type]

    assert len(engine.opened) == 1
    assert engine.opened[0] <= 1_050.0


def test_an_agent_away_while_the_job_recovers_closes_the_incident() -> None:
    """It goes on while nobody reads: after the return two readings show it."""
    engine = Engine().run(Mute(away=[(1_100.0, 1_400.0)]), 0.0, 1_700.0)  # type: ignore[arg-type]

    assert len(engine.opened) == len(engine.closed) == 1
    assert engine.closed[0][0] <= 1_450.0


def view_of(job: Mute, seconds: float) -> JobView:
    """The job's view."""
    view = JobView("run", 0)
    for batch in job.batches(0.0, seconds):
        view.take(batch, batch.records)
    return view


def states(view: JobView, at: float) -> dict[str, str]:
    """What each witness says."""
    return {one.witness: one.state for one in view.testimonies(START + at)}


def test_what_nobody_read_is_unmeasured() -> None:
    """Without readings of a kind nothing is said of it, and nothing opens for it."""
    view = view_of(Mute(traffic=False), 900.0)

    found = states(view, 890.0)
    assert list(found) == ["steps", "operations", "traffic", "switches", "cpu", "gpu", "stacks"]
    assert found["traffic"] == found["steps"] == found["gpu"] == found["operations"] == "unmeasured"
    assert (found["cpu"], found["switches"]) == ("silent", "silent")
    assert find_symptoms(view, START + 890.0) == []
    assert states(view_of(Mute(), 500.0), 490.0)["traffic"] == "alive"
    assert set(states(view, 2_000.0).values()) == {"unmeasured"}


@pytest.mark.parametrize(("inside", "said"), [(False, "unmeasured"), (True, "silent")])
def test_rings_that_nothing_enters_say_nothing_of_a_job_that_steps(inside: bool, said: str) -> None:
    """DDP's operations enter no ring: only one that is entered and not left shows silence."""
    job = WatchedJob(nodes=1)
    rows = [("broadcast", 1, START + 5.0, START + 6.0), *([("all_reduce", 2, START + 7.0, None)] if inside else [])]
    job.extra = [(at, "n0", ring_record(0, START + at, rows, 4)) for at in (110.0, 120.0, 130.0)]

    assert states(watched(job, 132.0), 132.0)["operations"] == said


def test_ranks_that_compute_for_themselves_do_not_hang() -> None:
    """No bytes for minutes, and the ranks wait and work as often as before: an evaluation."""
    job = Mute((9_000.0, 9_999.0))
    bytes_of = job.records

    def without_bytes(at: float) -> Iterable[Record]:
        kept: Callable[[Record], bool] = lambda one: not isinstance(one, Samples)  # noqa: E731
        return [*filter(kept, bytes_of(at)), *filter(lambda one: not kept(one), bytes_of(min(at, 600.0)))]

    def records(at: float) -> Iterable[Record]:
        return [_at(one, at) if isinstance(one, Samples) else one for one in without_bytes(at)]

    job.records = records  # type: ignore[method-assign]
    assert Engine().run(job, 0.0, 1_800.0).opened == []  # type: ignore[arg-type]


def _at(one: Samples, at: float) -> Samples:
    from msgspec.structs import replace

    return replace(one, at=START + at, ticks=array("d", [START + at]).tobytes())


def test_a_pace_that_never_fell_is_not_back() -> None:
    """A counter must have fallen after the onset; one that begins anew, or was not read for long, has no pace."""
    paces = Paces()
    for turn in range(20):
        paces.take("a", 10.0 * turn, 5.0 * turn)
    assert paces.goes_on(100.0)
    assert not paces.came_back(100.0, 150.0)
    paces.take("a", 900.0, 100.0)
    assert not paces.goes_on(100.0)


def test_stacks_that_move_again_close_an_incident() -> None:
    """Stacks that were the same twice, and are others twice, show that the ranks go on."""
    view = JobView("run", 0)
    for turn, function in enumerate(["wait", "wait", "wait", "backward", "step"]):
        at = START + 700.0 + 60.0 * turn
        stacks = tuple(
            StackDump(
                job="run", attempt=0, rank=rank, at=at, pid=100 + rank,
                threads=(Thread(frames=(Frame(function=function),), main=True),),
            )
            for rank in range(2)
        )  # fmt: skip
        view.take(Received(sequence=turn + 1, received_at=at, sent_at=at, node="n0", records=stacks), stacks)
        found = view.witnesses.back(START + 600.0, START + 800.0)
        assert (found is not None) == (turn == 4)


class Printing(Mute):
    """The same job, whose log prints a step a second until an instant, whatever the job does."""

    def __init__(self, still: Span, prints_until: float) -> None:
        super().__init__(still)
        self.prints_until = prints_until

    def records(self, at: float) -> Iterable[Record]:
        """What the agent read, with the steps of the newest ten seconds."""
        yield from super().records(at)
        rows = [(step, START + step) for step in range(max(1, int(at) - 9), int(at) + 1) if step <= self.prints_until]
        rows = [row for row in rows if self.worked(row[1] - START) == row[1] - START]
        if rows:
            yield step_record(rows, at=START + at)


def test_a_log_that_stops_while_the_job_goes_on_is_no_hang() -> None:
    """An evaluation that prints nothing for five minutes: all ranks wait and work as before."""
    assert Engine().run(Printing((9_000.0, 9_999.0), 600.0), 0.0, 900.0).opened == []  # type: ignore[arg-type]


def test_ranks_that_poll_hide_a_hang_for_ten_minutes_at_most() -> None:
    """Main threads that wake at one pace whatever the job does, as those of Ray's actors, and no bytes that are counted."""
    job = Printing(STILL, 9_999.0)
    job.traffic, job.still = False, (600.0, 9_999.0)
    own = job.records

    def records(at: float) -> Iterable[Record]:
        for one in own(at):
            polls = isinstance(one, ProcessState)
            yield msgspec.structs.replace(one, voluntary_switches=int(100 * at), cpu_seconds=at) if polls else one  # type: ignore[call-arg]

    job.records = records  # type: ignore[method-assign]
    (opened,) = Engine().run(job, 0.0, 1_500.0).opened  # type: ignore[arg-type]
    assert 1_200.0 <= opened <= 1_230.0


def test_a_hang_is_seen_as_fast_with_witnesses_as_without() -> None:
    """What the witnesses read stands still too."""
    opened = Engine().run(Printing((600.0, 9_999.0), 9_999.0), 0.0, 900.0).opened  # type: ignore[arg-type]

    assert len(opened) == 1
    assert opened[0] <= 630.0


def test_another_job_on_the_node_does_not_speak_for_this_one() -> None:
    """Two jobs share a node: the bytes of the other one's process are no sign that this one goes on."""
    job = Mute((600.0, 9_999.0))
    own = job.records

    def records(at: float) -> Iterable[Record]:
        for one in own(at):
            if isinstance(one, Samples):
                moved = [int(50_000 * job.worked(at)), 100, int(90_000 * at), 777]
                yield Samples(
                    scope="socket", type="<i8", devices=("10.0.0.1:4>10.0.0.2:5", "10.0.0.1:6>10.0.0.2:7"),
                    metrics=("bytes_sent_total", "pid"), at=one.at, ticks=one.ticks, values=array("q", moved).tobytes(),
                )  # fmt: skip
            else:
                yield one

    job.records = records  # type: ignore[method-assign]
    engine = Engine().run(job, 0.0, 1_500.0)  # type: ignore[arg-type]
    assert (len(engine.opened), engine.closed) == (1, [])


def test_the_bytes_of_a_shared_port_end_no_hang() -> None:
    """A job that reports no steps is stuck in a collective for two hours; another job's bytes go over the node's port."""
    engine = Engine()
    for turn in range(720):
        at = 10.0 * turn
        rows = [("all_reduce", n, n * 10.0, n * 10.0 + 5.0) for n in range(max(1, turn - 5), min(turn, 200))]
        rows += [("all_reduce", 200, 2_000.0, None)] if turn >= 200 else []
        rings = [
            ring_record(rank, START + at, [(o, n, START + b, e and START + e) for o, n, b, e in rows], 2)
            for rank in (0, 1)
        ]
        port = Samples(
            scope="infiniband", type="<i8", devices=("mlx5_0/1",), metrics=("port_xmit_data_words_total",), at=START + at,
            ticks=array("d", [START + at]).tobytes(), values=array("q", [int(5e6 * at)]).tobytes(),
        )  # fmt: skip
        batch = Received(
            sequence=turn + 1, received_at=START + at, sent_at=START + at, node="n0", records=(*rings, port)
        )
        engine.give(batch, START + at)
        engine.give(EngineTick(), START + at + 1.0)

    assert (len(engine.opened), engine.closed) == (1, [])


@pytest.mark.parametrize(("still", "expected"), [(STILL, True), ((9_000.0, 9_999.0), False)])
def test_a_rank_that_raises_and_stands_is_told_where_no_steps_are(still: Span, expected: bool) -> None:
    """Its process lives and its peers wait for it: half a minute after the exception nothing has moved."""
    job = Mute(still, traffic=False)
    own = job.records

    def records(at: float) -> Iterable[Record]:
        yield from own(at)
        if at == 600.0:
            yield log_event(600.0, exception="ValueError", message="no token", rank=1)

    job.records = records  # type: ignore[method-assign]
    found = [find_symptoms(view_of(job, seconds), START + seconds) for seconds in (620.0, 650.0)]

    assert [["failure_logged" in {one.detector for one in each} for each in found]] == [[False, expected]]
