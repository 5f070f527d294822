"""The engine's driver: what is decided is in the tables once and whole, whatever is killed, away, broken or taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import delete, exc, select, text, update
from sqlalchemy.orm import Session

from analyzers.incidents import step as deciding
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Alarm, Ask, EngineTick, Judge, Judged, Publish
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Cut
from analyzers.model.verdict import Verdict, to_json
from service.engine import driver as driving
from service.engine.driver import ClockWentBack, Driver
from service.engine.judge_processes import JudgeFailure
from service.engine.numbers import Numbers
from service.store import incidents
from service.store.database import Database
from service.store.leases import HELD_SECONDS, Lease, LeaseLost
from service.store.models import (
    Alarm as AlarmRow,
)
from service.store.models import (
    Base,
    Command,
    Cursor,
    Downtime,
    Feedback,
    Pin,
    TimelineEntry,
    UnfitNode,
)
from service.store.models import Incident as IncidentRow
from service.store.models import Verdict as VerdictRow
from tests.support.scripted_engine import Fleet, Over, conclude, script, symptoms

KNOWLEDGE = Knowledge()
NODES = ("gpu-0001", "gpu-0002")


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1_000_000.0

    def __call__(self) -> float:
        """Return what it shows."""
        return self.at


class Inline:
    """Judges that judge in this process, at the next turn. ``failing`` are told of instead."""

    def __init__(self) -> None:
        self.count, self.seconds_total, self.pipes = 0, 0.0, list[int]()
        self.waiting: list[Judge] = []
        self.failing: list[JudgeFailure] = []

    def ask(self, judge: Judge) -> None:
        """Take it."""
        self.waiting.append(judge)

    def forget(self, incident: str) -> None:
        """Judge it no more."""
        self.waiting = [judge for judge in self.waiting if judge.incident != incident]

    def turn(self) -> Iterator[Judged | JudgeFailure]:
        """Judge all."""
        waiting, self.waiting = self.waiting, []
        yield from self.failing
        for judge in waiting:
            yield conclude(judge, KNOWLEDGE)


class Bench:
    """An engine on a store of its own, with a fleet and a clock."""

    def __init__(self, database: Database, over: Over) -> None:
        self.database, self.over, self.clock = database, over, Clock()
        self.fleet = Fleet(database, self.clock)
        self.judges = Inline()
        self.numbers = Numbers()
        self.begin()

    def begin(self, owner: str = "a") -> None:
        """Start an engine, as if the one before had been killed."""
        self.lease = Lease(self.database, "engine", owner, self.clock)
        if not self.lease.take():  # another's, which does not prove it any more
            self.clock.at += HELD_SECONDS
            assert self.lease.take()
        self.judges.waiting.clear()
        judges: Any = self.judges
        self.driver = Driver(self.database, self.lease, KNOWLEDGE, judges, self.numbers, self.clock)

    def turns(self, count: int, seconds: float = 1.0) -> None:
        """Let time pass, a turn each ``seconds``."""
        for _ in range(count):
            self.clock.at += seconds
            self.driver.turn()

    def hang(self, job: str = "hung", nodes: tuple[str, ...] = NODES) -> None:
        """Let a job hang, be seen and asked about, answer and be judged."""
        self.fleet.run(job, nodes)
        self.turns(3)
        self.fleet.answer(nodes)
        self.turns(3)

    def forget(self) -> None:
        """Empty the store, the log too, and begin anew, with the numbers of the log where they began."""
        with self.database.transaction() as session:
            if self.database.is_sqlite:
                for table in reversed(Base.metadata.sorted_tables):
                    session.execute(delete(table))
                session.execute(text("DELETE FROM sqlite_sequence"))
            else:
                names = ", ".join(table.name for table in Base.metadata.sorted_tables)
                session.execute(text(f"TRUNCATE {names} RESTART IDENTITY"))
        self.over.because, self.clock.at = None, Clock().at
        self.fleet = Fleet(self.database, self.clock)
        self.begin()

    def all(self, model: Any) -> list[Any]:
        """Return all rows of a table."""
        with self.database.session() as session:
            return list(session.scalars(select(model).order_by(*model.__table__.primary_key.columns)))

    def one(self, model: Any) -> Any:
        """Return the only row of a table."""
        (row,) = self.all(model)
        return row

    def place(self) -> int:
        """Return how far in the log the engine says that it is."""
        (row,) = [row for row in self.all(Cursor) if row.reader == incidents.READER]
        return int(row.sequence)

    def told(self, *kinds: str) -> list[str]:
        """Return the kinds of what happened, in order; only these, if any are given."""
        return [row.kind for row in self.all(TimelineEntry) if not kinds or row.kind in kinds]


@pytest.fixture
def bench(database: Database, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return an engine with scripted detectors, on SQLite and on PostgreSQL."""
    return Bench(database, script(monkeypatch))


