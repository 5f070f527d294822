"""A restart of a role under the contract: its budget, holds, what was replaced meanwhile, and what a failed one blocks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.remediation.messages import AddHold, Approve, AskUndo, Begin, Fail, Proposed, Take
from analyzers.remediation.role_outcome import BACK_SECONDS, observe_role
from analyzers.remediation.role_restart import RoleFacts, RoleInstance, RoleRestart
from analyzers.remediation.types import Hold, JobFacts, Limits, Remediation
from tests.analyzers.remediation.test_remediation_step import JOB, NODES, Desk, facts, plan

RESTART = RoleRestart(instance="2", epochs={"2": 7}, nodes=("gpu-3",), leaves=("gpu-3",), onto={"gpu-3": "s0"}, step=40)


def restart(number: int = 1, **more: Any) -> Remediation:
    """Return the plan to restart rollout 2."""
    return plan(
        f"rem-{number}",
        incident=f"inc-{number}",
        kind="restart_role",
        nodes=(),
        role="rollout",
        role_restart=RESTART,
        **more,
    )


def begun(desk: Desk, number: int = 1) -> int:
    """Bring a restart as far as its execution; return its token."""
    one = restart(number)
    desk(Proposed(incident=one.incident, plan=one))
    desk(Approve(id=one.id, by="ann"))
    desk(Take(id=one.id, by="ray"))
    desk(Begin(id=one.id, by="ray", token=1))
    return 1


def test_it_counts_in_its_own_budget_and_in_no_other() -> None:
    """The third of an hour is blocked where two may be; no node counts as taken out, and there is nothing to undo."""
    desk = Desk(limits=Limits(role_restarts_an_hour=2))
    for number in (1, 2):
        desk(Fail(id=f"rem-{number}", by="ray", token=begun(desk, number), reason="no such actor"))
    desk(Proposed(incident="inc-3", plan=restart(3)))
    desk(Approve(id="rem-3", by="ann"))

    assert desk.blockers(Take(id="rem-3", by="ray")) == ["budget"]
    assert [one.nodes for one in desk.book.executions] == [(), ()]
    assert "nothing to undo" in str(desk.refuses(AskUndo(id="rem-1", by="ann", reason="why not")))
    begun(patient := Desk(limits=Limits(role_restarts_an_hour=1)))
    patient(Fail(id="rem-1", by="ray", token=1, reason="no such actor"))
    patient(Proposed(incident="inc-2", plan=restart(2)), later=3_600.0)
    patient(Approve(id="rem-2", by="ann"))
    assert patient(Take(id="rem-2", by="ray")) == ["claimed"]


def test_a_hold_of_the_node_it_leaves_or_goes_to_blocks_it() -> None:
    """A person works there."""
    for node in ("gpu-3", "s0"):
        desk = Desk()
        desk(Proposed(incident="inc-1", plan=restart()))
        desk(Approve(id="rem-1", by="ann"))
        desk(AddHold(hold=Hold(id="h1", by="bob", reason="a test", made_at=0.0, until=9e9, node=node)))
        assert desk.blockers(Take(id="rem-1", by="ray")) == ["held"]


def test_what_was_replaced_meanwhile_is_not_restarted() -> None:
    """Its job, or a person, was faster: the instance under the higher epoch has not failed. Another one's epoch is no reason."""
    for epochs, blocked in (({"2": 8}, True), ({"2": 7, "3": 9}, False)):
        desk = Desk()
        known = JobFacts(nodes=NODES, attempt=1, epochs={"rollout": epochs})
        desk.book = replace(desk.book, facts=facts(jobs={JOB: known}))
        desk(Proposed(incident="inc-1", plan=restart()))
        desk(Approve(id="rem-1", by="ann"))
        if blocked:
            assert desk.blockers(Take(id="rem-1", by="ray")) == ["moved"]
        else:
            assert desk(Take(id="rem-1", by="ray")) == ["claimed"]


