"""Attacks over REST with real tokens: whatever is tried, no innocent machine leaves, and the audit log has who tried it.

A node may lie about itself, and the engine may believe it: then budget and breaker bound what that costs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from analyzers.model.verdict import to_json
from analyzers.remediation.messages import Approve, CloseBreaker, RemediationTick
from collectors.records import KernelEvent, Placement, Record
from service.clock import now
from service.store.models import Incident
from service.store.models import Remediation as Row
from service.store.models import Verdict as VerdictRow
from tests.support.incident_rows import JOB, verdict
from tests.support.plan_attacks import (
    ACTS,
    CHANGES,
    DECIDES,
    LIARS,
    POLICY,
    URL,
    attack,
    believed,
    diligent,
    evicted,
    holder,
    noted,
    state,
)
from tests.support.remediation_rows import (
    INCIDENT,
    NODES,
    PLAN_ID,
    plan,
    propose,
)
from tests.support.served import Client

# --- who may not


@pytest.mark.parametrize(
    ("scope", "forbidden"),
    [("ingest", (*DECIDES, *ACTS)), ("read", (*DECIDES, *ACTS)), ("execute", DECIDES), ("remediate", ACTS)],
)
def test_a_token_of_the_wrong_scope_changes_nothing(client: Client, scope: str, forbidden: tuple[str, ...]) -> None:
    """Agents and readers change nothing; a scheduler approves nothing; who approves does not execute. Each try is noted."""
    before, wrong = state(client), holder(client, scope)

    answers = {change: attack(wrong, change).status_code for change in forbidden}

    assert set(answers.values()) == {403}, answers
    assert state(client) == before
    assert evicted(client) == []
    assert noted(client, "scope_refused")[0]["actor"].startswith(f"{scope} (")


def test_nobody_changes_anything_without_a_token(client: Client) -> None:
    """Without a token, with one made up, and with a revoked one, every change is refused; each is noted by its kind."""
    before = state(client)
    bearer, secret = client.service.tokens.make("former", ["admin"])
    client.service.tokens.revoke(bearer.id)

    strangers = [client.as_(""), client.as_("fh_" + "A" * 43), client.as_(secret)]

    assert {attack(one, change).status_code for one in strangers for change in CHANGES} == {401}
    assert (state(client), evicted(client)) == (before, [])
    assert {event["details"]["why"] for event in noted(client, "token_refused")} >= {"no token"}


def test_a_scheduler_whose_token_is_revoked_cannot_go_on(client: Client) -> None:
    """A stolen scheduler's token that is revoked between its claim and its beginning takes no machine out."""
    client.service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    row, secret = client.service.tokens.make("stolen", ["execute"])
    thief = client.as_(secret)
    assert attack(thief, "claim").status_code == 200

    assert client.delete(f"/v1/tokens/{row.id}").status_code == 204

    assert {attack(thief, verb).status_code for verb in ("begin", "heartbeat", "complete")} == {401}
    assert evicted(client) == []


# --- a node that lies


def test_a_node_speaks_for_no_other(client: Client) -> None:
    """A node's token cannot report another's GPU lost, nor place another in a job; nothing is proposed, and it is noted."""
    liar = holder(client, "ingest", NODES[0])
    lies: list[Record] = [
        KernelEvent(event="xid", code=79, node=NODES[1]),
        Placement(rank=1, node=NODES[1], job=JOB, world_size=4),
    ]

    as_another = [liar.ship(NODES[1], [lie], f"a{number}").status_code for number, lie in enumerate(lies)]
    as_itself = [liar.ship(NODES[0], [lie], f"b{number}").status_code for number, lie in enumerate(lies)]

    assert {*as_another, *as_itself, liar.get(f"/v1/nodes/{NODES[1]}/commands").status_code} == {403}
    assert [one["id"] for one in client.get("/v1/remediations").json()["items"]] == [PLAN_ID]
    assert evicted(client) == []
    assert noted(client, "node_refused")[0]["subject"] == NODES[1]
    assert "gpu-0001 sent it" in str(noted(client, "batch_refused")[0]["details"])


