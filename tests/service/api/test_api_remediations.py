"""Remediations over REST: what is shown of them, and what people decide."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from analyzers.remediation.messages import Proposed
from analyzers.remediation.types import Alternative, Limits
from service.clock import now
from service.store.models import Incident
from service.store.models import Remediation as Row
from tests.support.incident_rows import JOB
from tests.support.remediation_rows import INCIDENT, NODES, PLAN_ID, cleared, forget_tokens, plan, propose, seeded
from tests.support.served import Client

URL = f"/v1/remediations/{PLAN_ID}"


@pytest.fixture
def client(running_service: Client) -> Client:
    """Return a client in whose service one eviction is proposed, and nothing else is known."""
    cleared(running_service.service.database)
    seeded(running_service.service.database, running_service.service.remedies)
    return running_service


def tag(client: Client) -> dict[str, str]:
    """Return the header of a change to the proposal as it is now."""
    return {"If-Match": client.get(URL).headers["ETag"]}


def decide(client: Client, verb: str, reason: str = "seen", query: str = "", **headers: str) -> httpx.Response:
    """Send a decision about the proposal as it is now."""
    own = tag(client) | {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(f"{URL}/{verb}{query}", json={"reason": reason}, headers=own)


def reported(client: Client) -> list[tuple[str, dict[str, Any]]]:
    """Return what the audit log has of the proposal, the oldest first."""
    items = client.get("/v1/events?limit=1000").json()["items"]
    return [(event["kind"], event["details"]) for event in reversed(items) if event["subject"] == PLAN_ID]


def test_a_proposal_is_shown_whole(client: Client) -> None:
    """A remediation shows every field of the words, that nothing can be claimed of it yet, and that nothing hinders it."""
    shown = client.get(URL)

    assert shown.status_code == 200
    assert set(shown.json()) == set(plan().__struct_fields__) | {"task", "hindrances", "expires_at"}
    assert shown.json()["expires_at"] == pytest.approx(shown.json()["changed_at"] + Limits().proposal_seconds)
    assert (shown.json()["status"], shown.json()["task"], shown.json()["hindrances"]) == ("proposed", None, [])
    assert shown.headers["ETag"] == f'"{shown.json()["version"]}"'
    assert client.get("/v1/remediations/rem-none").json()["type"] == "/docs/rest.md#not-found"


def test_what_else_was_weighed_is_shown(client: Client) -> None:
    """The plan's other sets stand beside it, with their loss, and null where that is beyond any bound."""
    others = (
        Alternative(kind="restart_job", expected_loss_gpu_hours=4.5),
        Alternative(kind="evict", nodes=NODES[:2], why="the shards of gpu-0001 would lose their last holder"),
    )
    propose(client.service.remedies, replace(plan(), alternatives=others))

    shown = client.get(URL).json()["alternatives"]

    assert [one["expected_loss_gpu_hours"] for one in shown] == [4.5, None]
    assert shown[1]["nodes"] == list(NODES[:2])


def test_lists_filter_and_page(client: Client) -> None:
    """Remediations are listed the newest first, by status, incident, job and node, and a page at a time."""
    other = replace(plan("rem-ffffffffffff"), incident="inc-ffffffffffff", nodes=NODES[2:3])
    propose(client.service.remedies, other)
    every = "/v1/remediations"

    ids = [one["id"] for one in client.get(every).json()["items"]]
    first = client.get(f"{every}?limit=1").json()
    second = client.get(f"{every}?limit=1&after={first['next']}").json()
    found = {
        query: [one["id"] for one in client.get(f"{every}?{query}").json()["items"]]
        for query in (f"incident={INCIDENT}", f"node={NODES[2]}", "node=gpu-000", f"job={JOB}", "job=x", "status=done")
    }

    assert ids == [other.id, PLAN_ID]
    assert [one["id"] for one in first["items"] + second["items"]] == ids
    assert second["next"] is None
    assert list(found.values()) == [[PLAN_ID], [other.id], [], ids, [], []]