def test_a_failed_restart_blocks_no_other_step() -> None:
    """What it may have started late registers under an epoch, so that the next step waits for nothing."""
    desk = Desk()
    desk(Fail(id="rem-1", by="ray", token=begun(desk), reason="no such actor"))
    desk(Proposed(incident="inc-1", plan=plan("rem-9", kind="restart_job", nodes=())))
    desk(Approve(id="rem-9", by="ann"))

    assert desk(Take(id="rem-9", by="slurm")) == ["claimed"]


def seen(**more: Any) -> RoleFacts:
    """Return rollout 2 as it is after its restart, beside a trainer that has done 42 steps."""
    rollout = RoleInstance(**({"role": "rollout", "instance": "2", "epoch": 9, "weights": 41} | more))
    return RoleFacts(instances=(rollout, RoleInstance(role="trainer", instance="0", epoch=1, weights=42)))


def outcome(now: float = 10.0, restart: RoleRestart = RESTART, *, troubled: bool = False, **more: Any) -> str:
    """Return what is said of rollout 2 after its restart."""
    found = observe_role("rollout", restart, seen(**more), 0.0, now, troubled=troubled)
    return "unknown yet" if found is None else found[0]


def test_it_is_cured_when_it_is_back_and_works() -> None:
    """Under a higher epoch, with newer weights than the job had; one without weights by what the job does with it."""
    assert outcome() == "cured"
    assert outcome(weights=None) == "cured"  # a reward: the job has done two steps since
    assert outcome(state="left", weights=None) == "cured"  # the job has ended
    assert outcome(epoch=7) == "unknown yet"
    assert outcome(weights=40) == "unknown yet"
    assert outcome(epoch=7, now=BACK_SECONDS) == outcome(weights=40, now=BACK_SECONDS, troubled=True) == "not_cured"
    assert outcome(state="lost") == "not_cured"
    assert outcome(epoch=7, state="lost") == "unknown yet"  # the old one: it is fenced


def test_it_is_not_cured_before_work_of_it_was_seen() -> None:
    """By its own counters where it has any. Weights that it began with are its checkpoint's; unknown steps show nothing."""
    assert outcome(worked=False) == "unknown yet"  # it has the newest weights, and has generated nothing
    assert outcome(worked=True, weights=40) == "cured"
    assert outcome(weights=43, first_weights=43) == "unknown yet"  # the job went on before it was restarted
    assert outcome(weights=44, first_weights=43) == "cured"
    blind = RoleRestart(instance="2", epochs={"2": 7})  # nobody stated a step
    assert outcome(restart=blind, weights=None) == outcome(restart=blind, weights=None, worked=False) == "unknown yet"
    assert outcome(restart=blind, weights=None, state="left") == "unknown yet"
    assert outcome(restart=blind, weights=None, worked=True) == "cured"
    assert outcome(restart=blind, weights=3, first_weights=2) == "cured"


def test_one_that_is_back_and_shows_no_work_has_failed_only_with_its_incident_open() -> None:
    """A step of twenty minutes shows nothing in ten; where the trouble lasts beside it, it was not cured."""
    for known in ({"worked": False}, {"weights": 40}, {"weights": 43, "first_weights": 43}):
        assert outcome(now=BACK_SECONDS, **known) == "unknown"
        assert outcome(now=BACK_SECONDS, troubled=True, **known) == "not_cured"


@pytest.mark.parametrize(
    ("more", "words"),
    [({"worked": True}, "registered and works"), ({}, "registered and works"),
     ({"weights": None}, "registered and the job has done steps since")],
)  # fmt: skip
def test_what_shows_that_it_is_cured_is_said(more: dict[str, Any], words: str) -> None:
    """Its own work, or no more than that the job goes on."""
    found = observe_role("rollout", RESTART, seen(**more), 0.0, 10.0)
    assert found is not None
    assert words in found[1]
