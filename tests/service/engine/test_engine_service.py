"""The engine's driver: what is decided is in the tables once and whole, whatever is killed, away, broken or taken over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import delete, exc
from sqlalchemy.orm import Session

from analyzers.incidents import rounds
from analyzers.incidents.cuts import request_judgement
from analyzers.incidents.messages import Judge, Publish
from analyzers.model.incident import Cut
from analyzers.model.verdict import Verdict, to_json
from service.store import incidents
from service.store.database import Database
from service.store.models import (
    Command,
    Downtime,
    Feedback,
    Pin,
    TimelineEntry,
    UnfitNode,
)
from service.store.models import Incident as IncidentRow
from service.store.models import Verdict as VerdictRow
from tests.support.engine_bench import KNOWLEDGE, NODES, Bench
from tests.support.scripted_engine import conclude, script


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
    assert bench.reported() == ["opened", "asked", "asked", "asked"]


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
    assert row.culprits == [{"root": "r1", "kind": "node", "id": "gpu-0001", "ranks": [0], "probability": 0.97}]
    assert [(unfit.node, unfit.incident, unfit.action) for unfit in bench.all(UnfitNode)] == [
        ("gpu-0001", row.id, "evict")
    ]
    assert bench.one(Downtime).verdict_at == verdict.at == judged.at
    assert row.version > 1
    assert judged.details["culprits"] == ["node:gpu-0001"]
    assert bench.reported("asked", "answered", "judged", "published")[3:] == ["answered", "judged", "published"]


def _judge_of(bench: Bench, verdict: VerdictRow) -> Judge:
    incident = bench.driver.state.incidents[verdict.incident]
    cut = msgspec.convert(verdict.cut, Cut)
    return request_judgement(bench.driver.state, replace(incident, cut=cut))


def test_answers_that_did_not_come_are_told(bench: Bench) -> None:
    """A look that all have answered waits for nothing; one whose time is over says how many answers it went without."""
    bench.fleet.run("hung", NODES)
    bench.turns(3)
    bench.fleet.answer(NODES[:1])
    bench.turns(10)
    bench.fleet.answer(NODES)
    bench.turns(3)

    looks = [row.details for row in bench.all(TimelineEntry) if row.kind == "answered"]
    assert looks == [{"look": 1, "waits_for": len(rounds.ASKED)}, {"look": 2, "waits_for": 0}]


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
    assert bench.reported("opened", "published", "closed") == ["opened", "published", "closed"]


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
        reported = bench.reported("opened", "published", "closed")
        culprits = [msgspec.json.decode(verdict.document)["culprits"] for verdict in bench.all(VerdictRow)]
        return (row.id, row.closed_because, row.verdict_version, asked, reported, culprits)

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
    assert bench.reported("opened", "published") == ["opened", "published"]


def test_a_commit_of_which_nobody_was_told_is_not_repeated(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the database goes away between its commit and its answer, nothing is asked, reported or published twice."""
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
    assert bench.reported("opened", "asked", "published") == ["opened", "asked", "asked", "asked", "published"]
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
