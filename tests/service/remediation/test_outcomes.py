"""What remediation leaves in the store: spares that are used up, nodes that two took out, failures, and what a cure proves."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import update

from analyzers.remediation.guards import find_blockers
from analyzers.remediation.messages import (
    Approve,
    AskUndo,
    Begin,
    Cancel,
    Complete,
    Fail,
    Proposed,
    RemediationEvent,
    RemediationRefused,
    RemediationTick,
    Take,
    Verified,
)
from analyzers.remediation.types import Policy, RemediationKind, Rule, Tally
from service.api.remediation_documents import document
from service.remediation import fleet_facts, node_records, outcomes, rows
from service.remediation.repository import RemediationRepository
from service.reports import remediations as telling
from service.store.database import Database
from service.store.models import Job, ShadowCase
from tests.support.incident_rows import AT, JOB
from tests.support.postgres import SQLITE_FIRST
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import ID, INCIDENT, NODES, declare, hung, let, place, plan

pytestmark = pytest.mark.parametrize("url", SQLITE_FIRST, indirect=True)

NOW = AT + 20.0
OTHER = "rem-000000000002"
EVAL = "eval"


@pytest.fixture
def remedies(database: Database) -> RemediationRepository:
    """Return the remedies of a job of three nodes that hangs."""
    hung(database)
    return RemediationRepository(database)


def done(id: str = ID) -> tuple[RemediationEvent, ...]:
    """Return how a plan is carried out once it was proposed."""
    events = (Approve(id=id, by="ann"), Take(id=id, by="slurm"), Begin(id=id, by="slurm", token=1))
    return (*events, Complete(id=id, by="slurm", token=1, did={"gpu-0002": "drained"}))


def spares(database: Database) -> int | None:
    """Return how many spares the job has left."""
    with database.session() as session:
        known = fleet_facts.load_job_facts(session, JOB)
    assert known is not None
    return known.spares


def test_a_spare_is_used_up_by_the_eviction_that_it_was_for(
    database: Database, remedies: RemediationRepository
) -> None:
    """Two spares were declared: the next attempt runs on one of them, and one is left, until two are declared anew."""
    declare(database, spares=2)
    let(remedies, Proposed(incident=INCIDENT, plan=plan()), *done())
    assert spares(database) == 2  # its nodes are still those of before: the guard counts it

    place(database, ("gpu-0001", "gpu-0003", "gpu-0004"), attempt=2, at=NOW + 30.0)
    let(remedies, Verified(id=ID, outcome="cured", why="ten good steps"), now=NOW + 100.0)
    assert spares(database) == 1
    with database.transaction() as session:
        session.execute(update(Job).values(declared_at=NOW + 200.0))
    assert spares(database) == 2


def test_spares_that_are_used_up_are_no_minimum(database: Database, remedies: RemediationRepository) -> None:
    """One spare, a minimum of three: the second eviction would leave two nodes, and is refused."""
    declare(database, spares=1, minimum_nodes=3)
    let(remedies, Proposed(incident=INCIDENT, plan=plan()), *done())
    place(database, ("gpu-0001", "gpu-0003", "gpu-0004"), attempt=2, at=NOW + 30.0)
    let(remedies, Verified(id=ID, outcome="cured", why="ten good steps"), now=NOW + 100.0)

    second = plan(id=OTHER, incident="inc-000000000002", nodes=("gpu-0003",), attempt=2)
    let(remedies, Proposed(incident=second.incident, plan=second), Approve(id=OTHER, by="ann"), now=NOW + 200.0)
    assert spares(database) == 0
    with pytest.raises(RemediationRefused, match="2 nodes would be left"):
        remedies.handle(Take(id=OTHER, by="slurm"), NOW + 200.0)


def test_a_hang_in_a_save_is_told_from_one_before_it(database: Database, remedies: RemediationRepository) -> None:
    """The hang began before its incident: within a save, which is none after ten minutes unless saves are slow, or before."""
    let(remedies, Proposed(incident=INCIDENT, plan=plan()), Approve(id=ID, by="ann"))
    found = []
    for since, usual in ((AT - 20.0, None), (AT - 20.0, 600.0), (AT - 5.0, None)):
        with database.transaction() as session:
            session.execute(update(Job).values(saving_since=since, save_seconds=usual))
        book = remedies.state(NOW + 700.0)
        found.append([one.code for one in find_blockers(book, book.remediations[ID], NOW + 700.0)])

    assert found == [[], ["saving"], ["saving"]]


def both_take_it_out(database: Database, remedies: RemediationRepository) -> None:
    """Let two jobs, which share a node, take it out one after the other."""
    place(database, ("gpu-0002", "gpu-0005"), job=EVAL)
    shared = replace(plan(), priced_tenants=(EVAL,))
    other = plan(id=OTHER, incident="inc-000000000002", job=EVAL, priced_tenants=(JOB,))
    let(remedies, Proposed(incident=INCIDENT, plan=shared), *done())
    let(remedies, Proposed(incident=other.incident, plan=other), *done(OTHER))


def undone(remedies: RemediationRepository, id: str, at: float = NOW) -> tuple[str, ...]:
    """Have one undone; return the nodes that this gave back."""
    let(remedies, AskUndo(id=id, by="ann", reason="it was well"), Take(id=id, by="slurm"), now=at)
    token = remedies.state(at, id).remediations[id].claims
    return let(remedies, Complete(id=id, by="slurm", token=token), now=at).give_back


def test_a_node_comes_back_with_the_last_that_took_it_out(database: Database, remedies: RemediationRepository) -> None:
    """The first undo leaves it out, as the other job still wants it out; the second gives it back."""
    both_take_it_out(database, remedies)

    assert undone(remedies, ID) == ()
    assert undone(remedies, OTHER) == ("gpu-0002",)


def test_who_undoes_reads_what_stays_out(database: Database, remedies: RemediationRepository) -> None:
    """Before it is asked for, and after: the document has what would come back, and its sentence names the node that stays."""
    both_take_it_out(database, remedies)

    book = remedies.state(NOW, ID)
    asked = document(book.remediations[ID], book, NOW)
    assert asked.give_back == ()
    assert "leave gpu-0002 out: another remediation" in telling.undoing(msgspec.to_builtins(asked))
    undone(remedies, ID)
    book = remedies.state(NOW, OTHER)
    alone = document(book.remediations[OTHER], book, NOW)
    assert alone.give_back == ("gpu-0002",)
    assert telling.undoing(msgspec.to_builtins(alone)).startswith("Give gpu-0002 back to the scheduler")
    some = msgspec.to_builtins(alone) | {"nodes": ["gpu-0002", "gpu-0003"]}
    assert "and leave gpu-0003 out, which another remediation" in telling.undoing(some)


def test_a_node_on_which_something_runs_again_is_out_no_more(
    database: Database, remedies: RemediationRepository
) -> None:
    """Somebody returned it by hand, and a job was placed on it since: the eviction of long ago keeps nothing out."""
    both_take_it_out(database, remedies)
    place(database, ("gpu-0002",), job="later", at=NOW + 3_600.0)
    with database.session() as session:
        assert fleet_facts.load_taken(session, {"gpu-0002"}) == {}


def test_a_failed_eviction_is_remembered_of_who_was_taken_out(database: Database) -> None:
    """It failed after the drain: the node was evicted, and is neither convicted nor acquitted by that."""
    care = Care(database)
    care.turn(0.0)
    hung(database)
    care.turn()
    id = care.only().id
    taken = (Approve(id=id, by="ann"), Take(id=id, by="slurm"), Begin(id=id, by="slurm", token=1))
    said = Fail(id=id, by="slurm", token=1, reason="requeue: timeout", did={"gpu-0002": "drained"})
    let(care.remedies, *taken, said, now=care.now)
    care.turn()

    with database.session() as session:
        record = node_records.read_record(session, "gpu-0002")
    assert (len(record.evictions), record.acquittals, record.burn_in) == (1, 0, "out")


def test_an_eviction_that_failed_at_its_beginning_is_remembered_of_nobody(database: Database) -> None:
    """The scheduler says that it drained nobody: the node was not away."""
    care = Care(database)
    care.turn(0.0)
    hung(database)
    care.turn()
    id = care.only().id
    taken = (Approve(id=id, by="ann"), Take(id=id, by="slurm"), Begin(id=id, by="slurm", token=1))
    let(care.remedies, *taken, Fail(id=id, by="slurm", token=1, reason="Slurm does not drain it"), now=care.now)
    care.turn()

    with database.session() as session:
        record = node_records.read_record(session, "gpu-0002")
    assert (record.evictions, record.burn_in) == ((), "healthy")


def test_a_cure_proves_what_was_done(database: Database) -> None:
    """gpu-0002 was evicted, and the job runs: a rule that would have done so was right, of the same otherwise nobody knows."""
    cure = plan(status="done", outcome="cured", out=("gpu-0002",), began_at=AT, because="ten good steps")
    wanted: dict[tuple[RemediationKind, tuple[str, ...]], bool | None] = {
        ("evict", ("gpu-0002",)): True, ("evict", ("gpu-0003",)): False, ("evict", ("gpu-0002", "gpu-0003")): False,
        ("reattempt", ()): False, ("drain_after_job", ("gpu-0002",)): None,
    }  # fmt: skip
    ids = {f"rem-{number:012x}": case for number, case in enumerate(wanted)}
    with database.transaction() as session:
        for id, (kind, nodes) in ids.items():
            outcomes.note_case(session, plan(id=id, kind=kind, nodes=nodes), AT)
        session.flush()
        outcomes.settle_cases(session, cure)
    with database.session() as session:
        assert {case: session.get_one(ShadowCase, id).correct for id, case in ids.items()} == wanted


def test_what_was_approved_and_done_to_others_proves_nothing(database: Database) -> None:
    """Of the two nodes that the rule named the scheduler took one out, and the job runs: its case stays open."""
    cure = plan(nodes=("gpu-0002", "gpu-0003"), status="done", outcome="cured", out=("gpu-0002",), began_at=AT)
    with database.transaction() as session:
        outcomes.note_case(session, cure, AT)
        session.flush()
        outcomes.settle_cases(session, cure)
    with database.session() as session:
        assert session.get_one(ShadowCase, ID).correct is None


def test_an_approval_ends_with_its_rule_in_the_store(database: Database) -> None:
    """A rule has approved it, and its file says "propose" now: the claim is refused, and the next tick asks a person."""
    hung(database)
    policy = Policy(rules=(Rule(name="hangs", mode="automatic", least_precision=0.8),))
    remedies = RemediationRepository(database, lambda: policy)
    with database.transaction() as session:
        for number in range(40):
            case = plan(id=f"rem-{number:012d}", incident=f"inc-{number:012d}", rule="hangs", mode="shadow")
            outcomes.note_case(session, case, AT)
            session.flush()
            session.execute(update(ShadowCase).values(closed_at=AT, correct=True))
    assert let(remedies, Proposed(incident=INCIDENT, plan=plan())).status == "approved"
    assert remedies.state(NOW).tallies == {"hangs": Tally(seen=40, right=40)}

    policy = Policy(rules=(Rule(name="hangs"),))
    with pytest.raises(RemediationRefused, match="is in mode propose now"):
        remedies.handle(Take(id=ID, by="slurm"), NOW)
    assert let(remedies, RemediationTick()).status == "proposed"


def test_many_events_are_read_for_once(
    database: Database, remedies: RemediationRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty proposals in one transaction load the book once, and each meets what those before it have left."""
    loads, real = [], rows.read_remediations

    def counted(*given: Any) -> Any:
        loads.append(len(given[2]))
        return real(*given)

    monkeypatch.setattr(rows, "read_remediations", counted)
    plans = [plan(id=f"rem-{number:012x}", nodes=(NODES[number % 3],)) for number in range(20)]
    with database.transaction() as session:
        remedies.all_within(session, [Proposed(incident=INCIDENT, plan=one) for one in plans], NOW)

    assert loads == [20]
    book = remedies.state(NOW, *(one.id for one in plans))
    statuses = [book.remediations[one.id].status for one in plans]
    assert statuses == ["cancelled"] * 19 + ["proposed"]


def test_what_is_refused_leaves_the_others(remedies: RemediationRepository, database: Database) -> None:
    """A cancel of what there is not, between two proposals: both are there."""
    other = plan(id=OTHER, incident="inc-000000000002", job="llama-70b")  # a job has one proposal at a time
    events: list[RemediationEvent] = [
        Proposed(incident=INCIDENT, plan=plan()), Cancel(id="rem-none", by="engine", reason=""),
        Proposed(incident=other.incident, plan=other),
    ]  # fmt: skip
    with database.transaction() as session:
        remedies.all_within(session, events, NOW)
    assert {one.id for one in remedies.state(NOW).remediations.values()} == {ID, OTHER}
