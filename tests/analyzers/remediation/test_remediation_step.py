"""The step of remediation: each way through its states, and each way in which it must not go."""

from __future__ import annotations

from typing import Any

import pytest

from analyzers.remediation.guards import find_blockers
from analyzers.remediation.messages import (
    AddHold,
    Approve,
    AskUndo,
    AuditEntry,
    Begin,
    Cancel,
    Complete,
    ExpireHold,
    Fail,
    Heartbeat,
    Proposed,
    Reject,
    RemediationEvent,
    RemediationRefused,
    RemediationTick,
    SetFreeze,
    Take,
    Verified,
)
from analyzers.remediation.step import step
from analyzers.remediation.types import (
    FleetFacts,
    Freeze,
    Hold,
    JobFacts,
    Limits,
    Policy,
    Remediation,
    RemediationState,
    Rule,
    Tally,
)

JOB = "llama-8b"
NODES = tuple(f"gpu-{number}" for number in range(8))
AUTOMATIC = Rule(name="stuck", mode="automatic", kind="evict", least_probability=0.9, least_precision=0.8)
SHOWN = Tally(seen=40, right=40)


def plan(id: str = "rem-1", **fields: Any) -> Remediation:
    """Return the plan to evict one node of the job."""
    reported: dict[str, Any] = {
        "incident": "inc-1", "verdict_version": 2, "job": JOB, "attempt": 1, "kind": "evict", "nodes": ("gpu-3",),
        "fault_class": "stopped", "symptom": "hang", "probability": 0.95, "why": "it is stopped", "proposed_at": 0.0,
    }  # fmt: skip
    return Remediation(id=id, **(reported | fields))


def facts(**fields: Any) -> FleetFacts:
    """Return a fleet of a hundred nodes with one job on eight of them."""
    known: dict[str, Any] = {"fleet_nodes": 100, "jobs": {JOB: JobFacts(nodes=NODES, attempt=1, minimum_nodes=4)}}
    return FleetFacts(**(known | fields))


class Desk:
    """A book, and the events that come to it one after the other."""

    def __init__(self, *rules: Rule, limits: Limits | None = None, **given: Any) -> None:
        self.book = RemediationState(policy=Policy(rules=rules, limits=limits or Limits()), facts=facts(), **given)
        self.now = 1_000.0
        self.reported: list[AuditEntry] = []

    def __call__(self, event: RemediationEvent, *, later: float = 1.0) -> list[str]:
        """Let an event happen some seconds later and return the kinds of what was reported."""
        self.now += later
        self.book, instructions = step(self.book, event, self.now)
        reported = [one for one in instructions if isinstance(one, AuditEntry)]
        self.reported += reported
        return [one.kind.removeprefix("remediation_") for one in reported]

    def refuses(self, event: RemediationEvent) -> RemediationRefused:
        """Return how an event is refused; the book is the same after it."""
        before = self.book
        with pytest.raises(RemediationRefused) as refused:
            self(event)
        assert self.book is before
        return refused.value

    def blockers(self, event: Take) -> list[str]:
        """Return the codes of what blocks a claim, which is refused for them."""
        assert self.refuses(event).code == "hindered"
        return [blocker.code for blocker in find_blockers(self.book, self.one(event.id), self.now)]

    def one(self, id: str = "rem-1") -> Remediation:
        """Return a remediation as it stands."""
        return self.book.remediations[id]

    def executing(self, id: str = "rem-1", **fields: Any) -> int:
        """Bring a plan as far as its execution and return the token under which it is executed."""
        self(Proposed(incident=fields.get("incident", "inc-1"), plan=plan(id, **fields)))
        self(Approve(id=id, by="ann"))
        self(Take(id=id, by="slurm"))
        token = self.one(id).claims
        self(Begin(id=id, by="slurm", token=token))
        return token


def test_the_straight_way_ends_in_a_cure() -> None:
    """Proposed, approved, claimed, begun, completed, verified: each is reported once."""
    desk = Desk()

    token = desk.executing()
    desk(Complete(id="rem-1", by="slurm", token=token, did={"gpu-3": "drained"}))
    desk(Verified(id="rem-1", outcome="cured", why="attempt 2 has done 10 steps"))

    assert [one.kind.removeprefix("remediation_") for one in desk.reported] == [
        "proposed", "approved", "claimed", "begun", "completed", "verified",
    ]  # fmt: skip
    assert (desk.one().status, desk.one().outcome, desk.one().did) == ("done", "cured", {"gpu-3": "drained"})


