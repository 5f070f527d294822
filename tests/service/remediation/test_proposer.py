"""The engine's part in remediation: what verdicts come to, what time brings, what is learned when it is over."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import update

from analyzers.model.verdict import Root
from analyzers.remediation import approval, policy
from analyzers.remediation.messages import Approve, Cancel
from analyzers.remediation.types import Policy, Rule
from service.remediation import node_records
from service.reports.next_steps import first_of_all
from service.reports.remediations import loss
from service.store import timeline
from service.store.database import Database
from service.store.models import Incident, Node
from tests.support.incident_rows import JOB, seed, verdict
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import INCIDENT, let, place


def test_a_verdict_becomes_a_proposal_once(care: Care) -> None:
    """The published verdict is proposed with its version and loss; a second look, and a new process, propose nothing more."""
    care.turn()
    first = care.only()
    care.begin()
    care.turn()

    assert (first.status, first.kind, first.nodes) == ("proposed", "evict", ("gpu-0002",))
    assert (first.verdict_version, first.job, first.attempt, first.symptom) == (2, JOB, 1, "hang")
    assert first.expected_loss_gpu_hours is not None
    assert first.alternatives
    assert care.only() == first
    assert care.counts.proposals == 1
    assert care.counts.failures == 0


@pytest.mark.parametrize(("fault_class", "asks"), [("stopped", "who stopped"), ("process_killed", "who killed")])
def test_who_approves_is_asked_who_stopped_or_killed_it_first(care: Care, fault_class: str, asks: str) -> None:
    """In the words of the verdict's own page; a later version that shows another fault asks nothing."""
    shown = msgspec.structs.replace(verdict(), roots=(Root(root="r1", cause="machine", fault_class=fault_class),))
    care.publish(shown)
    care.turn()
    assert care.only().first == first_of_all(shown)
    assert care.only().first.startswith(f"First: {asks} the process?")

    care.publish(verdict())
    care.turn()
    assert (care.only().verdict_version, care.only().first) == (4, "")


def test_on_machines_without_a_gpu_no_gpu_hours_are_stated(care: Care) -> None:
    """Their agents found no GPU to read: the loss is in node hours, and no field has it as GPU hours."""
    reports = [{"name": "gpu", "runs": 3, "nothing": 3}]
    with care.database.transaction() as session:
        session.execute(update(Node).values(coverage={"collectors": reports}))
    care.turn()

    assert "node hours" in care.only().why
    assert "GPU hours" not in care.only().why
    every = (care.only(), *care.only().alternatives)
    assert {one.expected_loss_gpu_hours for one in every} == {None}
    hours = care.only().expected_loss_node_hours
    assert f"lose {hours:,.1f} node hours" in care.only().why
    assert any(one.expected_loss_node_hours for one in care.only().alternatives)
    assert loss(msgspec.to_builtins(care.only())) == f"{hours:,.1f} node hours"


def test_the_same_plan_of_a_later_version_is_the_same_remediation(care: Care) -> None:
    """Version 3 names the same node: the proposal rests on it now. Version 4 only wants it looked at: it is cancelled."""
    care.turn()
    before = care.only()
    care.publish(verdict())
    care.turn()
    after = care.only()

    assert (after.id, after.status, after.verdict_version) == (before.id, "proposed", 3)
    care.publish(verdict(action="probe"))
    care.turn()
    assert care.all() == []
    assert "probe" in care.ended(before.id).because


def test_a_job_that_goes_on_by_itself_needs_nothing(care: Care) -> None:
    """The engine closes the incident because the very attempt moves: what was approved meanwhile is cancelled."""
    care.turn()
    id = care.only().id
    let(care.remedies, Approve(id=id, by="ann"), now=care.now)
    care.close("the job moves again: it has done step 101", recovered=True)
    care.turn()

    one = care.ended(id)
    assert (one.status, one.because) == ("cancelled", "the job moves again: it has done step 101")


