"""Who may do what: scopes, nodes, ends of tokens, the open service, and what of it is written down."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.api.audit import Audit
from service.api.auth import is_loopback
from tests.support.served import Client, an_event

SCOPES = ("ingest", "roles", "read", "execute", "remediate", "admin")
# What each scope may do: one address an operation that needs it. The answer is anything but 401 and 403.
NEEDS = {
    ("GET", "/v1/jobs"): {"read", "execute", "remediate", "admin"},
    ("GET", "/v1/events"): {"read", "execute", "remediate", "admin"},
    ("GET", "/metrics"): {"read", "execute", "remediate", "admin"},
    ("PUT", "/v1/jobs/j"): {"remediate", "admin"},
    ("POST", "/v1/nodes/n/commands"): {"remediate", "admin"},
    ("POST", "/v1/jobs/j/commands"): {"remediate", "admin"},
    ("POST", "/v1/pins"): {"remediate", "admin"},
    ("POST", "/v1/remediations/r/approve"): {"remediate", "admin"},
    ("POST", "/v1/remediations/r/claim"): {"execute", "admin"},
    ("PUT", "/v1/freeze"): {"remediate", "admin"},
    ("GET", "/v1/jobs/j/roles"): {"roles", "read", "execute", "remediate", "admin"},
    ("PUT", "/v1/jobs/j/roles"): {"roles", "admin"},
    ("POST", "/v1/jobs/j/roles/fence"): {"execute", "admin"},
    ("POST", "/v1/jobs/j/roles/restart"): {"remediate", "admin"},
    ("GET", "/v1/tokens"): {"admin"},
    ("POST", "/v1/tokens"): {"admin"},
    ("DELETE", "/v1/tokens/x"): {"admin"},
    ("POST", "/v1/records"): {"ingest", "admin"},
    ("GET", "/v1/nodes/n/commands"): {"ingest", "admin"},
    ("POST", "/v1/nodes/n/commands/take"): {"ingest", "admin"},
    ("GET", "/healthz"): set(SCOPES),
    ("GET", "/readyz"): set(SCOPES),
}


def made(client: Client, *scopes: str, **more: object) -> str:
    """Make a token and return its secret."""
    answer = client.post("/v1/tokens", json={"name": "x", "scopes": list(scopes), **more})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def events(client: Client, kind: str, least: int = 1) -> list[dict[str, object]]:
    """Return the events of a kind, the newest first, once there are so many: no answer waits for them."""
    return list(client.eventually(f"/v1/events?kind={kind}", lambda page: len(page["items"]) >= least)["items"])


def test_each_scope_opens_its_own_doors(client: Client) -> None:
    """Every operation is closed to the scopes that it does not need, and open to those that cover it."""
    admin = client.as_(made(client, "admin"))
    bearers = {scope: client.as_(made(admin, scope)) for scope in SCOPES}

    for (method, path), allowed in NEEDS.items():
        for scope, bearer in bearers.items():
            status = bearer.request(method, path, json={}).status_code
            assert (status not in (401, 403)) == (scope in allowed), f"{scope}: {method} {path} {status}"


def test_every_operation_needs_a_scope(client: Client) -> None:
    """With a token in the store no operation but the two of health answers somebody who has none."""
    paths = client.get("/openapi.json").json()["paths"]
    made(client, "admin")

    for path, operations in paths.items():
        for method in operations:
            address = path.replace("{id}", "1").replace("{node}", "n").replace("{job}", "j")
            status = client.request(method, address).status_code
            assert (status == 401) == (path not in ("/healthz", "/readyz")), f"{method} {path}: {status}"


def test_a_bound_token_speaks_for_its_node(client: Client) -> None:
    """A token of one node sends and takes commands for that node alone; the attempt to do otherwise is audited."""
    admin = client.as_(made(client, "admin"))
    agent = client.as_(made(admin, "ingest", node="gpu-0001"))

    assert agent.ship("gpu-0001", [an_event()]).status_code == 202
    assert agent.ship("gpu-0002", [an_event("gpu-0002")]).status_code == 403
    assert agent.ship("gpu-0001", [an_event("gpu-0002")], "b2").status_code == 403
    assert agent.get("/v1/nodes/gpu-0001/commands").status_code == 200
    assert agent.get("/v1/nodes/gpu-0002/commands").json()["type"] == "/docs/rest.md#not-your-node"
    assert events(admin, "node_refused")[0]["subject"] == "gpu-0002"
    assert "is of node 'gpu-0002'" in str(events(admin, "batch_refused")[0]["details"])


def test_an_unbound_token_does_not_speak_for_a_node_with_its_own(client: Client) -> None:
    """Once a node's agent has begun to use its own token, no token that is bound to none may send in its name."""
    admin = client.as_(made(client, "admin"))
    shared = client.as_(made(admin, "ingest"))
    agent = client.as_(made(admin, "ingest", node="gpu-0001"))
    assert shared.ship("gpu-0001", [an_event()]).status_code == 202

    assert agent.ship("gpu-0001", [an_event()], "b2").status_code == 202
    client.service.tokens.write_used()  # once a minute, in a service that runs
    client.service.tokens._forget()  # and its lookups every five seconds

    assert agent.ship("gpu-0001", [an_event()], "b3").status_code == 202
    refused = shared.ship("gpu-0001", [an_event()], "b4")
    assert (refused.status_code, refused.json()["type"]) == (403, "/docs/rest.md#not-your-node")
    assert shared.get("/v1/nodes/gpu-0001/commands").status_code == 403
    assert shared.ship("gpu-0002", [an_event("gpu-0002")], "b5").status_code == 202


