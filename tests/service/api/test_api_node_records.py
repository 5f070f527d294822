"""How nodes stand over REST: fit, suspected, out, under burn-in, an offender; and who says that one is back."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import select

from analyzers.remediation.messages import Approve, Begin, Complete, Take
from analyzers.remediation.node_history import DAY_SECONDS, HOUR_SECONDS, NodeRecord, Trial, record_trial
from service.clock import now
from service.remediation import node_records
from service.store.models import AuditEvent, Node
from tests.support.remediation_rows import NODES, PLAN_ID, cleared, forget_tokens, seeded
from tests.support.served import Client

NODE = NODES[1]  # that the proposal would take out


@pytest.fixture
def client(running_service: Client) -> Client:
    """Return a client of a service whose four nodes have reported and of which nothing is remembered."""
    cleared(running_service.service.database)
    at = now()
    with running_service.service.database.transaction() as session:
        for node in NODES:
            session.add(Node(name=node, first_seen_at=at, last_seen_at=at))
    return running_service


def remember(client: Client, record: NodeRecord) -> None:
    """Store what is remembered of a node."""
    with client.service.database.transaction() as session:
        node_records.write_record(session, record, now())


def evicted(client: Client, times: int = 1, node: str = NODE) -> None:
    """Let a node have been taken out as often, a day apart, and the job have run well each time."""
    record, weights = NodeRecord(node=node), client.service.weights()
    for number in reversed(range(times)):
        at = now() - (number + 1) * DAY_SECONDS
        trial = Trial(probability=0.9, began_at=at, ended_at=at + 60, outcome="cured", note=f"rem-{number}")
        record = record_trial(record, trial, weights)
    remember(client, record)


def standing(client: Client, node: str = NODE) -> dict[str, Any]:
    """Return how a node stands."""
    answer = client.get(f"/v1/nodes/{node}/record")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["etag"] == f'"{found["version"]}"'
    return found


def say_back(client: Client, *, node: str = NODE, dry_run: bool = False, **more: Any) -> httpx.Response:
    """Say that a node is back, of the record as it is now."""
    tag = f'"{standing(client, node)["version"]}"'
    wish = {"reason": "its HBM was replaced", **more}
    path = f"/v1/nodes/{node}/returned{'?dry_run=true' if dry_run else ''}"
    return client.post(path, json=wish, headers={"If-Match": tag})


def audit(client: Client) -> list[tuple[str, str]]:
    """Return who did what, as the audit log has it."""
    with client.service.database.session() as session:
        return [(row.kind, row.subject) for row in session.scalars(select(AuditEvent).order_by(AuditEvent.sequence))]


def test_a_node_of_which_nothing_is_remembered_is_fit(client: Client) -> None:
    """A node that reports and was never named is fit, at the fleet's own odds; one that nobody knows is not found."""
    found = standing(client)

    assert (found["state"], found["history"], found["version"]) == ("fit", [], 0)
    assert found["probability"] == client.service.weights().prior.faulty
    assert client.get("/v1/nodes/gpu-9999/record").status_code == 404
    assert client.get("/v1/fleet/records").json()["items"] == []


def test_a_remediation_makes_a_node_suspected_and_then_out(client: Client) -> None:
    """Proposed it is suspected, carried out it is out, and nobody can say that it is back before that is over or undone."""
    cleared(client.service.database)
    seeded(client.service.database, client.service.remedies)
    assert standing(client)["state"] == "suspected"

    for event in (
        Approve(id=PLAN_ID, by="ann"), Take(id=PLAN_ID, by="slurm"), Begin(id=PLAN_ID, by="slurm", token=1),
        Complete(id=PLAN_ID, by="slurm", token=1, did={NODE: "drained"}),
    ):  # fmt: skip
        client.service.remedies.handle(event, now())
    found = standing(client)
    assert (found["state"], PLAN_ID in found["why"]) == ("out", True)
    assert [one["node"] for one in client.get("/v1/fleet/records").json()["items"]] == [NODE]

    refused = say_back(client)
    assert (refused.status_code, f"undo {PLAN_ID}" in refused.json()["detail"]) == (409, True)


