"""The ladder in the engine: what is proposed for a job that fails again and again, through the real store."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy.exc import OperationalError

from analyzers.model.verdict import Action, Culprit, Root
from analyzers.remediation.messages import Cancel, Reject
from service.remediation import job_history
from service.remediation.repository import RemediationRepository
from service.store.models import Attempt, Downtime
from tests.support.failing_job import NOBODY, NODES, Job, either, job, names
from tests.support.incident_rows import JOB
from tests.support.remediation_fleet import let, place

__all__ = ["either", "job"]  # fixtures


def test_the_whole_ladder_of_a_hang_without_a_name(either: Job) -> None:
    """Restart, the commit that ran well, the groups of a replay, and then a person: each once, and each with its reason."""
    either.fails()
    either.stands()
    first = either.done()
    either.fails()
    either.stands()
    second = either.done()
    either.fails(code="a")
    either.stands()
    third = either.done({"bad": []})
    either.care.turn()
    either.care.turn()

    assert [first.kind, second.kind, third.kind] == ["reattempt", "rollback", "replay"]
    assert "a restart shows whether it passes" in first.why
    assert second.code_version == "a"
    assert (third.status, third.outcome) == ("done", None)
    assert third.replay is not None
    assert [group.nodes for group in third.replay.vertical] == [NODES[::2], NODES[1::2]]
    assert either.proposal() is None
    assert [why.endswith("a person must decide") for why in either.reported()] == [True]
    assert "reattempt, rollback, replay" in either.reported()[0]


def test_a_first_proof_is_planned_as_ever(job: Job) -> None:
    """Evidence that names a machine is the plan's: it compares with other options, and nothing of the ladder is in it."""
    job.fails(names("gpu-0002"))
    job.care.turn()

    assert (job.one().kind, job.one().nodes) == ("evict", ("gpu-0002",))
    assert "restarting on the same nodes" in job.one().why


def test_a_hang_is_not_restarted_before_it_lasts(job: Job) -> None:
    """Nobody is named: for ten minutes from its onset nothing is proposed, and an attempt that goes on needs nothing."""
    job.fails()
    job.care.turn()
    job.care.turn(560.0)
    before = job.proposal()
    job.ends("the job moves again", recovered=True)
    job.care.turn(60.0)

    assert before is None
    assert job.care.all() == []
    assert job.reported() == []


@pytest.mark.parametrize(
    ("ways", "acts"),
    [("4 by signal 6", True), ("3 by signal 15, 1 with exit code 1", True), ("4 with exit code 0", False),
     ("4 by signal 15", False), ("4 by signal 9", False), ("4 by signal 2", False), ("4 with exit code 130", False),
     ("1 by signal 1", False), ("4 in an unknown way", False)],
)  # fmt: skip
def test_only_what_died_is_started_again(job: Job, ways: str, acts: bool) -> None:
    """A hang that ends by its own timeout is started again; one that has done its work, or was stopped, is not."""
    job.fails()
    job.care.turn()
    job.ends(f"all 4 processes that were seen of the job have ended: {ways}")
    job.care.turn()

    assert [one.kind for one in job.care.all()] == (["reattempt"] if acts else [])


def test_a_job_that_came_back_by_itself_is_not_started_again(job: Job) -> None:
    """Its launcher was faster: a later attempt runs when the engine reads that the hung one has died."""
    job.fails()
    job.care.turn()
    job.ends("all 4 processes that were seen of the job have ended: 4 by signal 6")
    place(job.database, NODES, job.attempt + 1, at=job.care.now)
    job.care.turn()

    assert job.care.counts.proposals == 0


def test_a_job_that_makes_progress_is_left_alone(job: Job) -> None:
    """It is slow, or its losses are odd, and nobody is named: however long that lasts it is not restarted."""
    for kind in ("slow", "numeric"):
        job.fails(replace(NOBODY, symptom=kind), kind=kind)
        job.stands(3_000.0)

    assert job.care.all() == []


def test_the_network_acts_from_its_second_alert(job: Job) -> None:
    """A link that fails once is everyday life; twice in five minutes, and its node is checked, while the job goes on."""
    link = Culprit(root="r1", kind="node", id="gpu-0002", probability=0.5)
    network = replace(
        NOBODY, symptom="hardware", cause="network", abstained=False, culprits=(link,), action=Action(kind="probe")
    )
    job.fails(network, kind="hardware")
    job.stands(60.0)
    once = job.proposal()
    job.fails(network, kind="hardware")
    job.care.turn()
    at_first_sight = job.proposal()
    job.care.turn(20.0)

    assert (once, at_first_sight) == (None, None)
    assert (job.one().kind, job.one().nodes) == ("probe", ("gpu-0002",))
    assert "2 alerts of one node within 300 s" in job.one().why