def test_nodes_that_lie_about_themselves_are_bounded_by_the_budget(client: Client, policy_file: Path) -> None:
    """Of six liars that the engine believes an automatic policy takes out what the hour's budget allows; the rest wait."""
    policy_file.write_text(POLICY.format(budget=2))
    believed(client)

    diligent(client)
    first = evicted(client)
    diligent(client)

    assert len(set(first) & set(LIARS)) == 2
    assert evicted(client) == first
    waiting = client.get("/v1/remediations?status=approved").json()["items"]
    assert len(waiting) == len(LIARS) - 2
    assert all("budget" in [one["code"] for one in row["hindrances"]] for row in waiting)
    assert noted(client, "hindered_refused")[0]["subject"] in {row["id"] for row in waiting}


def test_nodes_that_lie_about_themselves_open_the_breaker(client: Client, policy_file: Path) -> None:
    """With a budget that is wide enough the breaker opens at its share, and no scheduler, agent or time closes it."""
    policy_file.write_text(POLICY.format(budget=1_000))
    believed(client)

    diligent(client)
    client.service.remedies.handle(RemediationTick(), now() + 7 * 86_400.0)
    diligent(client)

    assert len(evicted(client)) == 3
    assert client.get("/v1/breaker").json()["open"]
    assert attack(holder(client, "execute"), "close breaker").status_code == 403
    assert noted(client, "breaker_tripped")
    client.service.remedies.handle(CloseBreaker(by="ann", reason="I have looked"), now())
    assert not client.get("/v1/breaker").json()["open"]


def test_a_person_who_approves_every_lie_is_bounded_too(client: Client, policy_file: Path) -> None:
    """The bounds stand behind an approval as well: a person cannot be hurried into evicting a fleet."""
    policy_file.write_text(POLICY.format(budget=2).replace("automatic", "propose"))
    believed(client)
    ann = holder(client, "remediate")
    proposed = client.get("/v1/remediations?status=proposed").json()["items"]
    assert len(proposed) == len(LIARS)
    for row in proposed:
        assert ann.post(f"/v1/remediations/{row['id']}/approve", headers={"If-Match": "*"}).status_code == 200

    diligent(client)

    assert len(evicted(client)) == 2
    assert noted(client, "hindered_refused")


# --- decisions that are replayed or forged


def test_a_replayed_approval_approves_nothing(client: Client) -> None:
    """An approval that was heard and is sent again, with its key and its version, brings back nothing that was rejected."""
    ann = holder(client, "remediate")
    said = {"If-Match": client.get(URL).headers["ETag"], "Idempotency-Key": "k1"}
    assert attack(ann, "approve", **said).json()["status"] == "approved"
    assert attack(ann, "cancel").json()["status"] == "cancelled"

    replayed = attack(ann, "approve", **said)
    without_key = attack(ann, "approve", **{"If-Match": said["If-Match"]})
    by_another = attack(holder(client, "remediate"), "approve", **said)

    assert replayed.json()["status"] == "approved"  # the answer of then, to whoever lost it; nothing happens by it
    assert (without_key.status_code, by_another.status_code) == (412, 412)
    assert client.get(URL).json()["status"] == "cancelled"
    assert attack(holder(client, "execute"), "claim").status_code == 409
    assert evicted(client) == []
    assert {"stale_refused", "conflict_refused"} <= {
        event["kind"] for event in client.get("/v1/events?limit=500").json()["items"]
    }


