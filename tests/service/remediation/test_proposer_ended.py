"""A job that ends with its fault: what its verdict asks for is proposed, however late it is read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sqlalchemy import delete, select

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.remediation.guards import find_blockers
from service.store import timeline
from service.store.database import Database
from service.store.models import Downtime, Incident, Placement
from tests.support.incident_rows import AT, JOB, SYMPTOM, seed, verdict
from tests.support.postgres import SQLITE_FIRST
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import declare, place

pytestmark = pytest.mark.parametrize("url", SQLITE_FIRST, indirect=True)


def test_a_verdict_that_is_read_with_the_end_of_its_job_is_proposed(care: Care) -> None:
    """All processes ended between the verdict and the next look: the node is as bad as before, and the job does not run."""
    care.close("all 6 processes have ended", recovered=False)
    care.turn()

    one = care.only()
    assert (one.kind, one.nodes, one.status) == ("evict", ("gpu-0002",), "proposed")


def test_a_verdict_that_is_read_with_the_recovery_of_its_job_is_not(care: Care) -> None:
    """The job went on by itself in the meantime: nothing is proposed."""
    care.close("the job moves again", recovered=True)
    care.turn()

    assert care.all() == []


def test_a_person_who_says_wrong_in_the_meantime_is_heard(care: Care) -> None:
    """Judged, ended, and called wrong before anybody looked: the node that was named stays."""
    care.publish(verdict())
    care.say("wrong")
    care.close("all 6 processes have ended", recovered=False)
    care.turn()

    assert [one for one in care.all() if one.nodes] == []


def ended_outside(care: Care) -> None:
    """Close the incident as the engine does when its job was ended from outside."""
    care.close("all 6 processes have ended", recovered=False, ended="its processes were sent SIGTERM")


def restart(fault_class: str = "stuck_stack") -> Verdict:
    """Return a verdict that asks for a start of the job."""
    roots = (Root(root="r1", cause="code", fault_class=fault_class),)
    return replace(
        verdict(), cause="code", culprits=(Culprit(root="r1", kind="code", id="code", probability=0.9),), roots=roots,
        action=Action(kind="reattempt", why="it may pass"),
    )  # fmt: skip


def test_a_job_that_is_ended_from_outside_needs_nothing(care: Care) -> None:
    """Its owner stopped it while a proposal waited: that is withdrawn, and none follows."""
    care.publish(restart())
    care.turn()
    id = care.only().id
    ended_outside(care)
    care.turn()
    care.turn()

    assert care.all() == []
    assert "sent SIGTERM" in care.ended(id).because


def test_an_attempt_that_its_launcher_has_restarted_needs_nothing(care: Care, database: Database) -> None:
    """Its crash is reported, and nothing is proposed for a job that runs again: not even for a moment."""
    place(database, attempt=2, at=AT + 5.0)
    care.publish(restart())
    care.turn()

    assert care.all() == []
    assert care.counts.proposals == 0


@pytest.mark.parametrize(
    ("nodes", "declared", "left"),
    [
        (("stranger-1", "stranger-2"), (), 1),
        (("stranger-1", "gpu-0003"), (), 0),
        (("gpu-0007", "gpu-0008"), ("gpu-0007", "gpu-0008"), 0),
    ],
)
def test_only_an_attempt_that_goes_on_from_it_cancels_a_proposal(
    care: Care, database: Database, nodes: tuple[str, ...], declared: tuple[str, ...], left: int
) -> None:
    """Strangers that report a later attempt of a dead job cancel nothing; one of its nodes, or a declared one, does."""
    care.publish(restart())
    care.turn()
    if declared:
        declare(database, nodes=list(declared))
    place(database, nodes, attempt=2, at=AT + 5.0)
    care.turn()

    assert len(care.all()) == left


@pytest.mark.parametrize(
    ("nodes", "moved"), [(("stranger",), False), (("gpu-0002",), True), (("gpu-0002", "gpu-0009"), True)]
)
@pytest.mark.parametrize("attempt", [2, 99])
def test_a_strangers_attempt_of_a_small_job_blocks_nothing(
    care: Care, database: Database, nodes: tuple[str, ...], attempt: int, *, moved: bool
) -> None:
    """One node is half of a job of two: its later attempt, with steps and an incident, stands in the way of no approval."""
    with database.transaction() as session:
        session.execute(delete(Placement).where(Placement.node == "gpu-0003"))
    care.publish(restart())
    care.turn()
    id = care.only().id
    place(database, nodes, attempt=attempt, at=AT + 15.0)
    with database.transaction() as session:
        for cost in session.scalars(select(Downtime)):
            cost.first_good_at = cost.detected_at + 60.0
    book = care.remedies.state(care.now)
    codes = [one.code for one in find_blockers(book, book.remediations[id], care.now)]
    care.turn()

    assert ("moved" in codes) is moved
    assert [one.id for one in care.all()] == ([] if moved else [id])


def test_a_strangers_attempt_hides_no_restart(care: Care, database: Database) -> None:
    """The job's own next attempt withdraws the proposal, though a higher one is invented beside it."""
    care.publish(restart())
    care.turn()
    place(database, ("gpu-0001", "gpu-0002"), attempt=2, at=AT + 5.0)
    place(database, ("stranger-1", "stranger-2"), attempt=99, at=AT + 6.0)
    care.turn()

    assert care.all() == []


