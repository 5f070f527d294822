"""From readings of a dead engine to a role that is back: the verdict, the proposal, the policy, the epochs, the outcome."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.remediation.messages import Begin, Complete, Take
from analyzers.remediation.policy import approver
from analyzers.remediation.types import Policy, Remediation, Rule
from analyzers.verdict.judge import judge
from service.packaged_knowledge import load
from service.remediation import outcomes
from service.roles.directory import Activity, Fence, Register, Renew
from service.roles.repository import RoleDirectories
from service.store.database import Database
from service.store.models import ShadowCase
from tests.support.incident_rows import AT, JOB
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import hung, let
from tests.support.role_readings import GENERATES, HEALTHY, scene

pytestmark = pytest.mark.system
RULE = Rule(name="roles", mode="automatic", kind="restart_role", least_probability=0.5, least_precision=0.8)
DEAD = {**GENERATES, "still_from": 400.0, "answers": True}  # heard, answering, with requests, and without a token


def verdict(dead: bool = True) -> Verdict:
    """Return what is judged of the readings of a job, one of whose engines may be dead."""
    window = Window.build(scene({("rollout", "3"): DEAD} if dead else {}), live=True)
    found = judge(window, infer(window), load(), rounds=2)
    return replace(found, job=JOB, attempt=1)


def allowed(database: Database) -> None:
    """Store that shadow mode was right about twenty restarts."""
    with database.transaction() as session:
        for number in range(20):
            case = Remediation(
                id=f"rem-{number:012d}", incident=f"inc-{number:012d}", verdict_version=1, job="before", attempt=0,
                kind="restart_role", nodes=(), role="rollout", fault_class="engine_still", symptom="hang",
                probability=0.9, why="", proposed_at=AT, rule=RULE.name, mode="shadow",
            )  # fmt: skip
            outcomes.note_case(session, case, AT)
        session.flush()
        for row in session.query(ShadowCase):
            row.closed_at, row.correct = AT, True


class Job:
    """The instances of the readings, each registered by a process."""

    def __init__(self, database: Database) -> None:
        self.at = AT - 700.0
        self.directories = RoleDirectories(database, lambda: self.at)
        self.epochs = {seat: self.start(*seat, process="first") for seat in HEALTHY}

    def start(self, role: str, instance: str, process: str) -> int:
        """Let a process take a place; return its epoch."""
        asked = Register(
            role=role, instance=instance, process=f"{process}{role}{instance}", attempt=1, lease_seconds=600.0
        )
        return self.directories.take(JOB, asked, "x")[0].epoch

    def says(self, role: str, instance: str, tokens: int) -> None:
        """Let an instance say how many tokens it has generated."""
        does = Activity(tokens_total=tokens)
        self.directories.take(
            JOB, Renew(role=role, instance=instance, epoch=self.epochs[role, instance], activity=does), "x"
        )


def test_a_dead_engine_is_replaced_by_policy_and_cured_when_it_generates(database: Database) -> None:
    """Nobody decides in between: the verdict names rollout 3 alone, and only work under the higher epoch is the end."""
    allowed(database)
    job = Job(database)
    care = Care(database, Policy(rules=(RULE,)))
    care.turn(0.0)
    named = verdict()
    assert [(one.role, one.instances) for one in named.culprits] == [("rollout", ("3",))]
    hung(database, verdicts=(named,), kind="hang")

    care.turn()
    one = care.only()
    assert (one.kind, one.role, one.status, one.approved_by) == (
        "restart_role",
        "rollout",
        "approved",
        approver("roles"),
    )
    assert one.role_restart is not None
    old = job.epochs["rollout", "3"]
    assert one.role_restart.epochs == {"3": old}
    let(care.remedies, Take(id=one.id, by="ray"), Begin(id=one.id, by="ray", token=1), now=care.now)
    job.at = care.now
    job.directories.take(JOB, Fence(role="rollout", instance="3", epoch=old), "ray")
    job.epochs["rollout", "3"] = job.start("rollout", "3", process="second")
    let(care.remedies, Complete(id=one.id, by="ray", token=1, did={"rollout 3": "restarted"}), now=care.now)

    job.says("rollout", "3", tokens=0)
    care.turn()
    assert care.ended(one.id).status == "verifying"  # it is back, and has generated nothing
    job.says("rollout", "3", tokens=512)
    care.turn()
    assert (care.ended(one.id).status, care.ended(one.id).outcome) == ("done", "cured")
    assert job.epochs["rollout", "3"] > old
    care.publish(named)
    care.turn()
    assert [found.id for found in care.all() if found.status in ("proposed", "approved")] == []


def test_a_healthy_job_is_left_alone(database: Database) -> None:
    """The same policy and the same roles, without the fault."""
    allowed(database)
    Job(database)
    care = Care(database, Policy(rules=(RULE,)))
    care.turn(0.0)
    hung(database, verdicts=(verdict(dead=False),), kind="hang")
    care.turn()
    assert care.all() == []