def test_the_end_of_a_hung_job_does_not_withdraw_the_proposal(care: Care) -> None:
    """All its processes were killed: the node is as bad as before, and the proposal stays until another attempt runs."""
    care.turn()
    care.close("all 6 processes have ended", recovered=False)
    care.turn()
    assert care.only().status == "proposed"

    place(care.database, attempt=2, at=care.now)
    care.turn()
    assert care.all() == []


def test_a_person_who_says_wrong_is_heard(care: Care) -> None:
    """The proposal is cancelled, and a newer version that names the node again does not bring it back."""
    care.turn()
    id = care.only().id
    care.say("wrong")
    care.turn()
    assert care.ended(id).status == "cancelled"
    care.publish(verdict())
    care.turn()
    assert care.all() == []


def test_a_person_is_heard_after_the_incident_was_closed(care: Care) -> None:
    """Its processes have ended and the approved eviction waits: the word "right" leaves it, "wrong" cancels it."""
    care.turn()
    id = care.only().id
    let(care.remedies, Approve(id=id, by="ann"), now=care.now)
    care.close("all 6 processes have ended", recovered=False)
    care.say("right")
    care.turn()
    assert care.only().status == "approved"
    care.say("wrong")
    care.turn()
    assert care.ended(id).status == "cancelled"


