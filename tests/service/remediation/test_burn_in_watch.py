"""Nodes under burn-in, as the engine sees them: good steps are counted, trouble begins them anew, and the past is weighed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from analyzers.incidents.job_views import JobView
from analyzers.incidents.messages import Received
from analyzers.remediation.messages import AskUndo, Begin, Complete, Take
from analyzers.remediation.node_history import HOUR_SECONDS, NodeEvent, NodeRecord, Trial, record_trial, update_record
from collectors.records import Members, Placement, Record
from service.packaged_knowledge import weights_of
from service.remediation import fleet_facts, node_records
from service.store.database import Database
from service.store.models import AuditEvent, Incident
from tests.support.incident_rows import JOB, seed, verdict
from tests.support.postgres import SQLITE_FIRST
from tests.support.proposer_at_work import KNOWLEDGE, Care
from tests.support.remediation_fleet import declare, hung, let, place
from tests.support.watched_jobs import step_record

pytestmark = pytest.mark.parametrize("url", SQLITE_FIRST, indirect=True)

NODE = "gpu-0002"
WEIGHTS = weights_of(KNOWLEDGE)


@pytest.fixture
def care(database: Database) -> Care:
    """Return a proposer that has begun before anything happened."""
    care = Care(database)
    care.turn(0.0)
    return care


def record(care: Care) -> NodeRecord:
    """Return what is remembered of the node."""
    with care.database.session() as session:
        return node_records.read_record(session, NODE)


def remember(care: Care, found: NodeRecord) -> None:
    """Store what is remembered of the node."""
    with care.database.transaction() as session:
        node_records.write_record(session, found, care.now)


def burns_in(care: Care, outcome: Any = "cured") -> None:
    """Let the node have been taken out, and have come back now."""
    trial = Trial(probability=0.9, began_at=care.now - 60, ended_at=care.now - 30, outcome=outcome)
    after = record_trial(NodeRecord(node=NODE), trial, WEIGHTS)
    remember(care, update_record(after, NodeEvent(kind="returned"), care.now, WEIGHTS))


def runs(care: Care, minutes: int, apart: float = 10.0, node: str = NODE, attempt: int = 5) -> None:
    """Let a job with its only rank on a node tell of its steps each minute, while the engine looks on."""
    view = care.state.jobs.setdefault((JOB, attempt), JobView(JOB, attempt))
    for _ in range(minutes):
        first = int(care.now // apart) + 1
        steps = [(step, step * apart) for step in range(first, int((care.now + 60.0) // apart) + 1)]
        placed = Placement(
            job=JOB, attempt=attempt, ranks=Members.of([0]), nodes=(node,), pids=(7,), at=care.now + 60.0
        )
        records: list[Record] = [placed]
        if steps:
            records.append(step_record(steps, job=JOB, attempt=attempt))
        at = care.now + 60.0
        view.take(Received(sequence=1, received_at=at, node=node, records=tuple(records), sent_at=at), records)
        care.turn(60.0)


def spares(care: Care) -> int | None:
    """Return how many spares the job has left."""
    with care.database.session() as session:
        known = fleet_facts.load_job_facts(session, JOB)
    assert known is not None
    return known.spares


def reported(care: Care) -> list[str]:
    """Return what the audit log has of nodes."""
    with care.database.session() as session:
        kinds = session.scalars(select(AuditEvent.kind).order_by(AuditEvent.sequence))
        return [kind for kind in kinds if kind.startswith("node_")]


def test_good_steps_are_counted_and_end_it(care: Care) -> None:
    """Half an hour of steps counts half an hour, to the last step; with a day of them the node is fit, which is reported once."""
    burns_in(care)
    runs(care, 30)
    half = record(care)
    assert half.stood_seconds == pytest.approx(1_800.0, abs=20)
    assert (half.burn_in, half.version) == ("burning_in", 1)  # nobody's ETag has changed

    remember(care, replace(half, stood_seconds=24 * HOUR_SECONDS - 300.0))
    runs(care, 6)
    assert record(care).burn_in == "healthy"
    assert record(care).history[-1].kind == "burn_in_passed"
    runs(care, 3)
    assert reported(care) == ["node_fit"]


def test_idle_hours_and_other_nodes_count_nothing(care: Care) -> None:
    """A day without a job, and a while of a job elsewhere: nothing is counted; nor is a pause of half an hour."""
    burns_in(care)
    care.turn(24 * HOUR_SECONDS)
    runs(care, 20, node="gpu-0003", attempt=4)
    assert record(care).stood_seconds == 0.0

    runs(care, 5)
    before = record(care).stood_seconds
    assert before > 200.0
    care.turn(1_800.0)
    runs(care, 2)
    assert record(care).stood_seconds < before + 180.0


def test_steps_are_counted_once(care: Care) -> None:
    """A proposer that was killed and begins anew counts on from where the one before was, not from the beginning."""
    burns_in(care)
    runs(care, 10)
    before = record(care).stood_seconds
    care.begin()
    care.turn(0.0)
    assert record(care).stood_seconds == before
    care.begin()
    runs(care, 5)
    assert record(care).stood_seconds == pytest.approx(before + 300.0, abs=20)


def test_a_fast_job_counts_like_a_slow_one(care: Care) -> None:
    """More steps a minute than the engine keeps count no less: what lies between was not idle."""
    burns_in(care)
    runs(care, 10, apart=0.1)
    assert record(care).stood_seconds == pytest.approx(600.0, abs=60)


@pytest.mark.parametrize("shown", ["verdict", "hardware"])
def test_trouble_begins_the_hours_anew(care: Care, shown: str) -> None:
    """A verdict that would take the node out, or an event of its hardware: no hour counts, until that is closed."""
    burns_in(care)
    runs(care, 10)
    id = _seeded(care, shown)
    runs(care, 2)
    shaken = record(care)
    assert (shaken.stood_seconds, shaken.history[-1].kind) == (0.0, "trouble")
    assert shaken.history[-1].note.startswith(f"{id}: ")
    assert shaken.log_odds == pytest.approx(record(care).log_odds)

    runs(care, 5)
    assert (record(care).stood_seconds, reported(care)) == (0.0, ["node_troubled"])
    with care.database.transaction() as session:
        session.get_one(Incident, id).closed_at = care.now
    runs(care, 5)
    assert record(care).stood_seconds > 200.0
    assert reported(care) == ["node_troubled"]


def test_trouble_of_others_is_none_of_it(care: Care) -> None:
    """A verdict that would take another node of the same job out leaves the hours as they are."""
    burns_in(care)
    runs(care, 10)
    seed(care.database, "inc-000000000009", at=care.now, verdicts=[verdict(node="gpu-0003")])
    runs(care, 5)
    assert record(care).stood_seconds > 800.0
    assert reported(care) == []


def test_an_undone_eviction_ends_in_a_burn_in(care: Care) -> None:
    """Taken out, and taken back before anything was seen of it: under burn-in, and nothing speaks against it."""
    hung(care.database)
    id = care.completed()
    let(care.remedies, AskUndo(id=id, by="ann", reason="it was the switch"), Take(id=id, by="slurm"),
        Begin(id=id, by="slurm", token=2), Complete(id=id, by="slurm", token=2, did={}), now=care.now)  # fmt: skip
    care.turn()

    found = record(care)
    assert (found.burn_in, found.evictions, found.log_odds) == ("burning_in", (), 0.0)
    assert [line.kind for line in found.history] == ["returned"]


def test_a_node_that_a_job_runs_on_is_back(care: Care) -> None:
    """It was resumed by hand, without a word: once a rank was placed on it, minutes after the eviction, its burn-in begins."""
    hung(care.database)
    care.completed()
    care.steps(care.now + 1.0, 12)
    care.turn(90.0)
    care.turn(60.0)
    assert record(care).is_out()
    assert reported(care) == []

    place(care.database, (NODE, "gpu-0004"), attempt=1, job="another", at=care.now)
    care.turn(60.0)
    assert (record(care).is_out(), record(care).burn_in, reported(care)) == (False, "burning_in", ["node_returned"])
    assert record(care).history[-1].note == "another runs on it"
    care.turn(60.0)
    assert reported(care) == ["node_returned"]


def test_a_node_under_burn_in_is_no_spare(care: Care) -> None:
    """Of two declared spares one is used by the eviction; undone, it is a spare again only after the burn-in."""
    hung(care.database)
    declare(care.database, spares=2)
    id = care.completed()
    place(care.database, ("gpu-0001", "gpu-0003", "gpu-0004"), attempt=2, at=care.now)
    care.turn()
    assert spares(care) == 1

    let(care.remedies, AskUndo(id=id, by="ann", reason="repaired"), Take(id=id, by="slurm"),
        Begin(id=id, by="slurm", token=2), Complete(id=id, by="slurm", token=2, did={}), now=care.now)  # fmt: skip
    assert spares(care) == 1
    care.turn()
    assert spares(care) == 1
    remember(care, update_record(record(care), NodeEvent(kind="probe_passed"), care.now, WEIGHTS))
    assert spares(care) == 2


def test_a_node_that_the_job_runs_on_again_uses_no_spare(care: Care) -> None:
    """Undone, the node is in the next attempt again: under burn-in, and the two spares are both there."""
    hung(care.database)
    declare(care.database, spares=2)
    id = care.completed()
    place(care.database, ("gpu-0001", "gpu-0003", "gpu-0004"), attempt=2, at=care.now)
    let(care.remedies, AskUndo(id=id, by="ann", reason="repaired"), Take(id=id, by="slurm"),
        Begin(id=id, by="slurm", token=2), Complete(id=id, by="slurm", token=2, did={}), now=care.now)  # fmt: skip
    care.turn()
    assert spares(care) == 1

    place(care.database, attempt=3, at=care.now)
    assert (record(care).burn_in, spares(care)) == ("burning_in", 2)


def test_the_past_of_a_node_is_in_the_proposal(care: Care) -> None:
    """A verdict of 0.97 evicts a node from a small job; one that was acquitted lately stays, and the job is tried again first."""
    trial = Trial(probability=0.5, began_at=care.now - 60, ended_at=care.now - 30, outcome="not_cured")
    remember(care, record_trial(NodeRecord(node=NODE), trial, WEIGHTS))
    hung(care.database)
    care.turn()

    assert care.only().kind == "reattempt"
    assert [other.nodes for other in care.only().alternatives if other.kind == "evict"] == [(NODE,)]


def _seeded(care: Care, shown: str) -> str:
    """Store an incident that shows the node at fault, of now."""
    if shown == "verdict":
        return seed(care.database, "inc-000000000009", at=care.now, verdicts=[verdict()])
    id = seed(care.database, "inc-000000000009", at=care.now, kind="hardware", verdicts=[])
    with care.database.transaction() as session:
        row = session.get_one(Incident, id)
        row.state = {**row.state, "symptoms": [{"kind": "hardware", "nodes": [NODE]}]}
    return id
