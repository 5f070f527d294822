"""Checks and replays in the engine: when they come before another machine leaves, and what they find leads to."""

from __future__ import annotations

from typing import Any

import pytest

from analyzers.remediation.messages import Approve, Begin, Complete, Fail, Reject, Take
from analyzers.remediation.types import Policy, Rule
from service.remediation import node_records
from tests.support.failing_job import Job, either, job, names
from tests.support.remediation_fleet import declare, let, refusal

__all__ = ["either", "job"]  # fixtures


@pytest.mark.system
def test_an_eviction_in_vain_is_followed_by_checks(either: Job) -> None:
    """The job fails again and the verdict names another: that one is checked first, and leaves because it fails its checks."""
    either.fails(names("gpu-0002"))
    either.care.turn()
    evicted = either.done({"gpu-0002": "drained"})
    either.fails(names("gpu-0003"))
    either.care.turn()
    checks = either.done({"gpu-0003": "failed"})
    either.care.turn()
    again = either.one()

    assert (evicted.kind, evicted.nodes) == ("evict", ("gpu-0002",))
    assert (checks.kind, checks.nodes, checks.status) == ("probe", ("gpu-0003",), "done")
    assert (again.kind, again.nodes) == ("evict", ("gpu-0003",))
    assert "gpu-0003" in again.why
    assert again.expected_loss_gpu_hours is not None
    assert again.probability > 0.97


def test_who_passes_its_checks_stays(job: Job) -> None:
    """The checks find nothing: no second machine leaves for this failure, and the job is started again."""
    job.fails_after_an_eviction()
    job.done({"gpu-0003": "passed"})
    job.care.turn()

    assert job.one().kind == "reattempt"


def test_checks_are_remembered_of_their_nodes(job: Job) -> None:
    """A node that failed is suspected from then on, one that passed is less so; both for weeks."""
    job.fails(names("gpu-0002"))
    job.care.turn()
    job.done()
    job.fails(names("gpu-0003", "gpu-0004"))
    job.care.turn()
    job.done({"gpu-0003": "failed", "gpu-0004": "passed"})
    job.care.turn()
    with job.database.session() as session:
        odds = [node_records.read_record(session, node).log_odds for node in ("gpu-0003", "gpu-0004")]

    assert odds[0] > 0 > odds[1]


@pytest.mark.system
def test_checks_that_nobody_can_make_are_passed_over(job: Job) -> None:
    """No scheduler claims the checks: when their approval has expired the job is started again without them."""
    job.fails_after_an_eviction()
    probe = job.one()
    let(job.care.remedies, Approve(id=probe.id, by="ann"), now=job.care.now)
    job.care.turn(1_801.0)
    job.care.turn()

    assert job.care.ended(probe.id).status == "expired"
    assert job.one().kind == "reattempt"


def test_nobody_leaves_while_checks_are_made(job: Job) -> None:
    """Checks have begun, and a newer verdict proves another node: it stays until they are over, and is proposed then."""
    job.fails_after_an_eviction()
    probe = job.one()
    claim: dict[str, Any] = {"id": probe.id, "by": "slurm"}
    let(job.care.remedies, Approve(id=probe.id, by="ann"), Take(**claim), Begin(**claim, token=1), now=job.care.now)
    job.says(names("gpu-0004"))
    job.care.turn()
    meanwhile = job.proposal()
    let(job.care.remedies, Complete(**claim, token=1, did={"gpu-0003": "failed"}), now=job.care.now)
    job.care.turn()

    assert meanwhile is None
    assert (job.one().kind, job.one().nodes) == ("evict", ("gpu-0003",))


@pytest.mark.system
def test_who_passed_and_is_proven_again_leaves(job: Job) -> None:
    """A check misses three faults in ten: the next failure proves the node again, and the plan takes it out."""
    job.fails_after_an_eviction()
    job.done({"gpu-0003": "passed"})
    job.care.turn()
    job.done()
    job.fails(names("gpu-0003"))
    job.care.turn()

    assert (job.one().kind, job.one().nodes) == ("evict", ("gpu-0003",))
    assert "expected to lose" in job.one().why


def test_rejected_checks_are_passed_over(job: Job) -> None:
    """A person wants no checks: the rung after them is proposed, and still waits for an answer."""
    job.fails_after_an_eviction()
    let(job.care.remedies, Reject(id=job.one().id, by="ann", reason="no tool for it"), now=job.care.now)
    job.care.turn()

    assert (job.one().kind, job.one().status) == ("reattempt", "proposed")


def test_a_rule_for_checks_is_automatic_at_once(job: Job) -> None:
    """It touches no job: what locks a rule for evictions does not lock it, and its bound on nodes holds."""
    checks = Rule(name="checks", mode="automatic", kind="probe", most_nodes=1)
    job.care.policy = Policy(rules=(checks, Rule(name="rest", mode="automatic")))
    job.fails(names("gpu-0002"))
    job.care.turn()
    locked = job.one().status
    job.done()
    job.fails(names("gpu-0003"))
    job.care.turn()

    assert locked == "proposed"
    assert [(one.kind, one.rule) for one in job.care.all() if one.status == "approved"] == [("probe", "checks")]


@pytest.mark.parametrize(
    "did",
    [{}, {"gpu-0003": "well"}, {"gpu-0003": "passed", "gpu-0001": "failed"}, {"gpu-0003": ["failed"]}, {"bad": []}],
)
def test_findings_that_say_too_little_or_too_much_are_refused(job: Job, did: dict[str, Any]) -> None:
    """Who checks one node says of that node, and of no other, that it passed or failed; what else is said changes nothing."""
    job.fails_after_an_eviction()
    one = job.one()
    claim: dict[str, Any] = {"id": one.id, "by": "slurm"}
    let(job.care.remedies, Approve(id=one.id, by="ann"), Take(**claim), Begin(**claim, token=1), now=job.care.now)

    assert refusal(job.care.remedies, Complete(**claim, token=1, did=did), job.care.now) == "conflict"
    assert refusal(job.care.remedies, Fail(**claim, token=1, reason="no such tool"), job.care.now) == ""


@pytest.mark.system
def test_a_replay_that_names_one_machine_evicts_it(job: Job) -> None:
    """The one node in both bad groups leaves; a list of nodes that is no group is refused."""
    job.fails()
    job.stands()
    job.done()
    job.fails()
    job.stands()
    job.done()
    job.fails(code="a")
    job.stands()
    job.done({"bad": [["gpu-0002", "gpu-0001"], ["gpu-0002", "gpu-0004"]]})
    job.care.turn()

    assert (job.one().kind, job.one().nodes) == ("evict", ("gpu-0002",))
    assert "lies in both bad groups of the replay" in job.one().why


@pytest.mark.system
def test_an_eviction_that_would_leave_too_few_is_a_persons(job: Job) -> None:
    """A node failed its checks, and the job needs all it has: nothing is proposed, and a person reads why."""
    job.fails(names("gpu-0002"))
    job.care.turn()
    job.done()
    declare(job.database, minimum_nodes=4, spares=0)
    job.fails(names("gpu-0003"))
    job.care.turn()
    job.done({"gpu-0003": "failed"})
    job.care.turn()

    assert job.proposal() is None
    assert ["the job needs 4" in why for why in job.reported()] == [True]