def test_a_node_that_came_back_is_under_burn_in(client: Client) -> None:
    """Out, then back by a person's word: burn-in for a day of good steps, in the history, the lists and the audit log."""
    evicted(client)
    assert standing(client)["state"] == "out"

    answer = say_back(client)
    found = standing(client)

    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == found["state"] == "burn_in"
    assert (found["good_seconds"], found["needed_seconds"]) == (0.0, DAY_SECONDS)
    assert found["until"] == pytest.approx(now() + DAY_SECONDS, abs=10)
    assert found["history"][-1]["note"].endswith(": its HBM was replaced")
    assert [line["kind"] for line in found["history"]] == ["named", "evicted", "cured", "returned"]
    states = {one["name"]: one["state"] for one in client.get("/v1/nodes").json()["items"]}
    assert states == dict.fromkeys(NODES, "fit") | {NODE: "burn_in"}
    assert client.get(f"/v1/nodes/{NODE}").json()["why"] == found["why"]
    assert ("node_returned", NODE) in audit(client)


def test_a_passed_check_makes_it_fit_at_once(client: Client) -> None:
    """With a passed check no burn-in is needed; said later, it ends the one that goes on."""
    evicted(client)
    assert say_back(client, checked=True).json()["state"] == "fit"
    assert "probe passed was the last" in standing(client)["why"]

    evicted(client, node=NODES[2])
    assert say_back(client, node=NODES[2]).json()["state"] == "burn_in"
    assert say_back(client, node=NODES[2]).status_code == 409
    assert say_back(client, node=NODES[2], checked=True).json()["state"] == "fit"


def test_an_offender_needs_a_check(client: Client) -> None:
    """Out three times in four weeks: back it is an offender until the first of them is four weeks old, whatever hours it has."""
    evicted(client, times=3)
    assert say_back(client).json()["state"] == "offender"
    with client.service.database.transaction() as session:
        ran = replace(node_records.read_record(session, NODE), stood_seconds=99 * HOUR_SECONDS)
        node_records.write_record(session, ran, now())

    found = standing(client)
    assert (found["state"], len(found["evictions"])) == ("offender", 3)
    assert found["until"] == pytest.approx(now() + 25 * DAY_SECONDS, abs=10)
    assert say_back(client, checked=True).json()["state"] == "fit"


def test_nobody_comes_back_who_was_not_away(client: Client) -> None:
    """Of a fit node it cannot be said that it is back, and nothing is remembered of the attempt."""
    refused = say_back(client)

    assert (refused.status_code, refused.json()["type"]) == (409, "/docs/rest.md#conflict")
    assert standing(client)["version"] == 0
    assert say_back(client, reason="").status_code == 422


def test_a_dry_run_changes_nothing(client: Client) -> None:
    """It answers how the node would stand, and it is out as before."""
    evicted(client)

    assert say_back(client, dry_run=True).json()["state"] == "burn_in"
    assert standing(client)["state"] == "out"
    assert audit(client) == []


def test_it_is_said_of_what_was_seen_and_once(client: Client) -> None:
    """Without If-Match 428, of an older record 412; the same key again is answered as before and not done again."""
    evicted(client)
    path, wish = f"/v1/nodes/{NODE}/returned", {"reason": "repaired"}
    version = standing(client)["version"]

    assert client.post(path, json=wish).status_code == 428
    assert client.post(path, json=wish, headers={"If-Match": f'"{version - 1}"'}).status_code == 412
    once = {"If-Match": f'"{version}"', "Idempotency-Key": "k-1"}
    first, again = (client.post(path, json=wish, headers=once) for _ in range(2))
    assert (first.status_code, again.json()) == (200, first.json())
    assert [kind for kind, _ in audit(client)] == ["node_returned"]


def test_who_may_only_read_or_execute_brings_nobody_back(client: Client) -> None:
    """Tokens of the scopes read, execute and ingest are refused; one of remediate may."""
    evicted(client)
    version = standing(client)["version"]
    tokens = client.service.tokens
    secrets = {scope: tokens.make(scope, [scope])[1] for scope in ("read", "execute", "ingest", "remediate")}
    try:
        for scope, status in (("read", 403), ("execute", 403), ("ingest", 403), ("remediate", 200)):
            answer = client.as_(secrets[scope]).post(
                f"/v1/nodes/{NODE}/returned", json={"reason": "repaired"}, headers={"If-Match": f'"{version}"'}
            )
            assert answer.status_code == status, (scope, answer.text)
    finally:
        forget_tokens(client)


def test_a_list_goes_page_by_page(client: Client) -> None:
    """Those that are not fit are listed by name, two at a time, each once."""
    for node in NODES[:3]:
        evicted(client, node=node)

    first = client.get("/v1/fleet/records", params={"limit": 2}).json()
    rest = client.get("/v1/fleet/records", params={"limit": 2, "after": first["next"]}).json()

    assert [one["node"] for one in (*first["items"], *rest["items"])] == list(NODES[:3])
    assert rest["next"] is None