def test_nothing_happens_until_somebody_approves() -> None:
    """Without a policy a proposal cannot be claimed, and after four hours it expires."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))

    assert desk.refuses(Take(id="rem-1", by="slurm")).code == "conflict"
    assert desk(RemediationTick(), later=4 * 3_600.0) == ["expired"]


def test_an_automatic_rule_acts_only_after_shadow_mode_has_shown_it() -> None:
    """The same plan is approved by the policy with forty right of forty, and only noted with nineteen."""
    shown, unshown = (
        Desk(AUTOMATIC, tallies={"stuck": SHOWN}),
        Desk(AUTOMATIC, tallies={"stuck": Tally(seen=19, right=19)}),
    )

    assert shown(Proposed(incident="inc-1", plan=plan())) == ["proposed", "approved"]
    assert unshown(Proposed(incident="inc-1", plan=plan())) == ["proposed", "would_act"]
    assert shown.one().approved_by == "policy stuck"
    assert "20 are needed" in unshown.one().because


def test_a_policy_waits_for_what_hinders_it() -> None:
    """A held node is not approved; when the hold has run out, it is; it is reported once, not at every tick."""
    desk = Desk(AUTOMATIC, tallies={"stuck": SHOWN})
    desk(AddHold(hold=Hold(id="h1", by="ann", reason="a test runs", made_at=1_000.0, until=1_060.0, node="gpu-3")))

    assert desk(Proposed(incident="inc-1", plan=plan())) == ["proposed", "hindered"]
    assert desk(RemediationTick()) == desk(RemediationTick()) == []
    assert desk(RemediationTick(), later=60.0) == ["approved", "hold_expired"]


def test_a_second_claimant_is_refused_until_the_lease_has_run_out() -> None:
    """Two schedulers: the second comes in only after the first's lease, under a larger token; the first is fenced."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm-a", seconds=30.0))

    assert desk.refuses(Take(id="rem-1", by="slurm-b")).code == "conflict"
    assert desk(RemediationTick(), later=31.0) == ["released"]
    desk(Take(id="rem-1", by="slurm-b"))
    assert desk.refuses(Begin(id="rem-1", by="slurm-a", token=1)).code == "fenced"
    assert desk(Begin(id="rem-1", by="slurm-b", token=2)) == ["begun"]


def test_a_late_claimant_cannot_act_even_before_anybody_has_noticed() -> None:
    """The lease counts and not the tick: an hour later neither begin nor heartbeat nor complete is taken."""
    desk = Desk()
    token = desk.executing()
    desk.now += 3_600.0

    for event in (Heartbeat, Begin, Complete):
        assert desk.refuses(event(id="rem-1", by="slurm", token=token)).code == "fenced"


def test_a_heartbeat_keeps_the_lease() -> None:
    """With a heartbeat every 50 s a claim of 60 s lasts for ten minutes."""
    desk = Desk()
    token = desk.executing()

    for _ in range(12):
        desk(Heartbeat(id="rem-1", by="slurm", token=token), later=50.0)
        assert desk(RemediationTick(), later=0.0) == []
    assert desk(Complete(id="rem-1", by="slurm", token=token)) == ["completed"]


def test_a_scheduler_that_dies_while_it_acts_leaves_a_failure_that_can_be_undone() -> None:
    """Nobody begins it a second time; a person may have it undone."""
    desk = Desk()
    desk.executing()

    assert desk(RemediationTick(), later=61.0) == ["failed"]
    assert desk.refuses(Take(id="rem-1", by="slurm")).code == "conflict"
    assert desk(AskUndo(id="rem-1", by="ann", reason="look first")) == ["undo_asked"]
    desk(Take(id="rem-1", by="slurm"))
    assert desk(Complete(id="rem-1", by="slurm", token=2)) == ["undone"]


def test_a_lost_answer_is_given_again() -> None:
    """Begin and complete say the same twice under the same token, and are carried out once."""
    desk = Desk()
    token = desk.executing()

    assert desk(Begin(id="rem-1", by="slurm", token=token)) == []
    assert desk(Complete(id="rem-1", by="slurm", token=token)) == ["completed"]
    assert desk(Complete(id="rem-1", by="slurm", token=token)) == []
    assert len(desk.book.executions) == 1


def test_what_was_not_begun_can_be_withdrawn_and_what_was_cannot() -> None:
    """A claimed one is cancelled and its claimant fenced; an executing one has to be undone."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm"))

    assert desk(Cancel(id="rem-1", by="ann", reason="the job moves again")) == ["cancelled"]
    assert desk.refuses(Begin(id="rem-1", by="slurm", token=1)).code == "fenced"
    token = desk.executing("rem-2", incident="inc-2")
    assert token == 1
    assert desk.refuses(Cancel(id="rem-2", by="ann", reason="")).code == "conflict"


def test_a_rejected_plan_does_not_come_back_by_itself() -> None:
    """The next version of the verdict with the same plan leaves a person's no as it is."""
    desk = Desk(AUTOMATIC, tallies={"stuck": SHOWN}, freeze=Freeze(by="ann", reason="x", at=0.0))
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Reject(id="rem-1", by="ann", reason="it is my test"))
    desk(SetFreeze(freeze=None, by="ann", reason="done"))

    assert desk(Proposed(incident="inc-1", plan=plan(verdict_version=3))) == []
    assert desk.one().status == "rejected"


