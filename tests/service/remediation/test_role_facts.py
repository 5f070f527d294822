"""The restart of a role from the store: who registered, what was tried, what a verdict comes to, and whether it came back."""

from __future__ import annotations

from typing import Any

import pytest

from analyzers.model.verdict import Action, Culprit, Root, Verdict
from analyzers.remediation.messages import Approve, Begin, Complete, Fail, Proposed, Take
from analyzers.remediation.role_outcome import BACK_SECONDS
from analyzers.remediation.types import Remediation
from service.packaged_knowledge import load, role_rules_of
from service.remediation.role_facts import NotRestarted, build_request, read_role_facts
from service.roles.directory import Fence, Register, Renew
from service.roles.repository import RoleDirectories
from service.store.database import Database
from tests.support.incident_rows import AT, JOB
from tests.support.proposer_at_work import Care
from tests.support.remediation_fleet import declare, hung, let, place
from tests.support.role_epochs import epochs_from_one

__all__ = ["epochs_from_one"]

pytestmark = pytest.mark.usefixtures("epochs_from_one")
RULES = role_rules_of(load())
SEATS = (("controller", "0"), ("trainer", "0"), ("trainer", "1"), ("rollout", "0"), ("rollout", "1"), ("reward", "0"))
LOST = Verdict(
    symptom="crash", cause="machine", abstained=False, job=JOB, attempt=1,
    roots=(Root(root="r1", cause="machine", fault_class="process_killed"),),
    culprits=(Culprit(root="r1", kind="node", id="gpu-0002", ranks=(1,), role="rollout", probability=0.9),),
    action=Action(kind="reattempt", why="its process was killed"),
)  # fmt: skip


class Roles:
    """The job's directory, with a clock that the test sets."""

    def __init__(self, database: Database) -> None:
        self.at = AT - 100.0
        self.directories = RoleDirectories(database, lambda: self.at)
        self.started = 0
        self.epochs = {seat: self.start(*seat, weights=0) for seat in SEATS}
        self.step(40)

    def start(self, role: str, instance: str, **said: Any) -> int:
        """Let a new process register; return its epoch."""
        self.started += 1
        asked = Register(
            role=role, instance=instance, process=f"p{self.started}", attempt=1, node=f"gpu-000{1 + int(instance)}",
            weights=said.get("weights") if role in ("trainer", "rollout") else None,
        )  # fmt: skip
        return self.directories.take(JOB, asked, "x")[0].epoch

    def step(self, number: int, *but: tuple[str, str]) -> None:
        """Let all but these renew, with the weights of a step."""
        for (role, instance), epoch in self.epochs.items():
            if (role, instance) not in but:
                weights = number if role in ("trainer", "rollout") else None
                self.directories.take(JOB, Renew(role=role, instance=instance, epoch=epoch, weights=weights), "x")

    def replace(self, role: str, instance: str, weights: int | None) -> None:
        """Fence an instance and start another in its place."""
        self.directories.take(JOB, Fence(role=role, instance=instance), "x")
        self.epochs[role, instance] = self.start(role, instance, weights=weights)


@pytest.fixture
def care(database: Database) -> Care:
    """Return a proposer, and a job of which rollout 1 was killed."""
    care = Care(database)
    care.turn(0.0)
    care.roles = Roles(database)  # type: ignore[attr-defined]
    hung(database, verdicts=(LOST,), kind="crash")
    return care


def roles(care: Care) -> Roles:
    """Return the job's directory."""
    found: Roles = care.roles  # type: ignore[attr-defined]
    found.at = care.now
    return found


def carried_out(care: Care, one: Remediation) -> None:
    """Let a proposal be approved and carried out."""
    events = (Approve(id=one.id, by="ann"), Take(id=one.id, by="ray"), Begin(id=one.id, by="ray", token=1))
    let(care.remedies, *events, Complete(id=one.id, by="ray", token=1, did={"rollout 1": "restarted"}), now=care.now)


def test_a_lost_rollout_is_proposed_alone_and_is_cured_when_it_is_back(care: Care) -> None:
    """By its epoch and step; once it serves under a higher epoch the same verdict asks for nothing more."""
    care.turn()
    one = care.only()
    assert (one.kind, one.role, one.nodes) == ("restart_role", "rollout", ())
    assert one.role_restart is not None
    assert (one.role_restart.instance, one.role_restart.epochs, one.role_restart.step) == ("1", {"1": 5}, 40)

    carried_out(care, one)
    roles(care).replace("rollout", "1", 40)
    care.turn()
    assert care.ended(one.id).status == "verifying"  # it has registered, and has done nothing yet
    roles(care).step(41)
    care.turn()
    assert (care.ended(one.id).status, care.ended(one.id).outcome) == ("done", "cured")
    care.publish(LOST)
    care.turn()
    assert [found.id for found in care.all() if found.status == "proposed"] == []


def test_two_restarts_that_fail_end_in_a_restart_of_the_job(care: Care) -> None:
    """It never registers: the restart is proposed a second time, and then the whole job's."""
    for number in (1, 2):
        care.turn()
        one = next(found for found in care.all() if found.status == "proposed")
        assert (one.kind, one.role_restart and one.role_restart.number) == ("restart_role", number)
        carried_out(care, one)
        roles(care).step(40 + number, ("rollout", "1"))
        care.turn(BACK_SECONDS)
        assert care.ended(one.id).outcome == "not_cured"
        roles(care).step(40 + number, ("rollout", "1"))
    care.turn()
    (last,) = [found for found in care.all() if found.status == "proposed"]
    assert last.kind == "reattempt"
    assert "restarting rollout has failed 2 times in a row" in last.why