def test_a_later_program_ends_no_list(client: Client) -> None:
    """What this program cannot read is left out of the list; what stands behind it is there, on the next page."""
    with client.service.database.transaction() as session:
        row = session.get(Row, PLAN_ID)
        assert row is not None
        newer = {"document": {"kind": "teleport"}, "id": "rem-ffffffffffff", "proposed_at": row.proposed_at + 1}
        own = {column.name: getattr(row, column.name) for column in Row.__table__.columns}
        session.add(Row(**own | newer))

    first = client.get("/v1/remediations?limit=1").json()
    second = client.get(f"/v1/remediations?limit=1&after={first['next']}").json()

    assert first["items"] == []
    assert [one["id"] for one in second["items"]] == [PLAN_ID]
    assert client.get("/v1/remediations/rem-ffffffffffff").status_code == 404


def test_a_person_lets_it_act(client: Client) -> None:
    """An approval is of the version that was seen, names who gave it, and is in the audit log, timeline and stream."""
    answer = decide(client, "approve", "seen in nvidia-smi")

    assert answer.status_code == 200, answer.text
    shown = answer.json()
    assert (shown["status"], shown["task"], shown["because"]) == ("approved", "do", "seen in nvidia-smi")
    assert answer.headers["ETag"] == client.get(URL).headers["ETag"]
    assert shown["approved_by"]
    assert reported(client)[-1][0] == "remediation_approved"
    timeline = client.get(f"/v1/incidents/{INCIDENT}/timeline").json()["items"]
    assert timeline[-1]["kind"] == "remediation_approved"
    assert timeline[-1]["details"]["remediation"] == PLAN_ID


def test_no_reason_is_needed_to_approve(client: Client) -> None:
    """An approval may come without a body."""
    assert client.post(f"{URL}/approve", headers=tag(client)).json()["status"] == "approved"


@pytest.mark.parametrize("verb", ["reject", "cancel", "undo"])
def test_what_stops_or_destroys_needs_a_reason(client: Client, verb: str) -> None:
    """Rejecting, cancelling and undoing without a reason is refused, and changes nothing."""
    before = client.get(URL).json()

    assert client.post(f"{URL}/{verb}", json={}, headers=tag(client)).status_code == 422
    assert decide(client, verb, "").status_code == 422
    assert client.get(URL).json() == before


def test_a_rejected_plan_stays_rejected(client: Client) -> None:
    """What a person has rejected is not proposed again by the incident's next verdict."""
    assert decide(client, "reject", "it is our burn-in").json()["status"] == "rejected"

    propose(client.service.remedies)

    shown = client.get(URL).json()
    assert (shown["status"], shown["because"], shown["hindrances"]) == ("rejected", "it is our burn-in", [])


def test_a_decision_is_about_what_was_seen(client: Client) -> None:
    """Without If-Match a decision is refused, and one about an older version too; both change nothing, the second is noted."""
    seen = tag(client)
    propose(client.service.remedies, replace(plan(), probability=0.6))

    missing = client.post(f"{URL}/approve", json={})
    stale = client.post(f"{URL}/approve", json={}, headers=seen)

    assert [answer.json()["type"] for answer in (missing, stale)] == [
        "/docs/rest.md#precondition-required", "/docs/rest.md#precondition-failed",
    ]  # fmt: skip
    assert client.get(URL).json()["status"] == "proposed"
    noted = client.eventually("/v1/events?kind=stale_refused", lambda page: page["items"])["items"][0]
    assert noted["subject"] == PLAN_ID
    assert noted["details"]["why"].startswith("Approve: ")