def test_an_approval_is_of_what_was_seen(client: Client) -> None:
    """When the plan has changed since somebody looked, the approval of what was seen is refused, and noted."""
    seen = client.get(URL).headers["ETag"]
    propose(client.service.remedies, replace(plan(), probability=0.5, why="it is much less sure now"))

    answer = attack(holder(client, "remediate"), "approve", **{"If-Match": seen})
    blind = client.post(f"{URL}/approve", json={})

    assert (answer.status_code, blind.status_code) == (412, 428)
    assert client.get(URL).json()["status"] == "proposed"
    assert noted(client, "stale_refused")[0]["subject"] == PLAN_ID


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "x", "by": "ann"}, {"reason": "x", "approved_by": "ann"}, {"reason": "x", "status": "executing"},
        {"reason": ["x"]}, {"reason": "x" * 100_000}, {"reason": "a\x00b"},
    ],
)  # fmt: skip
def test_nobody_approves_in_another_name(client: Client, body: dict[str, Any]) -> None:
    """A body that names somebody else, or more than a reason, is refused: who approves is who the token says."""
    answer = client.post(f"{URL}/approve", json=body, headers={"If-Match": "*"})

    assert answer.status_code == 422
    assert client.get(URL).json()["status"] == "proposed"


def test_a_token_of_the_lease_is_no_secret_to_guess(client: Client) -> None:
    """Whoever guesses a fencing token acts by nothing: the claim is its claimant's alone, and each guess is noted."""
    client.service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    slurm, thief = holder(client, "execute"), holder(client, "execute")
    token = attack(slurm, "claim").json()["token"]

    guesses = [
        thief.post(f"{URL}/{verb}", json={"token": guess} | ({"reason": "x"} if verb == "fail" else {})).status_code
        for verb in ("begin", "heartbeat", "complete", "fail")
        for guess in (token, token + 1, 1 << 30)
    ]

    assert set(guesses) == {409}
    assert (client.get(URL).json()["status"], evicted(client)) == ("claimed", [])
    assert noted(client, "fenced_refused")[0]["actor"].startswith("execute (")


def test_an_expired_lease_takes_nothing_out(client: Client) -> None:
    """A claimant that begins after its lease is fenced; another acts, once, and the first cannot end it for it."""
    client.service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    slow, other = holder(client, "execute"), holder(client, "execute")
    attack(slow, "claim")
    with client.service.database.transaction() as session:
        row = session.get(Row, PLAN_ID)
        assert row is not None
        row.document = row.document | {"claim": row.document["claim"] | {"until": now() - 1}}

    late = attack(slow, "begin")
    assert (late.status_code, evicted(client)) == (409, [])
    client.service.remedies.handle(RemediationTick(), now())
    second = other.post(f"{URL}/claim", json={}).json()["token"]
    assert other.post(f"{URL}/begin", json={"token": second}).status_code == 200

    assert {attack(slow, verb).status_code for verb in ACTS} == {409}
    assert evicted(client) == list(NODES[1:2])
    assert client.get(URL).json()["status"] == "executing"


def test_what_a_scheduler_says_it_did_is_bounded(client: Client) -> None:
    """A scheduler that answers with a flood, or of another machine, changes no other remediation."""
    client.service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    slurm = holder(client, "execute")
    token = attack(slurm, "claim").json()["token"]
    slurm.post(f"{URL}/begin", json={"token": token})

    flood = slurm.post(f"{URL}/complete", json={"token": token, "did": {"n": "x" * 400_000}})
    done = slurm.post(f"{URL}/complete", json={"token": token, "did": {"gpu-9999": "drained"}})

    assert flood.status_code == 422
    assert done.json()["nodes"] == list(NODES[1:2])
    assert evicted(client) == list(NODES[1:2])


def test_a_verdict_that_has_changed_lets_nothing_act(client: Client) -> None:
    """Approved, and then the next verdict says "look first": the claim is refused."""
    client.service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    with client.service.database.transaction() as session:
        row = session.get(Incident, INCIDENT)
        assert row is not None
        newer = verdict(NODES[1], "probe")
        row.verdict_version = 3
        session.add(
            VerdictRow(
                incident=INCIDENT, version=3, at=now(), cut={}, knowledge="", program="", document=to_json(newer)
            )
        )

    answer = attack(holder(client, "execute"), "claim")

    assert answer.status_code == 409
    assert [one["code"] for one in answer.json()["hindrances"]] == ["superseded"]
    assert evicted(client) == []