def test_a_symptom_becomes_an_incident_and_its_nodes_are_asked(bench: Bench) -> None:
    """One hung job: an incident, its pin and its downtime; each node is asked for each thing once, at once."""
    bench.fleet.run("healthy", ["gpu-0009"])
    bench.fleet.run("hung", NODES)
    bench.turns(2)

    row, pin, cost = bench.one(IncidentRow), bench.one(Pin), bench.one(Downtime)
    assert (row.kind, row.job, row.attempt, row.nodes, row.closed_at) == ("hang", "hung", 1, list(NODES), None)
    assert (pin.job, pin.by, row.pin) == ("hung", "engine", pin.id)
    assert pin.since <= bench.clock.at - 2 <= pin.until
    assert (cost.incident, cost.onset_at, cost.detected_at) == (row.id, row.onset_at, row.opened_at)
    asked = sorted((command.node, command.verb, command.asked_by) for command in bench.all(Command))
    assert asked == [(node, verb, "engine") for node in NODES for verb in ("read", "recorders", "stacks")]
    assert bench.told() == ["opened", "asked", "asked", "asked"]


def test_a_judgement_is_published_with_all_that_readers_ask_for(bench: Bench) -> None:
    """The document's bytes, the summary, the node that is unfit and the instant of the first verdict are stored at once."""
    bench.hang()

    row, verdict = bench.one(IncidentRow), bench.one(VerdictRow)
    (judged,) = [row for row in bench.all(TimelineEntry) if row.kind == "published"]
    assert verdict.document == to_json(conclude(_judge_of(bench, verdict), KNOWLEDGE).verdict)
    assert (row.verdict_version, row.symptom, row.cause, row.action, row.abstained) == (
        1,
        "hang",
        "machine",
        "evict",
        False,
    )
    assert row.culprits == [{"kind": "node", "id": "gpu-0001", "ranks": [0], "probability": 0.97}]
    assert [(unfit.node, unfit.incident, unfit.action) for unfit in bench.all(UnfitNode)] == [
        ("gpu-0001", row.id, "evict")
    ]
    assert bench.one(Downtime).verdict_at == verdict.at == judged.at
    assert row.version > 1
    assert judged.details["culprits"] == ["node:gpu-0001"]
    assert bench.told("asked", "answered", "judged", "published")[3:] == ["answered", "judged", "published"]


def _judge_of(bench: Bench, verdict: VerdictRow) -> Judge:
    incident = bench.driver.state.incidents[verdict.incident]
    cut = msgspec.convert(verdict.cut, Cut)
    return deciding.request_judgement(bench.driver.state, replace(incident, cut=cut))


def test_answers_that_did_not_come_are_told(bench: Bench) -> None:
    """A look that all have answered waits for nothing; one whose time is over says how many answers it went without."""
    bench.fleet.run("hung", NODES)
    bench.turns(3)
    bench.fleet.answer(NODES[:1])
    bench.turns(10)
    bench.fleet.answer(NODES)
    bench.turns(3)

    looks = [row.details for row in bench.all(TimelineEntry) if row.kind == "answered"]
    assert looks == [{"look": 1, "waits_for": len(deciding.AWAITED)}, {"look": 2, "waits_for": 0}]


def test_an_incident_closes_and_lets_go(bench: Bench) -> None:
    """When the job moves again the incident says so, no node is unfit for it, and its records stay pinned."""
    bench.hang()
    bench.over.because = "the job moves again at step 41"
    bench.turns(12)

    row = bench.one(IncidentRow)
    assert row.closed_at is not None
    assert row.closed_because == "the job moves again at step 41"
    assert bench.all(UnfitNode) == []
    assert bench.one(Pin).until >= row.opened_at
    assert bench.told("opened", "published", "closed") == ["opened", "published", "closed"]


def test_who_was_named_stays_unfit_where_the_job_only_ended(bench: Bench) -> None:
    """The restart that follows must not choose the node again: the mark outlives the incident by a day."""
    bench.hang()
    bench.over.because = "all 2 processes that were seen of the job have ended: 2 by SIGTERM"
    bench.turns(12)

    closed_at, unfit = bench.one(IncidentRow).closed_at, bench.one(UnfitNode)
    assert closed_at is not None
    assert unfit.until == closed_at + 86_400.0