def test_a_newer_verdict_replaces_the_plan_of_the_older() -> None:
    """Another node is named: the first proposal is cancelled. Nobody is named: so is the second."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))

    assert desk(Proposed(incident="inc-1", plan=plan("rem-2", nodes=("gpu-4",)))) == ["cancelled", "proposed"]
    assert desk(Proposed(incident="inc-1", plan=None, why="the job moves again")) == ["cancelled"]
    assert {one.status for one in desk.book.remediations.values()} == {"cancelled"}


def test_what_a_policy_approved_has_to_pass_it_again() -> None:
    """A version that is less sure takes the policy's approval back; a person's stays."""
    desk, asked = Desk(AUTOMATIC, tallies={"stuck": SHOWN}), Desk()
    for one in (desk, asked):
        one(Proposed(incident="inc-1", plan=plan()))
    asked(Approve(id="rem-1", by="ann"))
    less = plan(verdict_version=3, probability=0.6)

    assert desk(Proposed(incident="inc-1", plan=less)) == ["hindered"]
    assert (desk.one().status, desk.one().approved_by) == ("proposed", "")
    assert asked(Proposed(incident="inc-1", plan=less)) == []
    assert asked.one().status == "approved"


def test_a_plan_that_comes_again_goes_on_counting_its_tokens() -> None:
    """A cancelled plan that is proposed anew gives a larger token: the old claimant stays fenced."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm"))
    desk(Proposed(incident="inc-1", plan=None, why="it moves"))
    desk(Proposed(incident="inc-1", plan=plan(verdict_version=4)))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm"))

    assert desk.one().claims == 2
    assert desk.refuses(Begin(id="rem-1", by="slurm", token=1)).code == "fenced"


def test_a_freeze_stops_everything_also_what_is_taken_back() -> None:
    """While it is frozen nothing is claimed or begun, an undo neither; afterwards it goes on."""
    desk = Desk()
    token = desk.executing()
    desk(Complete(id="rem-1", by="slurm", token=token))
    desk(AskUndo(id="rem-1", by="ann", reason="it was well"))
    desk(SetFreeze(freeze=Freeze(by="ann", reason="maintenance", at=desk.now), by="ann", reason="maintenance"))

    refused = desk.refuses(Take(id="rem-1", by="slurm"))
    assert refused.code == "hindered"
    assert "maintenance" in str(refused)
    desk(SetFreeze(freeze=None, by="ann", reason="over"))
    assert desk(Take(id="rem-1", by="slurm")) == ["claimed"]


def test_what_comes_up_between_claim_and_execution_stops_it() -> None:
    """A hold that is made after the claim keeps the execution from beginning."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk(Approve(id="rem-1", by="ann"))
    desk(Take(id="rem-1", by="slurm"))
    desk(AddHold(hold=Hold(id="h1", by="bob", reason="mine", made_at=0.0, until=9e9, job=JOB)))

    assert desk.refuses(Begin(id="rem-1", by="slurm", token=1)).code == "hindered"
    desk(ExpireHold(id="h1", by="bob"))
    assert desk(Begin(id="rem-1", by="slurm", token=1)) == ["begun"]


def test_without_news_of_the_job_the_outcome_is_unknown() -> None:
    """Half an hour after its completion it is done, and nobody is convicted or acquitted by a guess."""
    desk = Desk()
    token = desk.executing()
    desk(Complete(id="rem-1", by="slurm", token=token))

    assert desk(RemediationTick(), later=1_800.0) == ["verified"]
    assert (desk.one().status, desk.one().outcome) == ("done", "unknown")


def test_a_restart_cannot_be_undone() -> None:
    """A reattempt takes no node out: an undo is refused with that sentence."""
    desk = Desk()
    token = desk.executing(kind="reattempt", nodes=())
    desk(Complete(id="rem-1", by="slurm", token=token))

    assert "nothing to undo" in str(desk.refuses(AskUndo(id="rem-1", by="ann", reason="x")))


def test_a_failure_keeps_what_was_done_before_it() -> None:
    """What the scheduler did before it failed is there for the undo."""
    desk = Desk()
    token = desk.executing()

    desk(Fail(id="rem-1", by="slurm", token=token, reason="requeue: timeout", did={"gpu-3": "drained"}))
    assert (desk.one().status, desk.one().did, desk.one().because) == (
        "failed",
        {"gpu-3": "drained"},
        "requeue: timeout",
    )
    assert desk(AskUndo(id="rem-1", by="ann", reason="x")) == ["undo_asked"]
