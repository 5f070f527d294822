"""What comes again: a newer verdict of the same plan, an answer that was lost, one that is late, a plan that was cancelled."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from service.remediation.events import (
    AddHold,
    Approve,
    AskUndo,
    Begin,
    Cancel,
    Complete,
    Fail,
    Proposed,
    Take,
    Tick,
)
from service.remediation.words import Hold, JobFacts, Remediation, Tally
from tests.test_remediation_step import AUTOMATIC, JOB, NODES, SHOWN, Desk, facts, plan


def proposed(one: Remediation) -> Proposed:
    """Return that a verdict comes to this plan."""
    return Proposed(incident=one.incident, plan=one)


def test_a_claim_outlives_a_newer_verdict_of_the_same_plan() -> None:
    """Version 3 is published between claim and execution and says the same: the claimant begins, on version 3."""
    desk = Desk()
    desk(proposed(plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm"))
    desk.book = replace(desk.book, facts=facts(newest_verdicts={"inc-1": 3}))
    assert desk.refuses(Begin(id="rem-1", by="slurm", token=1)).code == "hindered"

    desk(proposed(plan(verdict_version=3)))

    assert desk(Begin(id="rem-1", by="slurm", token=1)) == ["begun"]
    assert desk.one().verdict_version == 3


def test_a_claim_under_a_policy_ends_where_the_newer_verdict_does_not_pass_it() -> None:
    """The policy's approval goes with the claim: the claimant is fenced, and a person is asked."""
    desk = Desk(AUTOMATIC, tallies={"stuck": SHOWN})
    desk(proposed(plan()))
    desk(Take(id="rem-1", by="slurm"))

    assert desk(proposed(plan(verdict_version=3, probability=0.6))) == ["hindered"]
    assert (desk.one().status, desk.one().claim) == ("proposed", None)
    assert desk.refuses(Begin(id="rem-1", by="slurm", token=1)).code == "fenced"


def test_the_rule_that_fits_is_of_the_newest_class() -> None:
    """Version 2 was of a class that a rule approves, version 3 is of another: the approval does not outlive the class."""
    desk = Desk(replace(AUTOMATIC, fault_class="stopped"), tallies={"stuck": SHOWN})
    assert desk(proposed(plan(fault_class="stopped"))) == ["proposed", "approved"]

    assert desk(proposed(plan(verdict_version=3, fault_class="xid_79"))) == ["hindered"]
    assert (desk.one().status, desk.one().fault_class) == ("proposed", "xid_79")


def test_an_approval_does_not_outlive_the_record_of_its_rule() -> None:
    """Between two versions the rule's record became worse: what it approved before waits for a person."""
    desk = Desk(AUTOMATIC, tallies={"stuck": SHOWN})
    desk(proposed(plan()))
    desk.book = replace(desk.book, tallies={"stuck": Tally(seen=60, right=40)})

    assert desk(proposed(plan(verdict_version=3))) == ["hindered", "would_act"]
    assert desk.one().status == "proposed"


def test_a_persons_approval_of_what_a_policy_was_kept_from_is_the_persons() -> None:
    """A hold kept the policy from approving, ann approved: a less sure version takes nothing back from her."""
    desk = Desk(AUTOMATIC, tallies={"stuck": SHOWN})
    desk(AddHold(hold=Hold(id="h1", by="bob", reason="a test", made_at=0.0, until=9e9, node="gpu-3")))
    desk(proposed(plan()))
    assert desk.one().mode == "automatic"
    desk(Approve(id="rem-1", by="ann"))

    assert desk(proposed(plan(verdict_version=3, probability=0.6))) == []
    assert (desk.one().status, desk.one().approved_by) == ("approved", "ann")


def test_what_a_person_cancelled_no_policy_approves_again() -> None:
    """Ann cancels what a policy approved; the next version of the verdict proposes it again, and waits for her."""
    desk = Desk(AUTOMATIC, tallies={"stuck": SHOWN})
    desk(proposed(plan()))
    desk(Take(id="rem-1", by="slurm"))
    desk(Cancel(id="rem-1", by="ann", reason="I look at it"))

    assert desk(proposed(plan(verdict_version=3))) == ["proposed"]
    assert desk(Tick()) == []
    assert (desk.one().status, desk.one().mode) == ("proposed", "propose")
    assert "ann has cancelled it before" in desk.one().because
    assert desk(Approve(id="rem-1", by="ann")) == ["approved"]


@pytest.mark.parametrize(
    "ending", [Complete(id="rem-1", by="slurm", token=1), Fail(id="rem-1", by="slurm", token=1, reason="")]
)
def test_who_comes_after_the_lease_is_told_so(ending: Complete | Fail) -> None:
    """The lease ran out while it acted: what it says then is refused and not swallowed, as what it did is not noted."""
    desk = Desk()
    desk.executing()
    desk(Tick(), later=61.0)

    assert desk.refuses(ending).code == "fenced"


def test_an_undo_whose_lease_ran_out_is_not_done() -> None:
    """The undo was claimed and never completed in time: its late completion is refused, and it can be claimed again."""
    desk = Desk()
    desk(Complete(id="rem-1", by="slurm", token=desk.executing()))
    desk(AskUndo(id="rem-1", by="ann", reason="it was well"))
    desk(Take(id="rem-1", by="slurm", seconds=30.0))
    desk(Tick(), later=31.0)

    assert desk.refuses(Complete(id="rem-1", by="slurm", token=2)).code == "fenced"
    desk(Take(id="rem-1", by="slurm"))
    assert desk(Complete(id="rem-1", by="slurm", token=3)) == ["undone"]


def test_a_failed_undo_can_be_said_twice_and_is_no_success() -> None:
    """The same failure again is answered again; that it is complete after all is refused."""
    desk = Desk()
    desk(Complete(id="rem-1", by="slurm", token=desk.executing()))
    desk(AskUndo(id="rem-1", by="ann", reason="it was well"))
    desk(Take(id="rem-1", by="slurm"))
    failure = Fail(id="rem-1", by="slurm", token=2, reason="no answer")

    assert (desk(failure), desk(failure)) == (["undo_failed"], [])
    assert desk.refuses(Complete(id="rem-1", by="slurm", token=2)).code == "fenced"


def test_nodes_of_an_unknown_end_count_as_gone() -> None:
    """Nothing was seen of the job after its first eviction: its placements still show eight nodes, and seven are left."""
    desk = Desk()
    desk.book = replace(desk.book, facts=facts(jobs={JOB: JobFacts(nodes=NODES, attempt=1, minimum_nodes=7)}))
    desk(Complete(id="rem-1", by="slurm", token=desk.executing()))
    assert desk(Tick(), later=1_800.0) == ["verified"]
    desk(proposed(plan("rem-2", incident="inc-2", nodes=("gpu-5",))))
    desk(Approve(id="rem-2", by="ann"))

    assert "6 nodes would be left" in str(desk.refuses(Take(id="rem-2", by="slurm")))
