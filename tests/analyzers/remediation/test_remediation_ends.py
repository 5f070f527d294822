"""What ends a claim that could not begin, an approval of a rule, a save that hangs; and which nodes are out, and come back."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.remediation.messages import (
    Approve,
    AskUndo,
    Begin,
    Complete,
    Fail,
    Heartbeat,
    Proposed,
    RemediationRefused,
    RemediationTick,
    Take,
)
from analyzers.remediation.types import JobFacts, Limits, Policy, Rule
from tests.analyzers.remediation.test_remediation_step import AUTOMATIC, JOB, NODES, SHOWN, Desk, facts, plan


def test_a_claim_that_fails_before_it_began_is_tried_again_and_not_for_ever() -> None:
    """A scheduler that cannot begin gives it back: half a minute later others may, and after the third it has failed."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))

    for token in (1, 2):
        desk(Take(id="rem-1", by="slurm"))
        assert desk(Fail(id="rem-1", by="slurm", token=token, reason="no such job")) == ["released"]
        assert (desk.one().status, desk.one().approved_by) == ("approved", "ann")
        refused = desk.refuses(Take(id="rem-1", by="slurm"))
        assert (refused.code, "no such job" in str(refused)) == ("hindered", True)
        assert desk(RemediationTick(), later=30.0) == []
    desk(Take(id="rem-1", by="slurm"))
    assert desk(Fail(id="rem-1", by="slurm", token=3, reason="no such job")) == ["failed"]
    assert (desk.one().out, desk.one().outcome) == ((), None)


def test_who_says_what_it_did_before_it_began_is_not_tried_again() -> None:
    """It touched a node without having begun: nobody knows what else it does, and a person has to look."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm"))

    assert desk(Fail(id="rem-1", by="slurm", token=1, reason="requeue", did={"gpu-3": "drained"})) == ["failed"]
    assert desk.one().out == ("gpu-3",)
    assert desk(AskUndo(id="rem-1", by="ann", reason="x")) == ["undo_asked"]


@pytest.mark.parametrize(("did", "out"), [({}, ()), ({"gpu-3": "drained"}, ("gpu-3",))])
def test_a_failure_keeps_out_what_its_claimant_took_out(did: dict[str, Any], out: tuple[str, ...]) -> None:
    """Of two nodes one was drained before it failed: that one is out, and what came of it is unknown."""
    desk = Desk()
    token = desk.executing(nodes=("gpu-3", "gpu-4"))

    desk(Fail(id="rem-1", by="slurm", token=token, reason="scontrol: timeout", did=did))
    assert (desk.one().out, desk.one().outcome) == (out, "unknown")


def test_of_who_is_not_heard_any_more_everything_may_be_out() -> None:
    """The lease ran out while it acted: both nodes may be out."""
    desk = Desk()
    desk.executing(nodes=("gpu-3", "gpu-4"))

    desk(RemediationTick(), later=61.0)
    assert (desk.one().out, desk.one().outcome) == (("gpu-3", "gpu-4"), "unknown")
    assert desk.one().because.endswith("check, or undo it")


def test_a_heartbeat_leaves_what_a_person_saw_as_it_was() -> None:
    """The claim lasts longer and the ETag is the same: whoever decides about it is not refused for that."""
    desk = Desk()
    token = desk.executing()
    before = desk.one()

    desk(Heartbeat(id="rem-1", by="slurm", token=token), later=30.0)
    assert before.claim is not None
    assert desk.one() == replace(before, claim=replace(before.claim, until=desk.now + 60.0))


@pytest.mark.parametrize(
    "rules", [(), (replace(AUTOMATIC, mode="propose"),), (replace(AUTOMATIC, least_probability=0.99),)]
)
def test_an_approval_of_a_rule_ends_with_the_rule(rules: tuple[Rule, ...]) -> None:
    """The rule is gone, proposes only, or asks for more: nothing begins by it, and time brings it back to a person."""
    desk = Desk(AUTOMATIC, tallies={"stuck": SHOWN})
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Take(id="rem-1", by="slurm"))
    desk.book = replace(desk.book, policy=Policy(rules=rules))

    refused = desk.refuses(Begin(id="rem-1", by="slurm", token=1))
    assert (refused.code, "rule stuck" in str(refused)) == ("hindered", True)
    assert desk(RemediationTick()) == ["hindered"]
    assert (desk.one().status, desk.one().claim, desk.one().approved_by) == ("proposed", None, "")


def test_a_persons_approval_outlives_every_rule() -> None:
    """Ann has approved it: that the policy's rules are gone changes nothing."""
    desk = Desk(AUTOMATIC)
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk.book = replace(desk.book, policy=Policy())

    assert desk(RemediationTick()) == []
    assert desk(Take(id="rem-1", by="slurm")) == ["claimed"]


def test_an_undo_leaves_out_what_another_has_taken_out_as_well() -> None:
    """Two jobs lost gpu-3, and one of them gpu-4: the undo of that one gives back gpu-4, the other's then gives gpu-3."""
    desk = Desk()
    desk(Complete(id="rem-1", by="slurm", token=desk.executing(nodes=("gpu-3", "gpu-4"))))
    desk(AskUndo(id="rem-1", by="ann", reason="it was well"))
    desk.book = replace(desk.book, facts=facts(taken={"gpu-3": ("rem-1", "rem-2"), "gpu-4": ("rem-1",)}))

    desk(Take(id="rem-1", by="slurm"))
    assert desk.one().give_back == ("gpu-4",)
    desk.book = replace(desk.book, facts=facts(taken={"gpu-3": ("rem-1",), "gpu-4": ("rem-1", "rem-9")}))
    desk(Begin(id="rem-1", by="slurm", token=2))
    assert desk.one().give_back == ("gpu-3",)
    desk(Complete(id="rem-1", by="slurm", token=2))
    assert (desk.one().status, desk.one().out, desk.one().give_back) == ("undone", (), ("gpu-3",))