def test_an_exception_everywhere_is_rolled_back_at_once(job: Job) -> None:
    """Every rank raised the same: the code that ran well is named without a restart before."""
    raised = replace(
        NOBODY, symptom="crash", cause="code", abstained=False, action=Action(kind="rollback"),
        roots=(Root(root="r1", cause="code", fault_class="exception_all_ranks"),),
        culprits=(Culprit(root="r1", kind="code", id="code", probability=0.9),),
    )  # fmt: skip
    job.fails(raised, kind="crash")
    job.care.turn()

    assert (job.one().kind, job.one().code_version) == ("rollback", "a")
    assert "every rank raised the same exception" in job.one().why


def test_code_that_never_ran_elsewhere_is_its_authors(job: Job) -> None:
    """Every rank raised the same, and no other code is known to have run well: a person is informed, once."""
    with job.database.transaction() as session:
        session.get_one(Attempt, (JOB, 1)).code_version = None
    raised = replace(
        NOBODY, symptom="crash", cause="code", abstained=False, action=Action(kind="rollback"),
        roots=(Root(root="r1", cause="code", fault_class="exception_all_ranks"),),
    )  # fmt: skip
    job.fails(raised, kind="crash")
    job.care.turn()
    job.says(raised)
    job.care.turn()

    assert job.care.all() == []
    assert [why.endswith("its authors must examine it") for why in job.reported()] == [True]


def test_what_was_rejected_is_not_proposed_again(job: Job) -> None:
    """Who rejects a restart decides about this attempt; in the next one the rung after it is asked for."""
    job.fails()
    job.stands()
    id = job.one().id
    let(job.care.remedies, Reject(id=id, by="ann", reason="I am in its debugger"), now=job.care.now)
    job.says(replace(NOBODY, missing=()))
    job.care.turn()
    same = job.proposal()
    job.fails()
    job.stands()

    assert same is None
    assert job.one().kind == "rollback"


def test_what_was_cancelled_does_not_come_back_by_time(job: Job) -> None:
    """A person takes back what waits: without a newer verdict nothing is proposed in its place."""
    job.fails()
    job.stands()
    let(job.care.remedies, Cancel(id=job.one().id, by="ann", reason="not now"), now=job.care.now)
    job.care.begin()
    job.stands(3_000.0)

    assert job.proposal() is None


def test_a_kill_over_what_time_brings_loses_nothing(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine dies when ten minutes are over, before it has proposed: the next one proposes, and once."""

    def killed(*_arguments: Any) -> None:
        raise SystemExit(9)

    job.fails()
    job.stands(500.0)
    with monkeypatch.context() as patch:
        patch.setattr(RemediationRepository, "all_within", killed)
        with pytest.raises(SystemExit):
            job.care.turn(100.0)
    before = job.proposal()
    job.care.begin()
    job.care.turn()
    job.care.turn()

    assert before is None
    assert (job.one().kind, job.one().version) == ("reattempt", 1)


def test_what_the_moment_refuses_is_tried_at_the_next_look(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is locked when ten minutes are over: the restart is proposed when it is not, and once."""

    def locked(*_arguments: Any) -> None:
        raise OperationalError("SELECT", {}, Exception("database is locked"))

    job.fails()
    job.care.turn()
    with monkeypatch.context() as patch:
        patch.setattr(job_history, "read_job_history", locked)
        job.care.turn(700.0)
        job.care.turn()
    before = job.proposal()
    job.care.turn()
    job.care.turn()

    assert before is None
    assert (job.one().kind, job.care.counts.proposals) == ("reattempt", 1)
    assert job.care.counts.failures == 0


def test_what_time_brings_breaks_alone(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """A past that breaks the ladder is counted and passed by; time goes on for everything else."""

    def broken(*_arguments: Any) -> None:
        raise RuntimeError("no past for this one")

    job.fails()
    job.care.turn()
    with monkeypatch.context() as patch:
        patch.setattr(job_history, "read_job_history", broken)
        for _ in range(8):
            job.care.turn(100.0)
    failures = job.care.counts.failures
    job.care.turn(100.0)

    assert failures == 2
    assert job.care.counts.failures == failures
    assert job.proposal() is None


def test_who_ran_well_in_between_begins_anew(job: Job) -> None:
    """An hour after the eviction the job fails in the same way: that is a new trouble, and proof evicts at once."""
    job.fails(names("gpu-0002"))
    job.care.turn()
    job.done()
    job.fails(names("gpu-0003"), ran_seconds=3_600.0)
    with job.database.transaction() as session:
        session.get_one(Downtime, job.incident).last_step = 500
    job.care.turn()

    assert (job.one().kind, job.one().nodes) == ("evict", ("gpu-0003",))
