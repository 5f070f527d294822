"""Remediation in the store: one step at a time on both databases, whoever asks, with all that it tells."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from sqlalchemy import func, select, update
from sqlalchemy.exc import OperationalError

from analyzers.incidents.messages import Publish
from analyzers.model.incident import Cut
from analyzers.remediation.guards import find_blockers
from analyzers.remediation.messages import (
    AddHold,
    Approve,
    AskUndo,
    Begin,
    CloseBreaker,
    Complete,
    ExpireHold,
    Fail,
    Heartbeat,
    Proposed,
    RemediationRefused,
    RemediationTick,
    SetFreeze,
    Take,
    Verified,
)
from analyzers.remediation.types import (
    Alternative,
    Freeze,
    Hold,
    Limits,
    Policy,
    RemediationState,
)
from service.remediation import fleet_history, rows
from service.remediation.repository import RemediationRepository
from service.store import incidents, timeline
from service.store.database import Database
from service.store.models import Execution
from service.store.models import Remediation as Row
from tests.support.incident_rows import AT, JOB, verdict
from tests.support.remediation_fleet import ID, INCIDENT, hung, let, place, plan, refusal
from tests.support.stored_steps import APPROVED, NOW, PROPOSED, reported

BEGUN = (*APPROVED, Take(id=ID, by="slurm"), Begin(id=ID, by="slurm", token=1))
DONE = (*BEGUN, Complete(id=ID, by="slurm", token=1, did={"gpu-0002": "drained"}))


@pytest.fixture
def remedies(database: Database) -> RemediationRepository:
    """Return the remedies of a job of three nodes that hangs."""
    hung(database)
    return RemediationRepository(database)


def count(database: Database, table: Any) -> int:
    """Return how many rows a table has."""
    with database.session() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_a_life_is_stored_and_told(database: Database, remedies: RemediationRepository) -> None:
    """From proposal to completion: the row is the newest value, and audit log and timeline tell of each step once."""
    one = let(remedies, *DONE)
    kinds = [f"remediation_{kind}" for kind in ("proposed", "approved", "claimed", "begun", "completed")]

    with database.session() as session:
        row = session.get(Row, ID)
        taken = session.execute(select(Execution.remediation, Execution.nodes)).all()
    assert row is not None
    assert (row.status, row.task, row.version, row.nodes) == ("verifying", None, one.version, ["gpu-0002"])
    assert rows.parse_row(row) == one
    assert one.did == {"gpu-0002": "drained"}
    assert [tuple(each) for each in taken] == [(ID, ["gpu-0002"])]
    assert reported(database) == (kinds, [(INCIDENT, kind) for kind in kinds])


def test_a_refused_event_changes_nothing(database: Database, remedies: RemediationRepository) -> None:
    """A forged token, and a second approval: refused, and no row of any kind is there that was not before."""
    let(remedies, *APPROVED, Take(id=ID, by="slurm"))
    before = reported(database), remedies.state(NOW)

    assert refusal(remedies, Begin(id=ID, by="slurm", token=7)) == "fenced"
    assert refusal(remedies, Begin(id=ID, by="other", token=1)) == "fenced"
    assert refusal(remedies, Approve(id=ID, by="ann")) == "conflict"
    assert refusal(remedies, Approve(id="rem-000000000000", by="ann")) == "not_found"
    assert (reported(database), remedies.state(NOW)) == before


def test_a_rehearsal_changes_nothing(database: Database, remedies: RemediationRepository) -> None:
    """What an approval would come to is answered from a transaction that cannot write."""
    let(remedies, PROPOSED)
    book, done = remedies.rehearse(Approve(id=ID, by="ann"), NOW)

    assert book.remediations[ID].status == "approved"
    assert len(done) == 2
    assert remedies.state(NOW).remediations[ID].status == "proposed"
    assert reported(database)[0] == ["remediation_proposed"]


def test_a_check_sees_what_the_event_meets_and_can_stop_it(remedies: RemediationRepository) -> None:
    """What a check raises goes to the caller, and the event has not happened."""
    let(remedies, PROPOSED)

    def check(_session: object, book: RemediationState) -> None:
        raise LookupError(book.remediations[ID].version)

    with pytest.raises(LookupError, match="1"):
        remedies.handle(Approve(id=ID, by="ann"), NOW, check)
    assert remedies.state(NOW).remediations[ID].status == "proposed"


def test_what_cannot_be_told_is_not_done(remedies: RemediationRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that breaks at its very last row leaves no approval behind."""
    let(remedies, PROPOSED)

    def broken(*_arguments: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(timeline, "add", broken)
    with pytest.raises(OSError, match="full"):
        remedies.handle(Approve(id=ID, by="ann"), NOW)
    assert remedies.state(NOW).remediations[ID].status == "proposed"


def test_a_begin_that_is_repeated_counts_once(database: Database, remedies: RemediationRepository) -> None:
    """Whoever lost the answer begins again, and hears yes: the budget has one execution."""
    let(remedies, *BEGUN)
    remedies.handle(Begin(id=ID, by="slurm", token=1), NOW + 1.0)
    assert count(database, Execution) == 1


def test_executions_outlive_what_they_were_of(database: Database, remedies: RemediationRepository) -> None:
    """A budget of one node an hour keeps counting the execution when its remediation is done and forgotten."""
    let(remedies, *DONE)
    with database.transaction() as session:
        session.delete(session.get(Row, ID))
    strict = RemediationRepository(
        database, lambda: Policy(limits=Limits(evictions_an_hour=1, approval_seconds=7_200.0))
    )
    other = plan(id="rem-000000000002", nodes=("gpu-0003",))
    let(strict, Proposed(incident=INCIDENT, plan=other), Approve(id=other.id, by="ann"))

    found = find_blockers(strict.state(NOW), strict.state(NOW).remediations[other.id], NOW)
    assert [one.code for one in found] == ["budget"]
    assert refusal(strict, Take(id=other.id, by="slurm")) == "hindered"
    assert refusal(strict, Take(id=other.id, by="slurm"), NOW + 3_601.0) == ""


def test_an_undone_remediation_is_found_however_old(remedies: RemediationRepository) -> None:
    """What is done leaves the book, comes back for who asks for it, and stays while it is to be undone."""
    let(remedies, *DONE)
    let(remedies, RemediationTick(), now=NOW + 1_900.0)  # nothing was seen of the job
    late = NOW + 90 * 86_400.0
    assert remedies.state(late).remediations == {}
    assert remedies.state(late, ID).remediations[ID].status == "done"

    asked = let(remedies, AskUndo(id=ID, by="ann", reason="it was the switch"), now=late)
    assert asked.undo is not None
    assert set(remedies.state(late).remediations) == {ID}
    undone = let(
        remedies, Take(id=ID, by="slurm"), Complete(id=ID, by="slurm", token=2, did={"gpu-0002": "resumed"}), now=late
    )
    assert undone.status == "undone"
    assert remedies.state(late).remediations == {}


def test_what_ended_unclearly_stays_in_the_book_for_a_week(remedies: RemediationRepository) -> None:
    """Nodes of an unknown end may be out: whoever wants another of the job's sees them. A cured one leaves the book."""
    let(remedies, *DONE, Verified(id=ID, outcome="cured", why="it does steps again"))
    assert ID not in remedies.state(NOW + 600.0).remediations

    other = plan(id="rem-000000000002")
    let(
        remedies, Proposed(incident=INCIDENT, plan=other), Approve(id=other.id, by="ann"), Take(id=other.id, by="slurm")
    )
    let(remedies, Begin(id=other.id, by="slurm", token=1), Complete(id=other.id, by="slurm", token=1))
    let(remedies, Verified(id=other.id, outcome="unknown", why="nothing was seen of the job"))
    assert other.id in remedies.state(NOW + 600.0).remediations
    assert other.id not in remedies.state(NOW + 8 * 86_400.0).remediations


def test_a_claim_that_ran_out_fences_its_holder(remedies: RemediationRepository) -> None:
    """After its lease and a tick another scheduler has it with a higher token, and the first one is refused everything."""
    let(remedies, *APPROVED, Take(id=ID, by="slurm-a", seconds=60.0))
    let(remedies, RemediationTick(), now=NOW + 61.0)
    second = let(remedies, Take(id=ID, by="slurm-b"), now=NOW + 62.0)

    assert second.claim is not None
    assert second.claim.token == 2
    for event in (
        Heartbeat(id=ID, by="slurm-a", token=1),
        Begin(id=ID, by="slurm-a", token=1),
        Complete(id=ID, by="slurm-a", token=1),
        Fail(id=ID, by="slurm-a", token=1, reason="late"),
    ):
        assert refusal(remedies, event, NOW + 63.0) == "fenced"


def many(database: Database, jobs: int) -> list[str]:
    """Store approved evictions, each of a job of its own; return their ids."""
    remedies = RemediationRepository(database)
    found = []
    for number in range(jobs):
        job, nodes = f"job-{number}", (f"n{number}a", f"n{number}b")
        place(database, nodes, job=job)
        one = plan(id=f"rem-{number:012x}", incident=f"inc-{number:012x}", job=job, nodes=nodes[:1], verdict_version=0)
        let(remedies, Proposed(incident=one.incident, plan=one), Approve(id=one.id, by="ann"))
        found.append(one.id)
    return found


def claim(remedies: RemediationRepository, by: str, ids: list[str]) -> list[tuple[str, int]]:
    """Claim all that can be had; return the ids with their tokens. A database that is too busy is asked again."""
    had, asked = [], list(ids)
    while asked:
        try:
            one = let(remedies, Take(id=asked[0], by=by))
            assert one.claim is not None
            had.append((one.id, one.claim.token))
        except OperationalError:
            continue
        except RemediationRefused:
            pass
        asked.pop(0)
    return had


def claim_apart(url: str, by: str, ids: list[str], gate: Any, had: Any) -> None:
    """Claim from a process of its own."""
    database = Database(url)
    gate.wait()
    had.put(claim(RemediationRepository(database), by, ids))
    database.close()


def test_threads_never_share_a_claim(database: Database) -> None:
    """Four schedulers ask for five remediations at the same moment: each is claimed once."""
    ids, gate = many(database, 5), threading.Barrier(4)
    remedies = RemediationRepository(database)

    def run(number: int) -> list[tuple[str, int]]:
        gate.wait()
        return claim(remedies, f"slurm-{number}", ids)

    with ThreadPoolExecutor(4) as pool:
        had = [one for some in pool.map(run, range(4)) for one in some]
    assert sorted(had) == [(id, 1) for id in ids]


@pytest.mark.system
def test_processes_never_share_a_claim(url: str, database: Database) -> None:
    """Two processes ask for the same remediations from both ends: each is claimed once."""
    ids = many(database, 6)
    spawn = multiprocessing.get_context("spawn")
    gate, had = spawn.Barrier(2), spawn.Queue()
    orders = {"slurm-a": ids, "slurm-b": ids[::-1]}
    running = [spawn.Process(target=claim_apart, args=(url, by, order, gate, had)) for by, order in orders.items()]
    for process in running:
        process.start()
    found = [one for _ in running for one in had.get(timeout=60)]
    for process in running:
        process.join(60)

    assert sorted(found) == [(id, 1) for id in ids]


def test_steps_and_verdicts_do_not_wait_in_a_circle(database: Database, remedies: RemediationRepository) -> None:
    """While one thread publishes versions of the incident's verdict, as the engine does, another holds and proposes."""

    def publish() -> None:
        for version in range(3, 15):
            with database.transaction() as session:
                published = Publish(
                    incident=INCIDENT, version=version, cut=Cut(after=0, through=1, at=AT), verdict=verdict()
                )
                assert incidents.publish(session, published, AT)
                timeline.add(session, AT, "published", INCIDENT, JOB, {"version": version})

    def propose() -> None:
        for number in range(12):
            one = plan(id=f"rem-{number:012x}", verdict_version=99)
            remedies.handle(Proposed(incident=INCIDENT, plan=one), NOW)

    with ThreadPoolExecutor(2) as pool:
        for running in [pool.submit(publish), pool.submit(propose)]:
            running.result(60)
    assert len(remedies.state(NOW).remediations) == 1  # each took the place of the one before


def test_holds_freeze_and_breaker_are_kept(database: Database, remedies: RemediationRepository) -> None:
    """What was ordered is there for the next step, and gone when it is taken back; each change of a switch has a version."""
    hold = Hold(id="hold-1", by="ann", reason="burn-in", made_at=NOW, until=NOW + 60.0, node="gpu-0002")
    freeze = Freeze(by="bob", reason="maintenance", at=NOW)
    let(remedies, PROPOSED)
    remedies.handle(AddHold(hold=hold), NOW)
    remedies.handle(SetFreeze(freeze=freeze, by="bob", reason="maintenance"), NOW)
    book = remedies.state(NOW)
    with database.session() as session:
        versions = [rows.version_of(session, rows.FREEZE)]

    assert (book.holds, book.freeze) == ({"hold-1": hold}, freeze)
    assert [one.code for one in find_blockers(book, book.remediations[ID], NOW)] == ["frozen", "held"]

    remedies.handle(SetFreeze(freeze=None, by="bob", reason="over"), NOW)
    remedies.handle(ExpireHold(id="hold-1", by="ann"), NOW)
    with database.session() as session:
        versions.append(rows.version_of(session, rows.FREEZE))
    assert versions == [1, 2]
    assert (remedies.state(NOW).holds, remedies.state(NOW).freeze) == ({}, None)
    assert reported(database)[0][1:] == ["hold_added", "frozen", "thawed", "hold_expired"]


def test_a_hold_that_is_over_is_told_of_once(database: Database, remedies: RemediationRepository) -> None:
    """The tick after its time takes it away and says so; the next says nothing."""
    hold = Hold(id="hold-1", by="ann", reason="burn-in", made_at=NOW, until=NOW + 60.0, job=JOB)
    remedies.handle(AddHold(hold=hold), NOW)
    for seconds in (30.0, 61.0, 90.0):
        remedies.handle(RemediationTick(), NOW + seconds)
    assert reported(database)[0] == ["hold_added", "hold_expired"]


def test_the_breaker_stays_open_until_a_person_closes_it(database: Database) -> None:
    """Three nodes of three jobs open it; a day later it is open; once closed, what was taken before counts no more."""
    ids = many(database, 4)
    remedies = RemediationRepository(database)
    for id in ids[:3]:
        let(remedies, Take(id=id, by="slurm"), Begin(id=id, by="slurm", token=1))
    trip = remedies.state(NOW).trip

    assert trip is not None
    assert refusal(remedies, Take(id=ids[3], by="slurm")) == "hindered"
    remedies.handle(RemediationTick(), NOW + 86_400.0)
    assert remedies.state(NOW + 86_400.0).trip == trip
    remedies.handle(CloseBreaker(by="ann", reason="three bad cables"), NOW + 1.0)
    book = remedies.state(NOW + 2.0)
    assert (book.trip, book.breaker_closed_at) == (None, NOW + 1.0)
    assert reported(database)[0].count("breaker_tripped") == 1


def test_what_a_database_refuses_to_read_is_not_stored(database: Database, remedies: RemediationRepository) -> None:
    """A NUL in a role, a symptom, another plan's node or what a scheduler did is left out, and every load goes on."""
    odd = Alternative(kind="evict", nodes=("gpu\x00-0003",), role="roll\x00out", why="w\x00")
    ended = {"status": "done", "outcome": "unknown", "changed_at": NOW, "began_at": NOW}
    one = plan(
        role="roll\x00out", symptom="ha\x00ng", alternatives=(odd,), did={"gpu-0002": {"x\x00": ["\x00y"]}}, **ended
    )
    with database.transaction() as session:
        rows.write_remediation(session, one)
    read = remedies.state(NOW).remediations[ID]

    assert (read.role, read.symptom, read.did) == ("rollout", "hang", {"gpu-0002": {"x": ["y"]}})
    assert read.alternatives == (Alternative(kind="evict", nodes=("gpu-0003",), role="rollout", why="w"),)


def test_a_row_that_a_database_refuses_to_read_hides_no_other(
    database: Database, remedies: RemediationRepository
) -> None:
    """One is stored with a NUL all the same: it is found like one of which nobody knows what came, and so are the others."""
    ended = {"status": "done", "outcome": "unknown", "changed_at": NOW, "began_at": NOW}
    with database.transaction() as session:
        rows.write_remediation(session, plan(**ended))
        rows.write_remediation(session, plan(id="rem-0123456789ac", **ended))
        document = msgspec.to_builtins(plan(role="roll\x00out", **ended))
        session.execute(update(Row).where(Row.id == ID).values(document=document))
    with database.session() as session:
        fleet_history.read_failures(session, 0.0, NOW)

    assert set(remedies.state(NOW).remediations) == {ID, "rem-0123456789ac"}