def test_nobody_takes_a_node_out_while_it_is_given_back() -> None:
    """While a scheduler gives gpu-3 back another job's eviction of it waits; of gpu-5 it does not."""
    desk = Desk()
    jobs = {JOB: JobFacts(nodes=NODES, attempt=1), "bert": JobFacts(nodes=NODES, attempt=1)}
    desk.book = replace(desk.book, facts=facts(jobs=jobs))
    desk(Complete(id="rem-1", by="slurm", token=desk.executing()))
    desk(AskUndo(id="rem-1", by="ann", reason="it was well"))
    desk(Take(id="rem-1", by="slurm"))

    with pytest.raises(RemediationRefused, match="gives gpu-3 back"):
        desk.executing("rem-2", incident="inc-2", job="bert")
    assert desk.executing("rem-3", incident="inc-3", job="bert", nodes=("gpu-5",)) == 1


@pytest.mark.parametrize(
    ("symptom", "onset", "usual", "seconds"),
    [
        ("hang", 900.0, None, 600.0), ("hang", 900.0, 60.0, 600.0), ("hang", 900.0, 500.0, 1_000.0),
        ("hang", 900.0, 1_200.0, 1_800.0), ("hang", 700.0, None, 1_800.0), ("crash", 900.0, None, 1_800.0),
    ],
)  # fmt: skip
def test_a_save_in_which_the_job_hangs_is_waited_for_twice_as_long_as_saves_take(
    symptom: str, onset: float, usual: float | None, seconds: float
) -> None:
    """Ten minutes at least and half an hour at most, since 800: a slow save is no hang, and a hang ends no save."""
    desk = Desk()
    job = JobFacts(nodes=NODES, attempt=1, saving_since=800.0, save_seconds=usual)
    desk.book = replace(desk.book, facts=facts(jobs={JOB: job}, onsets={"inc-1": onset}))
    desk(Proposed(incident="inc-1", plan=plan(symptom=symptom)))
    desk.now = 800.0 + seconds - 3.0
    desk(Approve(id="rem-1", by="ann"))

    assert desk.blockers(Take(id="rem-1", by="slurm")) == ["saving"]
    assert desk(Take(id="rem-1", by="slurm"), later=2.0) == ["claimed"]


def test_an_approval_ends_in_its_time_though_nobody_looked() -> None:
    """The engine was down overnight, and no tick came: eight hours later nobody claims by the approval of the evening."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk.now += 8 * 3_600.0

    refused = desk.refuses(Take(id="rem-1", by="slurm"))
    assert (refused.code, "approved 28,801 s ago" in str(refused)) == ("hindered", True)


def test_a_proposal_of_yesterday_is_not_approved() -> None:
    """Nobody answered within four hours, and no tick came to say so: a newer verdict has to propose it."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk.now += 4 * 3_600.0

    refused = desk.refuses(Approve(id="rem-1", by="ann"))
    assert (refused.code, "proposed 14,401 s ago" in str(refused)) == ("conflict", True)


def test_a_heartbeat_keeps_no_approval_alive() -> None:
    """Claimed at the last moment, and kept by heartbeats: it begins no later than the longest claim lasts, then it expires."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm", seconds=600.0), later=1_790.0)
    for _ in range(3):
        desk(Heartbeat(id="rem-1", by="slurm", token=1, seconds=600.0), later=200.0)
    desk.now += 10.0

    assert desk.refuses(Begin(id="rem-1", by="slurm", token=1)).code == "hindered"
    assert desk(RemediationTick()) == ["expired"]
    assert (desk.one().status, desk.one().claim) == ("expired", None)


def test_who_says_what_it_did_before_it_began_counts_as_having_begun() -> None:
    """It drained gpu-3 without asking: budget, breaker and the job's minimum count that node as any other that is out."""
    desk = Desk(limits=Limits(breaker_least_nodes=1, breaker_share=0.01))
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm"))

    reported = desk(Fail(id="rem-1", by="slurm", token=1, reason="requeue", did={"gpu-3": "drained"}))
    assert reported == ["failed", "breaker_tripped"]
    assert [(one.remediation, one.nodes) for one in desk.book.executions] == [("rem-1", ("gpu-3",))]
    assert (desk.one().began_at, desk.one().outcome) == (desk.now, "unknown")


def test_what_was_done_without_beginning_counts_in_the_minimum() -> None:
    """A node is out that nobody has reported missing: with seven as its minimum the job of eight keeps the others."""
    desk = Desk()
    desk.book = replace(desk.book, facts=facts(jobs={JOB: JobFacts(nodes=NODES, attempt=1, minimum_nodes=7)}))
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm"))
    desk(Fail(id="rem-1", by="slurm", token=1, reason="requeue", did={"gpu-3": "drained"}))
    desk(Proposed(incident="inc-2", plan=plan("rem-2", incident="inc-2", nodes=("gpu-5",))))
    desk(Approve(id="rem-2", by="ann"))

    assert "minimum" in desk.blockers(Take(id="rem-2", by="slurm"))