def test_a_strangers_attempt_takes_no_proposals_place(care: Care, database: Database) -> None:
    """What an invented attempt dies of asks for another start: the proposal for the job's own waits as before."""
    care.publish(restart())
    care.turn()
    id = care.only().id
    place(database, ("stranger",), attempt=99, at=AT + 5.0)
    seed(care.database, "inc-000000000002", at=care.now, nodes=("stranger",), verdicts=(verdict("stranger"),))
    with care.database.transaction() as session:
        invented = session.get_one(Incident, "inc-000000000002")
        invented.attempt = 99
        timeline.add(session, care.now, "published", "inc-000000000002", JOB, {"version": 1})
    care.turn()

    assert [one.id for one in care.all()] == [id]


def test_a_strangers_attempt_withdraws_no_proven_machine(care: Care, database: Database) -> None:
    """That its attempt is over is asked first, of a machine that a hardware event proves too."""
    care.publish(
        replace(verdict(), symptom="hardware", roots=(Root(root="r1", cause="machine", fault_class="gpu_lost"),))
    )
    care.turn()
    place(database, ("stranger-1", "stranger-2"), attempt=99, at=AT + 5.0)
    care.turn()

    assert (care.only().kind, care.only().status) == ("evict", "proposed")


def test_a_machine_that_a_hardware_event_proves_outlives_its_job(care: Care) -> None:
    """The next job on it would fail as well, whoever ended this one."""
    care.publish(
        replace(verdict(), symptom="hardware", roots=(Root(root="r1", cause="machine", fault_class="gpu_lost"),))
    )
    care.turn()
    ended_outside(care)
    care.turn()

    assert (care.only().kind, care.only().status) == ("evict", "proposed")


@pytest.mark.parametrize("fault_class", ["stuck_stack", "stopped"])
def test_a_machine_that_only_its_processes_suspect_does_not(care: Care, fault_class: str) -> None:
    """Without a job nothing is left to tell its machine from its code, or from a person who stopped a process."""
    care.publish(replace(verdict(), roots=(Root(root="r1", cause="machine", fault_class=fault_class),)))
    care.turn()
    ended_outside(care)
    care.turn()

    assert care.all() == []


def test_what_died_may_be_started_again_for_a_quarter_of_an_hour(care: Care) -> None:
    """A later start is its owner's."""
    care.publish(restart())
    care.turn()
    care.close("all 6 processes that were seen of the job have ended: 6 by signal 6", recovered=False)
    care.turn()
    soon = [one.status for one in care.all()]
    care.turn(900.0)
    care.turn()

    assert soon == ["proposed"]
    assert care.all() == []


def test_a_job_that_was_started_again_by_hand_needs_no_start(care: Care, database: Database) -> None:
    """Under the same name and attempt: its first step withdraws what was proposed for the run before."""
    care.publish(restart())
    care.turn()
    care.close("all 6 processes that were seen of the job have ended: 6 by signal 6", recovered=False)
    care.turn()
    soon = [one.status for one in care.all()]
    with database.transaction() as session:
        for cost in session.scalars(select(Downtime)):
            cost.first_good_at = cost.detected_at + 60.0
    care.turn()

    assert soon == ["proposed"]
    assert care.all() == []


def test_an_eviction_of_a_job_that_died_waits_no_longer(care: Care) -> None:
    """One of its processes was killed, whoever did that: after a quarter of an hour its job runs elsewhere, or not at all."""
    care.publish(
        replace(verdict(), symptom="crash", roots=(Root(root="r1", cause="machine", fault_class="process_killed"),))
    )
    care.turn()
    care.close("all 6 processes that were seen of the job have ended: 1 by signal 9", recovered=False)
    care.turn()
    soon = [(one.kind, one.status) for one in care.all()]
    care.turn(900.0)
    care.turn()

    assert soon == [("evict", "proposed")]
    assert care.all() == []


def test_wrong_withdraws_whatever_was_proposed(care: Care) -> None:
    """A restart names no node; a version that claims the same does not bring it back, one that claims something else does."""
    care.publish(restart())
    care.turn()
    id = care.only().id
    care.say("wrong")
    care.turn()
    first = care.ended(id).status
    care.publish(replace(restart(), missing=()))
    care.turn()
    again = care.all()
    care.publish(verdict("gpu-0003"))
    care.turn()

    assert (first, again) == ("cancelled", [])
    assert care.only().nodes == ("gpu-0003",)


def test_a_job_has_one_proposal_at_a_time(care: Care) -> None:
    """A second incident of the job asks for another node: the first proposal is withdrawn, with the reason."""
    care.turn()
    first = care.only().id
    seed(care.database, "inc-000000000002", at=care.now, verdicts=(verdict("gpu-0003"),))
    with care.database.transaction() as session:
        timeline.add(session, care.now, "published", "inc-000000000002", JOB, {"version": 1})
    care.turn()

    assert care.only().nodes == ("gpu-0003",)
    assert "one proposal a job" in care.ended(first).because


@pytest.mark.parametrize(("nodes", "stays"), [(("gpu-0001", "gpu-0002"), False), (("gpu-0001",), False), ((), True)])
def test_an_attempt_that_died_before_its_ranks_were_placed_was_a_start(
    care: Care, nodes: tuple[str, ...], *, stays: bool
) -> None:
    """The job was started again and fell at once: no placement is stored, but an incident is of that attempt."""
    care.publish(restart())
    care.turn()
    id = care.only().id
    care.close("all 6 processes that were seen of the job have ended: 6 by signal 6", recovered=False)
    with care.database.transaction() as session:
        row = Incident(
            id="inc-fedcba987654", kind="crash", job=JOB, attempt=2, opened_at=AT + 60.0, onset_at=AT + 60.0,
            nodes=list(nodes), state={"symptoms": [SYMPTOM], "after": 0, "nodes": list(nodes)},
        )  # fmt: skip
        session.add(row)
    care.turn()
    care.turn()

    assert [one.id for one in care.all()] == ([id] if stays else [])