def test_a_replayed_decision_is_answered_and_not_done_again(client: Client) -> None:
    """The same approval under the same key is answered as before; without the key it is refused, for it was done."""
    headers = {**tag(client), "Idempotency-Key": "a1"}
    first = client.post(f"{URL}/approve", json={"reason": "seen"}, headers=headers)
    again = client.post(f"{URL}/approve", json={"reason": "seen"}, headers=headers)
    other = client.post(f"{URL}/approve", json={"reason": "another"}, headers=headers)
    unkeyed = decide(client, "approve")

    assert first.json() == again.json()
    assert first.headers["ETag"] == again.headers["ETag"]
    assert other.status_code == 422
    assert unkeyed.json()["type"] == "/docs/rest.md#conflict"
    assert [kind for kind, _ in reported(client)].count("remediation_approved") == 1


def test_a_key_is_of_one_decision(client: Client) -> None:
    """A key that an approval was sent under is no rejection's."""
    decide(client, "approve", "seen", Idempotency_Key="k")

    assert decide(client, "reject", "seen", Idempotency_Key="k").status_code == 422
    assert client.get(URL).json()["status"] == "approved"


@pytest.mark.parametrize(("verb", "status"), [("approve", "approved"), ("reject", "rejected"), ("cancel", "cancelled")])
def test_a_dry_run_changes_nothing(client: Client, verb: str, status: str) -> None:
    """A decision for show is answered as it would be, and leaves the remediation, its version and the audit log alone."""
    before, events = client.get(URL).json(), len(reported(client))

    answer = decide(client, verb, query="?dry_run=true", Idempotency_Key="d")

    assert (answer.status_code, answer.json()["status"]) == (200, status)
    assert client.get(URL).json() == before
    assert len(reported(client)) == events
    assert decide(client, verb, Idempotency_Key="d").json()["status"] == status


def test_a_dry_run_is_refused_like_the_real_thing(client: Client) -> None:
    """An undo of what was never done is refused, for show as for good."""
    assert [decide(client, "undo", query=query).status_code for query in ("?dry_run=true", "")] == [409, 409]


def test_a_changed_verdict_stands_in_the_way(client: Client) -> None:
    """A proposal that rests on an older version of the verdict says so, in a word for programs and a sentence."""
    with client.service.database.transaction() as session:
        row = session.get(Incident, INCIDENT)
        assert row is not None
        row.verdict_version = 3

    (hindrance,) = client.get(URL).json()["hindrances"]

    assert hindrance["code"] == "superseded"
    assert "3 is the newest" in hindrance["text"]


def test_a_withdrawn_plan_is_cancelled(client: Client) -> None:
    """When the newest verdict asks for nothing any more the proposal is cancelled, and an approval of it comes too late."""
    seen = tag(client)
    client.service.remedies.handle(Proposed(incident=INCIDENT, plan=None, why="it moves again"), now())

    answer = client.post(f"{URL}/approve", json={}, headers=seen)

    assert answer.status_code == 412
    assert client.get(URL).json()["because"] == "it moves again"


def test_only_who_may_change_decides(client: Client) -> None:
    """Approving takes the scope remediate: neither a reader, an agent nor the scheduler that executes may do it."""
    tokens = {
        scope: client.service.tokens.make(scope, [scope])[1] for scope in ("read", "ingest", "execute", "remediate")
    }
    client.service.open_access.recheck()
    try:
        statuses = {}
        for scope, token in tokens.items():
            headers = {"If-Match": "*"}
            statuses[scope] = client.as_(token).post(f"{URL}/approve", json={}, headers=headers).status_code
        assert statuses == {"read": 403, "ingest": 403, "execute": 403, "remediate": 200}
        shown = client.as_(tokens["execute"]).get(URL).json()
        assert shown["approved_by"].startswith("remediate (")
        refused = client.as_(tokens["read"]).eventually(
            "/v1/events?kind=scope_refused", lambda page: len(page["items"]) == 3
        )
        assert {event["subject"] for event in refused["items"]} == {f"POST {URL}/approve"}
    finally:
        forget_tokens(client)
