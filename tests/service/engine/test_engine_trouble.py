"""What breaks a turn of the engine, and what that costs: leases, bad batches, failed parts, late logs, wrong clocks."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import update

from analyzers.incidents import step as deciding
from analyzers.incidents.awaited import GRACE_SECONDS
from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Alarm, Ask, EngineTick
from service.engine import driver as driving
from service.engine.driver import ClockWentBack
from service.engine.judge_processes import JudgeFailure
from service.store import incidents
from service.store.database import Database
from service.store.leases import Lease, LeaseLost
from service.store.models import (
    Alarm as AlarmRow,
)
from service.store.models import (
    Command,
    TimelineEntry,
)
from service.store.models import Incident as IncidentRow
from service.store.models import Verdict as VerdictRow
from tests.support.engine_bench import NODES, Bench
from tests.support.scripted_engine import script, symptoms


@pytest.fixture
def bench(database: Database, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return an engine with scripted detectors, on SQLite and on PostgreSQL."""
    return Bench(database, script(monkeypatch))


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

    assert bench.reported("opened") == ["opened"]


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
    assert bench.reported("opened", "closed") == ["opened"]
    assert bench.driver.state.incidents == {}


def test_a_failed_analyzer_is_told_of(bench: Bench) -> None:
    """An analyzer that crashed in a judgement is a line of the incident's timeline and a number."""
    bench.fleet.run("hung", NODES)
    bench.turns(2)
    bench.judges.failing.append(JudgeFailure(bench.one(IncidentRow).id, "stacks", "its process ended with SIGSEGV"))
    bench.turns(1)

    (reported,) = [row for row in bench.all(TimelineEntry) if row.kind == "judge_failed"]
    assert reported.details == {"analyzer": "stacks", "why": "its process ended with SIGSEGV"}
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
    """A repeated alarm changes its row; its end is reported once."""
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
    assert bench.reported() == ["alarm", "alarm_over"]


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
    bench.turns(int(GRACE_SECONDS) + 1)  # agents may report again first

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

    assert bench.reported("opened") == ["opened"]


def test_the_lag_is_told(bench: Bench) -> None:
    """The store says how many batches the engine has not seen, and since when they wait."""
    bench.turns(4)
    bench.fleet.run("healthy", NODES)
    bench.clock.at += 7

    with bench.database.session() as session:
        lag = incidents.lag(session, bench.clock.at)

    assert (lag.batches, lag.seconds) == (2, 7.0)
