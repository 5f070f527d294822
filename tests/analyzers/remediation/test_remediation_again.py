"""What comes again: a newer verdict of the same plan, an answer that was lost, one that is late, a plan that was cancelled."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation.guards import find_blockers
from analyzers.remediation.messages import (
    AddHold,
    Approve,
    AskUndo,
    Begin,
    Cancel,
    Complete,
    Fail,
    Proposed,
    RemediationRefused,
    RemediationTick,
    Take,
)
from analyzers.remediation.types import Hold, JobFacts, Remediation, Tally
from tests.analyzers.remediation.test_remediation_step import AUTOMATIC, JOB, NODES, SHOWN, Desk, facts, plan


def proposed(one: Remediation) -> Proposed:
    """Return that a verdict comes to this plan."""
    return Proposed(incident=one.incident, plan=one)


@pytest.mark.parametrize("acted_on", [0, 3])
def test_what_no_later_attempt_answers_is_waited_for_half_an_hour(acted_on: int) -> None:
    """Nothing counts attempts, or their numbers began again: nobody saw what came of it, and then another may act."""
    desk = Desk()
    desk.book = replace(desk.book, facts=facts(jobs={JOB: JobFacts(nodes=NODES, attempt=0, minimum_nodes=4)}))
    token = desk.executing(attempt=acted_on, kind="restart_job", nodes=())
    desk(Complete(id="rem-1", by="slurm", token=token))
    desk(proposed(plan("rem-2", incident="inc-2", attempt=0)))
    desk(Approve(id="rem-2", by="ann"))

    assert desk.blockers(Take(id="rem-2", by="slurm")) == ["acting"]
    desk(RemediationTick(), later=1_800.0)
    desk(proposed(plan("rem-2", incident="inc-2", attempt=0)))
    desk(Approve(id="rem-2", by="ann"))
    assert (desk.one().status, desk.one().outcome) == ("done", "unknown")
    assert desk(Take(id="rem-2", by="slurm")) == ["claimed"]


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
    assert desk(RemediationTick()) == []
    assert (desk.one().status, desk.one().mode) == ("proposed", "propose")
    assert "ann" in desk.one().because
    assert desk(Approve(id="rem-1", by="ann")) == ["approved"]


@pytest.mark.parametrize(
    "ending", [Complete(id="rem-1", by="slurm", token=1), Fail(id="rem-1", by="slurm", token=1, reason="")]
)
def test_who_comes_after_the_lease_is_told_so(ending: Complete | Fail) -> None:
    """The lease ran out while it acted: what it says then is refused and not swallowed, as what it did is not noted."""
    desk = Desk()
    desk.executing()
    desk(RemediationTick(), later=61.0)

    assert desk.refuses(ending).code == "fenced"


def test_an_undo_whose_lease_ran_out_is_not_done() -> None:
    """The undo was claimed and never completed in time: its late completion is refused, and it can be claimed again."""
    desk = Desk()
    desk(Complete(id="rem-1", by="slurm", token=desk.executing()))
    desk(AskUndo(id="rem-1", by="ann", reason="it was well"))
    desk(Take(id="rem-1", by="slurm", seconds=30.0))
    desk(RemediationTick(), later=31.0)

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
    assert desk(RemediationTick(), later=1_800.0) == ["verified"]
    desk(proposed(plan("rem-2", incident="inc-2", nodes=("gpu-5",))))
    desk(Approve(id="rem-2", by="ann"))

    assert "minimum" in desk.blockers(Take(id="rem-2", by="slurm"))


def second(desk: Desk, id: str = "rem-2", **fields: Any) -> list[str]:
    """Return the codes of what keeps another eviction of the job from being claimed; empty: nothing, and it is."""
    desk(proposed(plan(id, **{"incident": "inc-2", "nodes": ("gpu-5",)} | fields)))
    desk(Approve(id=id, by="ann"))
    try:
        desk(Take(id=id, by="slurm"))
    except RemediationRefused:
        return [blocker.code for blocker in find_blockers(desk.book, desk.one(id), desk.now)]
    return []


def running(desk: Desk, attempt: int | None) -> None:
    """Let the job be seen in an attempt."""
    desk.book = replace(desk.book, facts=facts(jobs={JOB: JobFacts(nodes=NODES, attempt=attempt)}))


def test_one_attempt_is_acted_on_once() -> None:
    """Its eviction is complete and no later attempt is seen yet: another one of the same attempt waits, also in the end."""
    desk = Desk()
    desk(Complete(id="rem-1", by="slurm", token=desk.executing()))

    assert second(desk) == ["acting"]
    desk(RemediationTick(), later=3_600.0)
    assert desk.one().outcome == "unknown"
    assert second(desk, "rem-3") == ["acting"]


def test_a_later_attempt_may_be_acted_on() -> None:
    """Attempt 2 runs: what was done to attempt 1 is over, and a remediation of attempt 2 is claimed."""
    desk = Desk()
    desk(Complete(id="rem-1", by="slurm", token=desk.executing()))
    running(desk, 2)

    assert second(desk, attempt=2) == []


def test_a_failed_one_that_is_undone_stands_in_nobodys_way() -> None:
    """It may have restarted the job, or not: whoever looked and undid it has answered that."""
    desk = Desk()
    desk(Fail(id="rem-1", by="slurm", token=desk.executing(), reason="timeout", did={"gpu-3": "drained"}))
    assert second(desk) == ["acting"]

    desk(AskUndo(id="rem-1", by="ann", reason="I restart it"))
    desk(Take(id="rem-1", by="slurm"))
    desk(Complete(id="rem-1", by="slurm", token=2))

    assert desk(Take(id="rem-2", by="slurm")) == ["claimed"]


@pytest.mark.parametrize(
    ("kind", "attempt"), [("reattempt", 1), ("evict", None), ("restart_role", 1), ("reset_gpu", 1)]
)
def test_what_no_later_attempt_may_answer_is_waited_for_in_its_time(kind: str, attempt: int | None) -> None:
    """It failed and nothing can be undone, the job counts no attempts, or the same one goes on: half an hour, not for ever."""
    desk = Desk()
    running(desk, attempt)
    token = desk.executing(kind=kind, attempt=attempt, nodes=("gpu-3",) if kind in TAKES_NODES else ())
    desk(Fail(id="rem-1", by="slurm", token=token, reason="timeout"))

    assert second(desk, attempt=attempt) == ["acting"]
    desk(RemediationTick(), later=1_800.0)
    assert second(desk, "rem-3", attempt=attempt) == []


@pytest.mark.parametrize("kind", ["drain_after_job", "probe"])
def test_what_stops_no_attempt_lets_others_act_on_it(kind: str) -> None:
    """A drain that waits for the job's end, and a check, leave the attempt as it was."""
    desk = Desk()
    token = desk.executing(kind=kind)
    desk(Complete(id="rem-1", by="slurm", token=token, did={"gpu-3": "passed"}))

    assert second(desk) == []