def test_a_bound_token_has_one_scope(client: Client) -> None:
    """A token that is bound to a node and could read or change others is not made."""
    wish = {"name": "x", "scopes": ["ingest", "read"], "node": "gpu-0001"}

    assert client.post("/v1/tokens", json=wish).status_code == 422


def test_a_token_that_has_ended_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown, a revoked and an expired token are distinguished in the audit log, and none of them opens anything."""
    admin = client.as_(made(client, "admin"))
    at = admin.service.tokens._clock()
    secret, expiring = made(admin, "read"), made(admin, "read", expires_at=at + 100)
    assert client.as_(secret).get("/v1/jobs").status_code == 200
    ids = {row["id"] for row in admin.get("/v1/tokens").json()["items"] if row["scopes"] == ["read"]}
    monkeypatch.setattr(admin.service.tokens, "_clock", lambda: at + 101)
    expired = client.as_(expiring).get("/v1/jobs")
    monkeypatch.setattr(admin.service.tokens, "_clock", lambda: at)
    for id in ids:
        assert admin.delete(f"/v1/tokens/{id}").status_code == 204
        assert admin.delete(f"/v1/tokens/{id}").status_code == 204

    revoked, unknown = client.as_(secret).get("/v1/jobs"), client.as_("fh_no").get("/v1/jobs")

    assert [answer.status_code for answer in (expired, revoked, unknown)] == [401, 401, 401]
    assert revoked.headers["WWW-Authenticate"] == "Bearer"
    reported = [event["details"]["why"] for event in events(admin, "token_refused", 3)]  # type: ignore[index]
    assert set(reported) == {"expired", "revoked", "unknown"}
    assert admin.delete("/v1/tokens/none").status_code == 404


def test_a_wrong_scope_is_written_down(client: Client) -> None:
    """Who asks for more than its token allows is named in the audit log, with what it asked for."""
    admin = client.as_(made(client, "admin"))
    client.as_(made(admin, "ingest")).get("/v1/jobs")

    (event,) = events(admin, "scope_refused")

    assert event["subject"] == "GET /v1/jobs"
    assert str(event["actor"]).startswith("x (")


def test_a_flood_of_refusals_costs_one_row(client: Client) -> None:
    """Two hundred refusals of one sender are one event; /metrics counts them all."""
    admin = client.as_(made(client, "admin"))
    for _ in range(200):
        client.as_("").get("/v1/jobs")

    assert len(events(admin, "token_refused")) == 1
    assert 'faulthound_refusals_total{kind="token_refused"} 200.0' in admin.get("/metrics").text


def test_no_answer_waits_for_the_audit_log(client: Client) -> None:
    """A refusal is answered, and so is everybody else, while somebody else writes to the database; its row comes later."""
    admin = client.as_(made(client, "admin"))
    agent = client.as_(made(admin, "ingest", node="gpu-0001"))

    with admin.service.database.transaction():
        refused = agent.get("/v1/nodes/gpu-0002/commands", timeout=60)
        assert (refused.status_code, admin.get("/healthz", timeout=60).status_code) == (403, 200)

    assert events(admin, "node_refused")[0]["subject"] == "gpu-0002"


def test_what_was_not_told_is_counted(client: Client) -> None:
    """After a minute the next refusal is written down again, with how many were not."""
    clock = [0.0]
    audit = Audit(client.service.database, clock=lambda: clock[0])
    for at in (0.0, 1.0, 2.0, 61.0):
        clock[0] = at
        audit.refused("token_refused", "x", "y", "z")

    assert [event["details"]["untold"] for event in events(client, "token_refused")] == [2, 0]  # type: ignore[index]


def test_no_secret_is_kept(client: Client, tmp_path: Path) -> None:
    """A token's secret is nowhere in the database's files, and a repeated request for it is answered without it."""
    key = {"Idempotency-Key": "k1"}
    wish = {"name": "ops", "scopes": ["admin"]}
    first = client.post("/v1/tokens", json=wish, headers=key).json()
    admin = client.as_(first["token"])
    again = admin.post("/v1/tokens", json=wish, headers=key).json()
    third = admin.post("/v1/tokens", json=wish, headers=key).json()

    assert third == {**again, "token": ""}
    files = b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir())
    assert first["token"].encode() not in files
    assert first["id"].encode() in files


def test_an_open_service_is_for_its_own_machine(client: Client) -> None:
    """Without tokens only a request of this machine, to a name of its own, through no proxy, is answered."""
    host = {"Host": "127.0.0.1:4747"}
    assert client.get_from("127.0.0.1", "/v1/jobs", **host).status_code == 200
    assert client.get_from("::1", "/v1/jobs", Host="[::1]:4747").status_code == 200
    assert client.get_from("127.0.0.1", "/v1/jobs", Host="localhost:4747").status_code == 200

    assert client.get_from("10.0.0.7", "/v1/jobs", **host).status_code == 401
    assert client.get_from("127.0.0.1", "/v1/jobs", Host="evil.example").status_code == 401
    assert client.get_from("127.0.0.1", "/v1/jobs", **host, **{"X-Forwarded-For": "10.0.0.7"}).status_code == 401
    assert client.get_from("10.0.0.7", "/v1/tokens", **host).json()["type"] == "/docs/rest.md#unauthenticated"


def test_a_closed_service_stays_closed(client: Client) -> None:
    """The first token closes the service at once, and revoking it does not open it again."""
    admin = client.as_(made(client, "admin"))
    assert client.get("/v1/jobs").status_code == 401
    (token,) = admin.get("/v1/tokens").json()["items"]

    admin.delete(f"/v1/tokens/{token['id']}")

    assert client.get("/v1/jobs").status_code == 401
    assert admin.get("/v1/jobs").status_code == 401


@pytest.mark.parametrize(
    ("address", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False),
     ("::", False), ("10.0.0.1", False), ("localhost", False), ("::ffff:10.0.0.1", False), ("", False)],
)  # fmt: skip
def test_what_is_loopback(address: str, loopback: bool) -> None:
    """Loopback is decided by the address, never by a name, and also where IPv6 wraps IPv4."""
    assert is_loopback(address) is loopback


ANOTHER_SITE = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},  # another port of this machine, another user's server perhaps
    {"Origin": "http://evil.example"},
    {"Origin": "http://127.0.0.1:8888"},
    {"Origin": "null"},
]


@pytest.mark.parametrize("headers", ANOTHER_SITE)
def test_a_page_of_another_site_gets_nothing(client: Client, headers: dict[str, str]) -> None:
    """Open or with a token, no operation of the API answers what a browser sends for another site's page."""
    client.ship("n", [an_event("n")])
    client.eventually("/v1/nodes", lambda page: page["items"])
    client.post("/v1/nodes/n/commands", json={"verb": "recorders"})
    take = client.post("/v1/nodes/n/commands/take", headers=headers)
    assert (take.status_code, take.json()["type"]) == (403, "/docs/rest.md#forbidden")
    for method, path in NEEDS:
        if path.startswith("/v1"):
            assert client.request(method, path, headers=headers).status_code == 403, path
    assert len(client.post("/v1/nodes/n/commands/take").json()["commands"]) == 1

    admin = client.as_(made(client, "admin"))
    assert admin.get("/v1/jobs", headers=headers).status_code == 403


def test_a_browser_on_its_own_page_is_answered(client: Client) -> None:
    """What a page of the service links to, and an address typed by hand, are of no other site; nor is a program."""
    origin = {"Origin": str(client.base_url).rstrip("/")}
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, origin, {}):
        assert client.get("/v1/jobs", headers=headers).status_code == 200
    assert client.get("/healthz", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200