def test_who_a_person_acquitted_stays_fit(bench: Bench) -> None:
    """A later version that names the same node again does not make it unfit; another incident may."""
    bench.hang()
    incident, verdict = bench.one(IncidentRow), bench.one(VerdictRow)
    said = Feedback(incident=incident.id, verdict_version=1, at=bench.clock.at, by="ops", judgement="wrong")
    with bench.database.transaction() as session:
        session.add(said)
        incidents.acquit(session, incident.id)
    again = Publish(incident=incident.id, version=2, verdict=_verdict(verdict), cut=msgspec.convert(verdict.cut, Cut))
    with bench.database.transaction() as session:
        assert incidents.publish(session, again, bench.clock.at)
    assert bench.all(UnfitNode) == []

    bench.hang("hung-too")

    assert [unfit.node for unfit in bench.all(UnfitNode)] == ["gpu-0001"]


def _verdict(row: VerdictRow) -> Verdict:
    return msgspec.json.decode(row.document, type=Verdict)


def test_one_that_named_nobody_is_not_kept_for_ever(bench: Bench) -> None:
    """An incident that closes before anything was published gives its pin back."""
    bench.fleet.run("hung", NODES)
    bench.turns(2)
    bench.over.because = "the job moves again"
    bench.fleet.run("hung", NODES)
    bench.turns(2)

    assert bench.one(IncidentRow).closed_at is not None
    assert bench.all(Pin) == []


@pytest.mark.parametrize("phase", [0, 1, 2])
def test_a_kill_at_any_turn_changes_nothing(bench: Bench, phase: int) -> None:
    """An engine that is killed after every third turn opens, asks, publishes and closes what one that lives does, once."""

    def play(turn: Callable[[int], None]) -> tuple[Any, ...]:
        bench.fleet.run("hung", NODES)
        for second in range(36):
            if second == 4:
                bench.fleet.answer(NODES)
            if second == 24:
                bench.over.because = "the job moves again"
            turn(second)
        (row,) = bench.all(IncidentRow)
        asked = sorted((command.node, command.verb) for command in bench.all(Command))
        told = bench.told("opened", "published", "closed")
        culprits = [msgspec.json.decode(verdict.document)["culprits"] for verdict in bench.all(VerdictRow)]
        return (row.id, row.closed_because, row.verdict_version, asked, told, culprits)

    def killed(second: int) -> None:
        bench.turns(1)
        if second % 3 == phase:
            bench.begin()

    lived = play(lambda _second: bench.turns(1))
    bench.forget()

    assert play(killed) == lived