@pytest.mark.parametrize(
    ("held", "node"),
    [("gpu-3.example", "gpu-3"), ("gpu-3", "gpu-3.example"), ("gpu-3.example", "gpu-3.example")],
)
def test_a_hold_is_of_the_node_whatever_it_is_called(held: str, node: str) -> None:
    """With its domain and without it is one machine, as for the scheduler."""
    desk = Desk()
    jobs = {JOB: JobFacts(nodes=("gpu-3", "gpu-3.example", *NODES), attempt=1)}
    desk.book = replace(desk.book, facts=facts(jobs=jobs))
    desk(AddHold(hold=Hold(id="h1", by="bob", reason="a test", made_at=0.0, until=9e9, node=held)))
    desk(proposed(plan(nodes=(node,))))
    desk(Approve(id="rem-1", by="ann"))

    assert desk.blockers(Take(id="rem-1", by="slurm")) == ["held"]


@pytest.mark.parametrize("held", ["gpu-3.other", "gpu-30", "gpu"])
def test_a_hold_of_another_node_holds_nothing(held: str) -> None:
    """Of two domains the node is another one, and a part of a name is no name."""
    desk = Desk()
    jobs = {JOB: JobFacts(nodes=("gpu-3.example", *NODES), attempt=1)}
    desk.book = replace(desk.book, facts=facts(jobs=jobs))
    desk(AddHold(hold=Hold(id="h1", by="bob", reason="a test", made_at=0.0, until=9e9, node=held)))
    desk(proposed(plan(nodes=("gpu-3.example",))))
    desk(Approve(id="rem-1", by="ann"))

    assert desk(Take(id="rem-1", by="slurm")) == ["claimed"]
