"""Remediation while it is not certain what time it is, and after a clock that was ahead."""

from __future__ import annotations

from msgspec.structs import replace

from analyzers.remediation.messages import AddHold, Approve, AskUndo, Begin, Proposed, RemediationTick, Take
from analyzers.remediation.types import Hold
from tests.analyzers.remediation.test_remediation_step import AUTOMATIC, SHOWN, Desk, facts, plan

DAY = 86_400.0
DOUBT = "the wall clock was set"


def doubtful(desk: Desk, ahead: float) -> None:
    """Let a service start whose time is in doubt, and that much ahead."""
    desk.book.facts, desk.now = facts(clock_doubt=DOUBT), desk.now + ahead


def certain(desk: Desk, ahead: float) -> None:
    """Let the time be right again."""
    desk.book.facts, desk.now = facts(), desk.now - ahead


def test_in_doubt_nothing_expires_and_no_hold_ends() -> None:
    """A start 20 days ahead keeps the hold and the proposal, and both are as they were once the time is right."""
    desk = Desk()
    hold = Hold(id="h1", by="ann", reason="bench", made_at=desk.now, until=desk.now + 3_600.0, node="gpu-3")
    desk(AddHold(hold=hold))
    desk(Proposed(incident="inc-1", plan=plan()))
    doubtful(desk, 20 * DAY)

    assert desk(RemediationTick()) == []
    certain(desk, 20 * DAY)
    assert desk(RemediationTick()) == []
    assert (desk.one().status, set(desk.book.holds)) == ("proposed", {"h1"})
    desk(Approve(id="rem-1", by="ann"))
    assert desk.blockers(Take(id="rem-1", by="slurm")) == ["held"]


def test_in_doubt_no_rule_approves_and_no_scheduler_acts() -> None:
    """A rule that may act waits, and so does what a person approves; both go on afterwards."""
    desk = Desk(AUTOMATIC, tallies={"stuck": SHOWN})
    doubtful(desk, 0.0)
    desk(Proposed(incident="inc-1", plan=plan()))

    assert desk.one().status == "proposed"
    desk(RemediationTick())
    desk(Approve(id="rem-1", by="ann"))
    assert desk.blockers(Take(id="rem-1", by="slurm")) == ["clock"]
    certain(desk, 0.0)
    desk(Take(id="rem-1", by="slurm"))
    doubtful(desk, 0.0)
    assert desk.refuses(Begin(id="rem-1", by="slurm", token=1)).code == "hindered"


def test_in_doubt_what_was_begun_can_be_undone() -> None:
    """A claim that has run out ends all the same: its claimant is refused, and a person takes the node back."""
    desk = Desk()
    desk.executing()
    doubtful(desk, DAY)

    assert desk(RemediationTick()) == ["failed"]
    desk(AskUndo(id="rem-1", by="ann"))
    assert desk(Take(id="rem-1", by="slurm")) == ["claimed"]


def test_a_proposal_that_is_dated_ahead_is_not_approved() -> None:
    """What a clock that was ahead has dated would stay open for as long: it expires, and a newer verdict proposes it again."""
    desk = Desk()
    desk(Proposed(incident="inc-1", plan=plan()))
    desk.book.remediations["rem-1"] = replace(desk.one(), changed_at=desk.now + DAY)

    assert "ahead" in str(desk.refuses(Approve(id="rem-1", by="ann")))
    assert desk(RemediationTick()) == ["expired"]