def test_a_person_may_ask_for_it_under_the_same_guards(database: Database) -> None:
    """Of what is registered; not of a controller, and not after failures. It waits for an approval like every other."""
    place(database)
    care = Care(database)
    directory = Roles(database)
    with database.session() as session:
        one = build_request(session, JOB, "rollout", "1", "ann", "it hangs", care.now, RULES)
        with pytest.raises(NotRestarted, match="not registered") as unknown:
            build_request(session, JOB, "rollout", "9", "ann", "it hangs", care.now, RULES)
        with pytest.raises(NotRestarted, match="manages the job") as barred:
            build_request(session, JOB, "controller", "0", "ann", "it hangs", care.now, RULES)
        whole = build_request(session, JOB, "trainer", "1", "ann", "it hangs", care.now, RULES)
    assert (unknown.value.unknown, barred.value.unknown) == (True, False)
    assert whole.role_restart is not None
    assert sorted(whole.role_restart.epochs) == ["0", "1"]
    let(care.remedies, Proposed(incident=one.incident, plan=one), now=care.now)
    assert (care.only().status, care.only().proposed_by) == ("proposed", "ann")
    for _ in range(2):
        with database.session() as session:
            again = build_request(session, JOB, "rollout", "1", "ann", "it hangs", care.now, RULES)
        events = (Approve(id=again.id, by="ann"), Take(id=again.id, by="ray"), Begin(id=again.id, by="ray", token=1))
        let(care.remedies, Proposed(incident=again.incident, plan=again), *events, now=care.now)
        let(care.remedies, Fail(id=again.id, by="ray", token=1, reason="no"), now=care.now)
    with database.session() as session, pytest.raises(NotRestarted, match="has failed 2 times"):
        build_request(session, JOB, "rollout", "1", "ann", "it hangs", care.now, RULES)
    directory.at = care.now + 1.0
    for seat in SEATS:  # the job is started anew as a whole
        directory.replace(*seat, weights=40)
    directory.step(42)
    with database.session() as session:
        assert build_request(session, JOB, "rollout", "1", "ann", "it hangs", care.now, RULES).role == "rollout"


def test_a_restart_of_which_the_report_is_lost_did_not_fail(database: Database) -> None:
    """The instance is back under a higher epoch: it does not count towards a restart of the whole job."""
    place(database)
    care = Care(database)
    directory = Roles(database)
    for number in range(3):
        with database.session() as session:
            one = build_request(session, JOB, "rollout", "1", "ann", "it hangs", care.now, RULES)
        events = (Approve(id=one.id, by="ann"), Take(id=one.id, by="ray"), Begin(id=one.id, by="ray", token=1))
        let(care.remedies, Proposed(incident=one.incident, plan=one), *events, now=care.now)
        let(care.remedies, Fail(id=one.id, by="ray", token=1, reason="no answer"), now=care.now)
        directory.at = care.now
        directory.replace("rollout", "1", weights=40)
        directory.step(41 + number)
    with database.session() as session:
        past = read_role_facts(session, JOB, RULES).past
    assert [one.instances for one in past] == [("1",)] * 3
    assert all(0.0 <= one.seconds_ago < 60.0 for one in past)


def test_a_restart_of_all_that_registered_is_no_new_job(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the trainers register, and none says its weights: each restart replaces them all, and the fourth is refused."""
    monkeypatch.setattr(f"{__name__}.SEATS", (("trainer", "0"), ("trainer", "1")))
    place(database)
    care = Care(database)
    directory = Roles(database)
    for seat in SEATS:
        directory.replace(*seat, weights=None)
    for _ in range(3):
        with database.session() as session:
            one = build_request(session, JOB, "trainer", None, "ann", "it hangs", care.now, RULES)
        events = (Approve(id=one.id, by="ann"), Take(id=one.id, by="ray"), Begin(id=one.id, by="ray", token=1))
        let(care.remedies, Proposed(incident=one.incident, plan=one), *events, now=care.now)
        let(care.remedies, Fail(id=one.id, by="ray", token=1, reason="no answer"), now=care.now)
        directory.at = care.now + 1.0
        for seat in SEATS:
            directory.replace(*seat, weights=None)
        care.now += 10.0
    with database.session() as session, pytest.raises(NotRestarted, match="3 times within an hour"):
        build_request(session, JOB, "trainer", None, "ann", "it hangs", care.now, RULES)


def test_an_instance_is_lost_only_where_its_peers_are_heard(database: Database) -> None:
    """After an outage of the service every lease seems over until the first renewals come."""
    place(database)
    directory = Roles(database)
    declare(database, standby_nodes=["s0"], node_kinds={"s0": "h20-a"}, parallel={"tp": 2, "dp": 4})

    def states() -> dict[str, str]:
        with database.session() as session:
            facts = read_role_facts(session, JOB, RULES)
        assert (facts.standbys, facts.kinds, facts.reserve) == (("s0",), {"s0": "h20-a"}, 4)
        return {f"{one.role} {one.instance}": one.state for one in facts.instances}

    directory.at += 1_000.0
    assert set(states().values()) == {"serving"}
    directory.step(41, ("rollout", "1"))
    assert [name for name, state in states().items() if state == "lost"] == ["rollout 1"]


def test_a_job_that_no_agent_reports_is_known_by_its_roles(database: Database) -> None:
    """Its directory is enough for the restart of a role; an eviction of it stays blocked."""
    care = Care(database)
    Roles(database)
    with database.session() as session:
        one = build_request(session, JOB, "rollout", "1", "ann", "it hangs", care.now, RULES)
    let(care.remedies, Proposed(incident=one.incident, plan=one), Approve(id=one.id, by="ann"), now=care.now)
    assert let(care.remedies, Take(id=one.id, by="ray"), now=care.now).status == "claimed"