def test_what_the_database_broke_off_is_written_later(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the database away for several turns nothing is lost, nothing is done twice, and no time is skipped."""
    bench.fleet.run("hung", NODES)
    transaction = bench.database.transaction

    @contextmanager
    def away() -> Iterator[Session]:
        with transaction() as session:
            yield session
            raise exc.OperationalError("COMMIT", None, Exception("the server is gone"))

    monkeypatch.setattr(bench.database, "transaction", away)
    for _ in range(5):
        bench.clock.at += 1
        with pytest.raises(exc.OperationalError):
            bench.driver.turn()
    assert bench.all(IncidentRow) == []
    monkeypatch.setattr(bench.database, "transaction", transaction)
    bench.turns(2)
    bench.fleet.answer(NODES)
    bench.turns(3)

    assert bench.one(IncidentRow).verdict_version == 1
    assert len(bench.all(Command)) == 6
    assert bench.told("opened", "published") == ["opened", "published"]


def test_a_commit_of_which_nobody_was_told_is_not_repeated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database goes away between its commit and its answer, nothing is asked, told or published twice."""
    bench.fleet.run("hung", NODES)
    transaction = bench.database.transaction

    @contextmanager
    def untold() -> Iterator[Session]:
        with transaction() as session:
            yield session
        raise exc.OperationalError("COMMIT", None, Exception("the server is gone"))

    for _ in range(2):
        monkeypatch.setattr(bench.database, "transaction", untold)
        with pytest.raises(exc.OperationalError):
            bench.turns(1)
        monkeypatch.setattr(bench.database, "transaction", transaction)
        bench.turns(1)
        bench.fleet.answer(NODES)
    bench.turns(3)

    assert bench.one(IncidentRow).verdict_version == 1
    assert len(bench.all(Command)) == 6
    assert bench.told("opened", "asked", "published") == ["opened", "asked", "asked", "asked", "published"]
    assert bench.numbers.write_failures == 0


@pytest.mark.parametrize("step", [1 << 31, 1 << 63])
def test_a_cost_that_no_column_holds_costs_itself(bench: Bench, step: int) -> None:
    """A job that counts tokens as its steps, beyond what a database's integers hold, does not stop the engine."""
    bench.hang()
    (cost,) = bench.driver._downtimes.values()
    moved = {"last_step": step, "resumed_step": step, "steps_lost": 1, "first_good_at": bench.clock.at}
    bench.driver._changed_downtimes[cost.incident] = replace(cost, **moved)
    bench.turns(1)

    row = bench.one(Downtime)
    assert (row.first_good_at, row.last_step, row.resumed_step, row.steps_lost) == (bench.clock.at - 1, None, None, 1)


def test_a_pin_that_a_person_deleted_is_not_another_incidents(bench: Bench) -> None:
    """Its number may be given again: the incident that lost its pin neither moves nor deletes the other's."""
    bench.fleet.run("hung", NODES)
    bench.turns(2)
    with bench.database.transaction() as session:
        session.execute(delete(Pin))
    bench.fleet.run("hung-too", ["gpu-0005"])
    bench.turns(2)
    first, second = sorted(bench.all(IncidentRow), key=lambda row: row.opened_at)
    with bench.database.transaction() as session:
        assert incidents.close(session, first.id, bench.clock.at, "a drill")

    assert [pin.id for pin in bench.all(Pin)] == [second.pin]


def test_a_long_turn_keeps_the_lease(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it takes up many batches, each of four seconds, an engine proves its lease: nobody takes it, nothing is redone."""
    take = bench.driver._take
    for number in range(5):
        bench.fleet.run(f"healthy-{number}", ["gpu-0001"])

    other = Lease(bench.database, "engine", "b", bench.clock)

    def slow(stored: Any) -> None:
        bench.clock.at += 4
        assert not other.take()
        take(stored)

    monkeypatch.setattr(bench.driver, "_take", slow)
    bench.driver.turn()

    assert bench.place() == 5


def test_an_engine_without_its_lease_writes_nothing(bench: Bench) -> None:
    """Once another has taken the lease, the first fails at its next write, and the other does the work once."""
    bench.fleet.run("hung", NODES)
    first = bench.driver
    bench.begin("b")

    with pytest.raises(LeaseLost):
        first.turn()
    assert bench.all(IncidentRow) == []
    bench.turns(2)

    assert bench.told("opened") == ["opened"]


def test_a_batch_that_nobody_can_read_is_passed_over(bench: Bench) -> None:
    """Bytes that are no block, and a batch on which the engine breaks, cost themselves: the job behind them is seen."""
    bench.fleet.tell_bytes("gpu-0001", b"no block")
    bench.fleet.run("hung", NODES)
    bench.turns(2)

    assert bench.numbers.undecodable_batches == 1
    assert bench.place() == 3
    assert len(bench.all(IncidentRow)) == 1


def test_an_event_that_breaks_the_engine_is_left_out(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that raises is counted, and the events behind it are taken."""
    real = deciding.step

    def brittle(state: Any, event: Any, now: float) -> Any:
        if getattr(event, "node", "") == "gpu-0666":
            raise ZeroDivisionError
        return real(state, event, now)

    monkeypatch.setattr(driving, "step", brittle)
    bench.fleet.run("hung-x", ["gpu-0666"])
    bench.fleet.run("hung", NODES)
    bench.turns(2)

    assert bench.numbers.step_failures == 1
    assert [row.job for row in bench.all(IncidentRow)] == ["hung"]


def test_a_job_that_cannot_be_examined_costs_no_other(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One job's odd view costs its own examination and is counted; the others' are made."""

    def brittle(view: JobView, now: float) -> Any:
        if view.job == "broken":
            raise ZeroDivisionError
        return symptoms(view, now)

    monkeypatch.setattr(deciding, "find_symptoms", brittle)
    bench.fleet.run("broken", ["gpu-0001"])
    bench.fleet.run("hung", NODES)
    bench.turns(3)

    assert (bench.numbers.step_failures, bench.numbers.left_out > 0) == (0, True)
    assert [row.job for row in bench.all(IncidentRow)] == ["hung"]


def test_what_a_person_closed_stays_closed(bench: Bench) -> None:
    """An incident that was closed by hand is looked at no more: no verdict comes after it, and it is not opened again."""
    bench.fleet.run("hung", NODES)
    bench.turns(2)
    with bench.database.transaction() as session:
        session.execute(update(IncidentRow).values(closed_at=bench.clock.at, closed_because="a drill"))
    bench.turns(4)
    bench.fleet.answer(NODES)
    bench.turns(20)

    assert bench.one(IncidentRow).closed_because == "a drill"
    assert bench.all(VerdictRow) == []
    assert bench.told("opened", "closed") == ["opened"]
    assert bench.driver.state.incidents == {}


def test_a_failed_analyzer_is_told_of(bench: Bench) -> None:
    """An analyzer that crashed in a judgement is a line of the incident's timeline and a number."""
    bench.fleet.run("hung", NODES)
    bench.turns(2)
    bench.judges.failing.append(JudgeFailure(bench.one(IncidentRow).id, "stacks", "its process ended with SIGSEGV"))
    bench.turns(1)

    (told,) = [row for row in bench.all(TimelineEntry) if row.kind == "judge_failed"]
    assert told.details == {"analyzer": "stacks", "why": "its process ended with SIGSEGV"}
    assert bench.numbers.judge_failures == 1


def test_a_decision_that_cannot_be_written_costs_itself(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instruction that the store refuses is undone alone and counted; those beside it are written."""
    real = deciding.step

    def odd(state: Any, event: Any, now: float) -> Any:
        state, decided = real(state, event, now)
        return state, [*decided, Ask(incident="", nodes=("gpu-0001",), verb="dance")] if decided else []

    monkeypatch.setattr(driving, "step", odd)
    bench.fleet.run("hung", NODES)
    bench.turns(2)

    assert bench.numbers.write_failures >= 1
    assert len(bench.all(IncidentRow)) == 1
    assert {command.verb for command in bench.all(Command)} == {"stacks", "recorders", "read"}


def test_an_alarm_is_raised_once_and_over_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated alarm changes its row; its end is told once."""
    alarms = [
        [Alarm(kind="coverage", text="0.80 of the ranks", job="j")],
        [Alarm(kind="coverage", text="0.75 of the ranks", job="j")],
        [Alarm(kind="coverage", text="", job="j", raised=False)],
        [Alarm(kind="coverage", text="", job="j", raised=False)],
    ]
    monkeypatch.setattr(
        driving,
        "step",
        lambda state, event, _now: (state, alarms.pop(0) if alarms and isinstance(event, EngineTick) else []),
    )
    bench.turns(4, seconds=10.0)

    row = bench.one(AlarmRow)
    assert (row.text, row.over_at - row.raised_at) == ("0.75 of the ranks", 20.0)
    assert bench.told() == ["alarm", "alarm_over"]


@pytest.mark.system
def test_a_log_that_is_behind_is_judged_by_its_own_time(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was received an hour ago is ticked through as it came, and only then does the present begin."""
    ticked: list[float] = []
    real = deciding.step

    def noted(state: Any, event: Any, now: float) -> Any:
        if isinstance(event, EngineTick):
            ticked.append(now)
        return real(state, event, now)

    monkeypatch.setattr(driving, "step", noted)
    began = bench.clock.at
    for _ in range(30):
        bench.fleet.run("healthy", ["gpu-0001"])
        bench.clock.at += 5
    bench.clock.at += 3_600
    bench.driver.turn()
    behind = list(ticked)
    bench.turns(int(driving.GRACE_SECONDS) + 1)  # agents may report again first

    assert behind
    assert all(at <= began + 150 for at in behind)
    assert {round(after - before) for before, after in pairwise(behind)} <= {5, 10}
    assert ticked[-1] == bench.clock.at


def test_a_clock_that_goes_back_is_noticed(bench: Bench) -> None:
    """An hour back means an hour in which nothing would be due: the engine begins again and opens what it sees."""
    bench.turns(3)
    bench.clock.at -= 3_600

    with pytest.raises(ClockWentBack, match="s less than before"):
        bench.driver.turn()
    bench.begin()
    bench.fleet.run("hung", NODES)
    bench.turns(2)

    assert bench.told("opened") == ["opened"]


def test_the_lag_is_told(bench: Bench) -> None:
    """The store says how many batches the engine has not seen, and since when they wait."""
    bench.turns(4)
    bench.fleet.run("healthy", NODES)
    bench.clock.at += 7

    with bench.database.session() as session:
        lag = incidents.lag(session, bench.clock.at)

    assert (lag.batches, lag.seconds) == (2, 7.0)
