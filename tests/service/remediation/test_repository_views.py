"""What a remediation step sees of jobs, attempts, tenants, the fleet and closed cases."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest
from sqlalchemy import update

from analyzers.incidents.messages import Publish
from analyzers.model.incident import Cut
from analyzers.remediation.guards import find_blockers
from analyzers.remediation.messages import (
    RemediationTick,
    Take,
)
from analyzers.remediation.types import (
    JobFacts,
    Policy,
    Rule,
    Tally,
)
from service.remediation import fleet_facts
from service.remediation.repository import RemediationRepository
from service.store import incidents
from service.store.database import Database
from service.store.models import Attempt, Job, Placement, ShadowCase
from service.store.models import Remediation as Row
from tests.support.incident_rows import AT, JOB, verdict
from tests.support.remediation_fleet import ID, INCIDENT, NODES, declare, hung, let, place, plan, refusal
from tests.support.stored_steps import APPROVED, NOW, PROPOSED


@pytest.fixture
def remedies(database: Database) -> RemediationRepository:
    """Return the remedies of a job of three nodes that hangs."""
    hung(database)
    return RemediationRepository(database)


def job_facts(database: Database, job: str = JOB) -> JobFacts:
    """Return what is known of a job."""
    with database.session() as session:
        found = fleet_facts.load_job_facts(session, job)
    assert found is not None
    return found


def test_a_job_is_seen_with_what_was_declared(database: Database) -> None:
    """Nodes and ranks come from placements, minimum, spares and holders from the declaration, a save from the engine."""
    place(database)
    declare(database, minimum_nodes=2, spares=1, checkpoint_holders={"gpu-0001": ["gpu-0002"]})
    with database.transaction() as session:
        session.execute(update(Job).values(saving_since=AT, last_checkpoint_at=AT - 60))

    assert job_facts(database) == JobFacts(
        nodes=NODES, attempt=1, gpus_per_node=2, minimum_nodes=2, spares=1, saving_since=AT,
        holders={"gpu-0001": ("gpu-0002",)}, last_checkpoint_at=AT - 60,
    )  # fmt: skip


def test_the_newest_attempt_is_where_a_job_runs(database: Database) -> None:
    """Attempt 2 runs on two nodes; within it a rank has moved, and its former node is of the job no more."""
    place(database)
    place(database, NODES[:2], attempt=2, at=AT + 60)
    assert job_facts(database).nodes == NODES[:2]
    with database.transaction() as session:
        for rank in (2, 3):
            here = {"job": JOB, "attempt": 2, "rank": rank, "node": "gpu-0009"}
            session.add(Placement(**here, first_seen_at=AT + 90, last_seen_at=AT + 90))
    assert job_facts(database).nodes == ("gpu-0001", "gpu-0009")


@pytest.mark.parametrize(
    ("nodes", "later_seconds", "newest"),
    [
        (("gpu-0002", "gpu-0003"), 0.0, 2),
        (("gpu-0003",), 0.0, 1),
        (("gpu-0003",), 430.0, 1),
        (("gpu-0003",), 1_800.0, 1),
        (("gpu-0003",), 1_810.0, 2),
    ],
)
def test_an_attempt_counts_when_half_as_many_nodes_tell_of_it(
    database: Database, nodes: tuple[str, ...], later_seconds: float, newest: int
) -> None:
    """Two of three nodes are enough; one alone is when nobody has reported the attempt before for half an hour."""
    place(database)
    place(database, nodes, attempt=2, at=AT + later_seconds)

    assert job_facts(database).attempt == newest
    with database.session() as session:
        assert fleet_facts.newest_attempt(session, JOB) == newest
        assert fleet_facts.newest_attempt(session, "nobody's") is None


@pytest.mark.parametrize(("later_seconds", "newest"), [(420.0, 3), (430.0, 0)])
def test_attempts_that_are_numbered_anew_count_once_the_old_are_silent(
    database: Database, later_seconds: float, newest: int
) -> None:
    """The job was submitted again and its attempts begin at 0; one agent tells of another all the time, and is not heard."""
    place(database, attempt=3)
    place(database, attempt=0, at=AT + later_seconds)
    place(database, NODES[:1], attempt=2_147_483_647, at=AT + later_seconds)
    assert job_facts(database).attempt == newest


def test_an_attempt_that_shrank_has_its_new_size(database: Database) -> None:
    """Where nothing counts attempts, ranks beyond the new world size are leftovers."""
    place(database)
    with database.transaction() as session:
        session.execute(update(Attempt).values(world_size=4))
    assert job_facts(database).nodes == NODES[:2]


def test_the_trainers_world_size_bounds_no_other_role(database: Database) -> None:
    """Two trainers and three rollouts, each counted from 0: the node that has only rollout 2 runs the job too."""
    place(database, NODES[:2])
    with database.transaction() as session:
        session.execute(update(Attempt).values(world_size=2))
        session.execute(update(Placement).values(role="trainer"))
        session.add(
            Placement(job=JOB, attempt=1, rank=2, role="rollout", node=NODES[2], first_seen_at=AT, last_seen_at=AT)
        )
    assert NODES[2] in job_facts(database).nodes


def test_tenants_are_who_runs_there_now(database: Database) -> None:
    """A job whose agents reported it a minute ago is a tenant; one that was last seen three minutes ago is none."""
    place(database)
    place(database, ("gpu-0002",), job="eval", at=AT - 60)
    place(database, ("gpu-0002",), job="old", at=AT - 180)
    with database.session() as session:
        assert fleet_facts.load_tenants(session, AT, ["gpu-0001", "gpu-0002"]) == {
            "gpu-0001": (JOB,),
            "gpu-0002": ("eval", JOB),
        }


def test_the_fleet_is_as_fresh_as_the_step(database: Database, remedies: RemediationRepository) -> None:
    """A newer verdict, and then a new attempt, hinder what was approved before them."""
    let(remedies, *APPROVED)
    codes = []
    for change in (
        partial(_newer_verdict, database),
        partial(place, database, NODES[:2], attempt=2),
    ):
        change()
        book = remedies.state(NOW)
        codes.append([one.code for one in find_blockers(book, book.remediations[ID], NOW)])
    assert codes == [["superseded"], ["superseded", "moved"]]
    assert refusal(remedies, Take(id=ID, by="slurm")) == "hindered"


def _newer_verdict(database: Database) -> None:
    with database.transaction() as session:
        published = Publish(
            incident=INCIDENT, version=3, cut=Cut(after=0, through=1, at=AT), verdict=verdict("gpu-0003")
        )
        assert incidents.publish(session, published, AT)


def test_a_row_of_a_newer_program_is_left_alone(database: Database, remedies: RemediationRepository) -> None:
    """What cannot be read is reported, and does not keep the others from going on."""
    let(remedies, PROPOSED)
    with database.transaction() as session:
        session.execute(update(Row).values(document={"id": ID, "kind": "teleport"}))
    assert remedies.state(NOW).remediations == {}
    remedies.handle(RemediationTick(), NOW)


def test_a_rule_is_judged_by_the_closed_cases_that_it_fits(database: Database) -> None:
    """Of six cases two were right and one wrong; one is open, one nobody has judged, one the rule does not fit any more."""
    rule = Rule(name="hangs", mode="automatic", least_probability=0.9)
    cases = (
        (0.95, AT, True), (0.99, AT, True), (0.99, AT, False), (0.99, None, True), (0.99, AT, None), (0.5, AT, False),
    )  # fmt: skip
    with database.transaction() as session:
        for number, (probability, closed_at, correct) in enumerate(cases):
            reported = {"probability": probability, "rule": "hangs", "mode": "shadow"}
            one = plan(id=f"rem-{number}", incident=f"inc-{number}", **reported)
            document = msgspec.to_builtins(one)
            case = {"remediation": one.id, "incident": one.incident, "at": AT, "document": document}
            session.add(ShadowCase(**case, closed_at=closed_at, correct=correct, because=""))
    book = RemediationRepository(database, lambda: Policy(rules=(rule,))).state(NOW)
    assert book.tallies == {"hangs": Tally(seen=3, right=2)}


def test_an_incident_counts_once_and_is_wrong_where_any_of_it_was(database: Database) -> None:
    """A rule would have done three things for one incident, all of them right, and two for another, of which one was."""
    with database.transaction() as session:
        for number, (incident, correct) in enumerate([("a", True)] * 3 + [("b", True), ("b", False)]):
            one = plan(id=f"rem-{number}", incident=f"inc-{incident}", rule="hangs", mode="shadow")
            case = {"remediation": one.id, "incident": one.incident, "at": AT, "document": msgspec.to_builtins(one)}
            session.add(ShadowCase(**case, closed_at=AT, correct=correct, because=""))
    book = RemediationRepository(database, lambda: Policy(rules=(Rule(name="hangs", mode="automatic"),))).state(NOW)
    assert book.tallies == {"hangs": Tally(seen=2, right=1)}
