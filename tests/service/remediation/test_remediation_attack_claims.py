"""Schedulers that cannot or must not act, over REST: who gives up, whose rule is gone, who gives back what another took out."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace
from sqlalchemy import select

from analyzers.remediation.messages import Approve, AskUndo, Begin, Complete, Proposed, RemediationTick, Take
from service.clock import now
from service.store.models import Remediation as Row
from tests.support.incident_rows import JOB
from tests.support.plan_attacks import LIARS, POLICY, URL, attack, believed, evicted, holder, noted
from tests.support.remediation_rows import INCIDENT, NODES, PLAN_ID, plan, propose, running
from tests.support.served import Client

OTHER = "rem-ffffffffffff"


def wait_is_over(client: Client) -> None:
    """Let the time pass that must lie between two claims."""
    with client.service.database.transaction() as session:
        row = session.get_one(Row, PLAN_ID)
        row.document = row.document | {"again_at": now() - 1.0}


def test_a_scheduler_that_gives_up_leaves_it_to_others_and_not_for_ever(client: Client) -> None:
    """It fails each claim before it begins: at once nobody can claim again, the third time it is over, and no machine left."""
    client.service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    slurm, other = holder(client, "execute"), holder(client, "execute")
    for claimant in (slurm, other, slurm):
        token = attack(claimant, "claim").json()["token"]
        said = claimant.post(f"{URL}/fail", json={"token": token, "reason": "Slurm has no such job"})
        assert said.status_code == 200
        if said.json()["status"] == "approved":
            again = attack(other, "claim")
            assert [one["code"] for one in again.json()["hindrances"]] == ["again"]
            assert client.get("/v1/remediations?claimable=true").json()["items"] == []
            wait_is_over(client)

    assert (client.get(URL).json()["status"], client.get(URL).json()["failed_claims"]) == ("failed", 2)
    assert attack(other, "claim").status_code == 409
    assert attack(holder(client, "remediate"), "undo").status_code == 409
    assert evicted(client) == []
    assert len(noted(client, "remediation_released")) == 2


def test_a_rule_that_was_taken_back_takes_no_machine_out(client: Client, policy_file: Path) -> None:
    """An automatic rule has approved six evictions, of which one is claimed; the file says "propose" now: none begins."""
    policy_file.write_text(POLICY.format(budget=1_000))
    believed(client)
    approved = client.get("/v1/remediations?status=approved").json()["items"]
    assert len(approved) == len(LIARS)
    slurm, url = holder(client, "execute"), f"/v1/remediations/{approved[0]['id']}"
    token = slurm.post(f"{url}/claim", json={}).json()["token"]

    policy_file.write_text(POLICY.format(budget=1_000).replace("automatic", "propose"))

    begun = slurm.post(f"{url}/begin", json={"token": token})
    claims = [slurm.post(f"/v1/remediations/{row['id']}/claim", json={}) for row in approved[1:]]
    assert "policy" in [one["code"] for one in begun.json()["hindrances"]]
    assert {answer.status_code for answer in (begun, *claims)} == {409}
    client.service.remedies.handle(RemediationTick(), now())
    assert len(client.get("/v1/remediations?status=proposed").json()["items"]) == len(LIARS)
    assert evicted(client) == []


def test_an_undo_gives_no_node_back_that_another_has_taken_out(client: Client) -> None:
    """Two jobs share a node and both lost it: who undoes the first is asked to give nothing back, and later the node."""
    running(client.service.database, "bert", NODES[1:3])
    remedies = client.service.remedies
    propose(remedies, replace(plan(), priced_tenants=("bert",)))
    theirs = replace(plan(OTHER, "inc-ffffffffffff", "bert"), priced_tenants=(JOB,))
    remedies.handle(Proposed(incident=theirs.incident, plan=theirs), now())
    for id in (PLAN_ID, OTHER):
        for event in (
            Approve(id=id, by="ann"), Take(id=id, by="slurm"), Begin(id=id, by="slurm", token=1),
            Complete(id=id, by="slurm", token=1), AskUndo(id=id, by="ann", reason="its test passed"),
        ):  # fmt: skip
            remedies.handle(event, now())
    slurm, given = holder(client, "execute"), []

    for id in (PLAN_ID, OTHER):
        claimed = slurm.post(f"/v1/remediations/{id}/claim", json={}).json()
        token = {"token": claimed["token"]}
        begun = slurm.post(f"/v1/remediations/{id}/begin", json=token).json()
        done = slurm.post(f"/v1/remediations/{id}/complete", json=token).json()
        given += [one["give_back"] for one in (claimed["remediation"], begun["remediation"], done)]

    assert given == [[]] * 3 + [list(NODES[1:2])] * 3
    with client.service.database.session() as session:
        assert set(session.scalars(select(Row.status))) == {"undone"}
    assert INCIDENT in {event["details"].get("incident") for event in noted(client, "remediation_undone")}