def test_what_a_person_cancelled_does_not_act_by_itself_for_another_incident(
    care: Care, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rule that acts by itself has approved it, ann cancels it, and a second incident of the attempt says the same."""
    monkeypatch.setattr(approval, "explain_lock", lambda *_: None)
    monkeypatch.setattr(policy, "explain_lock", lambda *_: None)
    care.policy = Policy(rules=(Rule(name="all", mode="automatic"),))
    care.turn()
    first = care.only()
    let(care.remedies, Cancel(id=first.id, by="ann", reason="not this machine"), now=care.now)
    seed(care.database, "inc-000000000002", at=care.now, verdicts=(verdict(),))
    care.turn()

    assert (first.status, first.mode) == ("approved", "automatic")
    assert care.all() == []


def test_what_the_fleet_explains_is_not_acted_upon(care: Care) -> None:
    """An incident of the infrastructure takes the job's in: nobody is evicted for it."""
    care.turn()
    with care.database.transaction() as session:
        row = session.get(Incident, INCIDENT)
        assert row is not None
        row.merged_into = "inc-ffffffffffff"
    care.tell("merged", into="inc-ffffffffffff")
    care.turn()
    assert care.all() == []


def test_time_ends_what_nobody_answers(care: Care) -> None:
    """Four hours without an answer: it has expired. The job still stands: it is proposed again, once for each expiry."""
    care.turn()
    id = care.only().id
    care.turn(4 * 3_600.0)
    assert care.ended(id).status == "expired"
    for _ in range(3):
        care.turn()

    assert (care.only().id, care.only().status) == (id, "proposed")
    assert care.counts.proposals == 2


def test_an_approval_that_nobody_carried_out_is_asked_for_again(care: Care) -> None:
    """The scheduler's adapter was away for half an hour: what ann approved is proposed to her again."""
    care.turn()
    id = care.only().id
    let(care.remedies, Approve(id=id, by="ann"), now=care.now)
    care.turn(1_800.0)
    assert care.ended(id).status == "expired"
    care.turn()

    assert (care.only().status, care.only().approved_by) == ("proposed", "")


def test_what_is_withdrawn_after_the_end_of_its_job_is_not_proposed_again(care: Care) -> None:
    """All its processes have ended and nobody starts it again: after a quarter of an hour nobody is asked any more."""
    care.turn()
    id = care.only().id
    care.close("all 6 processes have ended", recovered=False)
    care.turn()
    assert care.only().status == "proposed"
    care.turn(901.0)
    care.turn(4 * 3_600.0)
    care.turn()

    assert care.ended(id).status == "cancelled"
    assert care.all() == []


def test_steps_of_a_later_attempt_are_the_cure(care: Care) -> None:
    """Nine steps, or sixty steps in half a minute, prove nothing; ten in over a minute do, and weigh against the node."""
    id = care.completed()
    care.steps(care.now + 1.0, 9)
    care.turn(5.0)
    assert care.only().status == "verifying"
    care.steps(care.now + 10.0, 60, apart=0.5)
    care.turn(5.0)
    assert care.only().status == "verifying"
    care.steps(care.now + 60.0, 12)
    care.turn(150.0)

    one = care.ended(id)
    assert (one.status, one.outcome) == ("done", "cured")
    care.turn()
    with care.database.session() as session:
        record = node_records.read_record(session, "gpu-0002")
    assert len(record.evictions) == 1
    assert record.burn_in == "out"


def test_the_same_again_acquits_the_node(care: Care) -> None:
    """Attempt 2 hangs as attempt 1 did: it was not the node, which is remembered as acquitted."""
    id = care.completed()
    place(care.database, ("gpu-0001", "gpu-0003"), attempt=2, at=care.now)
    seed(care.database, "inc-000000000002", at=care.now + 30.0)
    with care.database.transaction() as session:
        session.get_one(Incident, "inc-000000000002").attempt = 2
    care.turn(60.0)

    one = care.ended(id)
    assert (one.status, one.outcome) == ("done", "not_cured")
    care.turn()
    with care.database.session() as session:
        assert node_records.read_record(session, "gpu-0002").acquittals == 1


def test_the_same_again_is_seen_where_nothing_counts_attempts(database: Database) -> None:
    """Agents tell attempt 0, before the eviction and after it: the younger hang is one of the restarted job."""
    care = Care(database)
    care.turn(0.0)
    place(database, attempt=0)
    for id in (INCIDENT, "inc-000000000002"):
        seed(database, id, at=care.now + 5.0)
        with database.transaction() as session:
            session.get_one(Incident, id).attempt = 0
        if id == INCIDENT:
            done = care.completed()
            care.close("all 6 processes have ended", recovered=False)
    care.turn(60.0)

    assert (care.ended(done).status, care.ended(done).outcome) == ("done", "not_cured")


def test_a_node_that_the_job_is_still_on_is_neither_convicted_nor_acquitted(care: Care) -> None:
    """Drained for after the job: its next steps prove nothing, and new trouble of the same attempt gets its own proposal."""
    care.publish(verdict(action="drain_after_job"))
    id = care.completed()
    assert care.only().kind == "drain_after_job"
    care.steps(care.now + 1.0, 12, attempt=1)
    seed(care.database, "inc-000000000002", at=care.now + 30.0)
    with care.database.transaction() as session:
        timeline.add(session, care.now, "published", "inc-000000000002", JOB, {"version": 2})
    care.turn(120.0)
    care.turn()

    assert care.ended(id).status == "verifying"
    assert [one.incident for one in care.all() if one.status == "proposed"] == ["inc-000000000002"]


def test_a_recovery_is_seen_whatever_else_was_said(care: Care) -> None:
    """The job goes on, and a person says something of it before the proposer looks: the proposal is cancelled."""
    care.turn()
    id = care.only().id
    care.close("the job moves again", recovered=True)
    care.say("unclear")
    care.turn()
    care.turn()

    assert care.ended(id).status == "cancelled"
    assert care.counts.remediations == 0


def test_the_old_attempts_own_end_is_no_relapse(care: Care) -> None:
    """An incident of the attempt that was stopped, opened by its stopping, decides nothing and is not acted upon."""
    care.completed()
    seed(care.database, "inc-000000000002", at=care.now + 3.0)
    care.turn(30.0)
    care.turn()
    assert care.only().status == "verifying"


def test_without_news_nothing_is_learned(care: Care) -> None:
    """Half an hour after its completion nothing was seen of the job: the outcome is unknown, and nobody is convicted."""
    id = care.completed()
    care.turn(1_801.0)
    care.turn()
    assert care.ended(id).outcome == "unknown"
    with care.database.session() as session:
        record = node_records.read_record(session, "gpu-0002")
    assert (record.acquittals, record.burn_in) == (0, "out")
