"""What people order for all over REST: holds, the freeze, the breaker, and the policy that they may look at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from analyzers.remediation.messages import Approve, Begin, RemediationTick, Take
from service.clock import now
from service.store.models import ShadowCase
from tests.support.incident_rows import JOB
from tests.support.remediation_rows import NODES, PLAN_ID, cleared, forget_tokens, plan, propose, seeded
from tests.support.served import Client, served

URL = f"/v1/remediations/{PLAN_ID}"
POLICY = """
[limits]
breaker_least_nodes = 1

[[rules]]
name = "never-entered"
mode = "automatic"
symptom = "hang"
least_probability = 0.9

[[rules]]
name = "by hand"
"""


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the policy."""
    file = tmp_path_factory.mktemp("policy") / "policy.toml"
    file.write_text(POLICY)
    return file


@pytest.fixture(scope="module")
def running_service(tmp_path_factory: pytest.TempPathFactory, policy_file: Path) -> Iterator[Client]:
    """Return a client of a service without an engine, in which one node more trips the breaker."""
    with served(tmp_path_factory.mktemp("service"), engine=False, policy=policy_file) as client:
        yield client


@pytest.fixture
def client(running_service: Client) -> Client:
    """Return a client in whose service one eviction is approved."""
    service = running_service.service
    cleared(service.database)
    seeded(service.database, service.remedies)
    service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    return running_service


def hindered(client: Client) -> list[str]:
    """Return what stands in the way of the eviction."""
    return [one["code"] for one in client.get(URL).json()["hindrances"]]


def tag(client: Client, path: str) -> dict[str, str]:
    """Return the header of a change to something as it is now."""
    return {"If-Match": client.get(path).headers["ETag"]}


def kinds(client: Client) -> set[str]:
    """Return the kinds of all events."""
    return {event["kind"] for event in client.get("/v1/events?limit=1000").json()["items"]}


@pytest.mark.parametrize("of", [{"node": NODES[1]}, {"job": JOB}])
def test_a_hold_stands_in_the_way(client: Client, of: dict[str, str]) -> None:
    """A held node, and a held job, is left alone until the hold is ended; who, why and until when is shown."""
    until = now() + 3_600
    made = client.post("/v1/holds", json={**of, "until": until, "reason": "its HBM is being tested"})

    assert made.status_code == 201, made.text
    hold = made.json()
    assert (hold["until"], hold["reason"], hold["node"], hold["job"]) == (
        until, "its HBM is being tested", of.get("node"), of.get("job"),
    )  # fmt: skip
    assert hindered(client) == ["held"]
    assert client.get("/v1/holds").json()["items"] == [hold]
    name, value = next(iter(of.items()))
    assert client.get(f"/v1/holds?{name}={value}").json()["items"] == [hold]
    assert client.get(f"/v1/holds?{name}=x").json()["items"] == []

    expire, seen = f"/v1/holds/{hold['id']}/expire", {"If-Match": f'"{hold["version"]}"'}
    unseen, other = client.post(expire), client.post(expire, headers={"If-Match": '"7"'})
    assert (unseen.status_code, other.status_code) == (428, 412)
    assert client.get("/v1/holds").json()["items"] == [hold]
    ended = client.post(expire, json={"reason": "it passed"}, headers=seen)

    assert ended.json()["until"] <= now()
    assert hindered(client) == []
    assert client.get("/v1/holds").json()["items"] == []
    assert client.post(expire, headers=seen).status_code == 404
    reported = {event["kind"]: event["details"] for event in client.get("/v1/events").json()["items"]}
    assert reported["hold_added"]["reason"] == "its HBM is being tested"
    assert reported["hold_expired"]["reason"] == "it passed"


def test_a_hold_of_an_unknown_node_is_refused(client: Client) -> None:
    """A misspelt name holds nothing: the answer names those that are like it. A known one counts in any case."""
    body = {"until": now() + 3_600, "reason": "x"}
    for dry_run in ("?dry_run=true", ""):
        refused = client.post(f"/v1/holds{dry_run}", json={"node": f"{NODES[1]}O", **body})
        assert (refused.status_code, refused.json()["type"]) == (404, "/docs/rest.md#not-found")
        assert NODES[1] in refused.json()["detail"]
        assert "allow_unknown" in refused.json()["detail"]
    unlike = client.post("/v1/holds", json={"node": "zzz", **body}).json()["detail"]
    assert "did you mean" not in unlike
    assert client.get("/v1/holds").json()["items"] == []

    (made,) = [client.post("/v1/holds", json={"node": NODES[1].upper(), **body})]
    assert (made.status_code, made.json()["known"]) == (201, True)
    assert hindered(client) == ["held"], "a hold in capitals is of the same node"
    assert len(client.get(f"/v1/holds?node={NODES[1]}").json()["items"]) == 1


def test_a_node_is_found_in_any_case(client: Client) -> None:
    """Host names are the same in any case; what is shown is the agent's own spelling."""
    name = NODES[1].upper()
    assert client.get(f"/v1/nodes/{name}").json()["name"] == NODES[1]
    assert client.get(f"/v1/nodes/{name}/record").json()["node"] == NODES[1]
    fit = client.get(f"/v1/nodes/{NODES[1]}/fitness").json()
    assert client.get(f"/v1/nodes/{name}/fitness").json() == {**fit, "node": name}
    (command,) = client.post(f"/v1/nodes/{name}/commands", json={"verb": "recorders"}).json()["items"]
    assert command["node"] == NODES[1]


def test_a_hold_of_what_nobody_has_seen_says_so(client: Client) -> None:
    """An unknown node or job may be held; the answer, the list and a rehearsal say that nobody knows it."""
    until, found = now() + 3_600, {}
    for of in (
        {"node": NODES[1]},
        {"node": f"{NODES[1]}.example"},
        {"job": JOB},
        {"node": "gpu-9413"},
        {"job": "lama"},
    ):
        body = {**of, "until": until, "reason": "x", "allow_unknown": True}
        made, tried = client.post("/v1/holds", json=body), client.post("/v1/holds?dry_run=true", json=body)
        assert (made.status_code, tried.json()["known"]) == (201, made.json()["known"])
        found[next(iter(of.values()))] = made.json()["known"]

    assert found == {NODES[1]: True, f"{NODES[1]}.example": True, JOB: True, "gpu-9413": False, "lama": False}
    listed = client.get("/v1/holds").json()["items"]
    assert {one["node"] or one["job"]: one["known"] for one in listed} == found


def test_a_hold_ends_by_itself(client: Client) -> None:
    """A hold whose time is over stands in no way and in no list, and the audit log says that it is over."""
    made = client.post("/v1/holds", json={"node": NODES[1], "until": now() + 0.2, "reason": "a moment"})
    assert made.status_code == 201, made.text

    client.eventually("/v1/holds", lambda page: page["items"] == [])
    client.service.remedies.handle(RemediationTick(), now())

    assert hindered(client) == []
    assert "hold_expired" in kinds(client)


@pytest.mark.parametrize(
    "wish",
    [
        {}, {"node": "a", "job": "b"}, {"node": "a b"}, {"node": NODES[1], "until": 1.0}, {"node": NODES[1], "until": 1e300},
        {"node": NODES[1], "reason": ""}, {"node": NODES[1], "reason": "two\nlines"}, {"node": NODES[1], "by": "bob"},
    ],
)  # fmt: skip
def test_a_hold_that_makes_no_sense_is_refused(client: Client, wish: dict[str, object]) -> None:
    """A hold of nothing, of both, until yesterday, without a reason or in another's name is refused."""
    whole = {"until": now() + 60, "reason": "x"} | wish

    assert client.post("/v1/holds", json=whole).status_code == 422
    assert client.get("/v1/holds").json()["items"] == []


def test_a_hold_is_made_once_and_rehearsed_for_nothing(client: Client) -> None:
    """The same hold under the same key is one hold; a dry run makes none, and ends none."""
    wish = {"node": NODES[1], "until": now() + 60, "reason": "x"}
    dry = client.post("/v1/holds?dry_run=true", json=wish, headers={"Idempotency-Key": "h"})
    first, again = (client.post("/v1/holds", json=wish, headers={"Idempotency-Key": "h"}).json() for _ in range(2))
    dry_end = client.post(f"/v1/holds/{first['id']}/expire?dry_run=true", headers={"If-Match": "*"})

    assert (dry.status_code, dry_end.status_code) == (201, 200)
    assert first == again
    assert [one["id"] for one in client.get("/v1/holds").json()["items"]] == [first["id"]]


def test_a_freeze_stops_everything(client: Client) -> None:
    """While it is frozen nothing can be claimed; the freeze names who and why, and only what was seen is changed."""
    before = client.get("/v1/freeze")
    assert before.json() == {"frozen": False, "by": "", "reason": "", "at": None}
    wish = {"frozen": True, "reason": "the power is switched"}
    assert client.put("/v1/freeze", json=wish).json()["type"] == "/docs/rest.md#precondition-required"
    assert client.put("/v1/freeze", json={"reason": "x"}, headers={"If-Match": "*"}).status_code == 422

    assert client.put("/v1/freeze?dry_run=true", json=wish, headers=tag(client, "/v1/freeze")).json()["frozen"]
    assert client.get("/v1/freeze").headers["ETag"] == before.headers["ETag"]
    frozen = client.put("/v1/freeze", json=wish, headers=tag(client, "/v1/freeze"))
    stale = client.put("/v1/freeze", json=wish, headers={"If-Match": before.headers["ETag"]})

    assert frozen.json()["frozen"]
    assert client.put("/v1/freeze", json={"reason": "x"}, headers={"If-Match": "*"}).status_code == 422
    assert frozen.headers["ETag"] == client.get("/v1/freeze").headers["ETag"]
    assert client.get("/v1/freeze").json() == frozen.json()
    assert stale.status_code == 412
    assert hindered(client) == ["frozen"]
    assert client.post(f"{URL}/claim").json()["type"] == "/docs/rest.md#hindered"
    again = client.put("/v1/freeze", json=wish, headers={"If-Match": "*"})
    assert again.json()["type"] == "/docs/rest.md#conflict"
    thawed = client.put("/v1/freeze", json={"frozen": False, "reason": "done"}, headers=tag(client, "/v1/freeze"))
    assert thawed.json()["frozen"] is False
    assert hindered(client) == []
    assert {"frozen", "thawed"} <= kinds(client)


def test_only_a_person_closes_the_breaker(client: Client) -> None:
    """The breaker that an eviction has opened keeps the next one from acting until somebody says why it is closed."""
    assert client.get("/v1/breaker").json()["breaker"] == {"nodes": 0, "most": 1, "seconds": 3_600.0}
    assert client.post("/v1/breaker/close", json={"reason": "x"}, headers={"If-Match": "*"}).status_code == 409
    remedies = client.service.remedies
    remedies.handle(Take(id=PLAN_ID, by="slurm"), now())
    remedies.handle(Begin(id=PLAN_ID, by="slurm", token=1), now())
    next_one = replace(plan("rem-ffffffffffff"), incident="inc-ffffffffffff", nodes=NODES[2:3], job="other")
    propose(remedies, next_one)

    opened = client.get("/v1/breaker")
    assert opened.json()["open"]
    assert opened.json()["fleet_nodes"] == len(NODES)
    assert "breaker" in [one["code"] for one in client.get(f"/v1/remediations/{next_one.id}").json()["hindrances"]]
    assert client.post("/v1/breaker/close", json={}).status_code == 422
    stale = client.post("/v1/breaker/close", json={"reason": "a switch"}, headers={"If-Match": '"0"'})
    assert stale.status_code == 412
    unseen = client.post("/v1/breaker/close", json={"reason": "a switch"})
    assert unseen.json()["type"] == "/docs/rest.md#precondition-required"
    seen = tag(client, "/v1/breaker")
    dry = client.post("/v1/breaker/close?dry_run=true", json={"reason": "a switch"}, headers=seen)
    assert (dry.json()["open"], client.get("/v1/breaker").json()["open"]) == (False, True)

    closed = client.post("/v1/breaker/close", json={"reason": "a switch"}, headers=tag(client, "/v1/breaker"))

    assert (closed.json()["open"], closed.json()["breaker"]["nodes"]) == (False, 0)
    assert closed.json()["budget"]["nodes"] == 1
    assert "breaker" not in [one["code"] for one in client.get(f"/v1/remediations/{next_one.id}").json()["hindrances"]]
    assert {"breaker_tripped", "breaker_closed"} <= kinds(client)


def test_what_has_begun_can_be_stopped_by_nobody_but_undone(client: Client) -> None:
    """Cancelling what a scheduler has begun is refused with what it is now."""
    remedies = client.service.remedies
    remedies.handle(Take(id=PLAN_ID, by="slurm"), now())
    remedies.handle(Begin(id=PLAN_ID, by="slurm", token=1), now())

    answer = client.post(f"{URL}/cancel", json={"reason": "no"}, headers={"If-Match": "*"})

    assert answer.json()["type"] == "/docs/rest.md#conflict"
    assert "executing" in answer.json()["detail"]


def test_the_policy_shows_its_locks(client: Client) -> None:
    """Each rule that could act shows how many closed incidents it was right about, the lower bound, and why it is locked."""
    with client.service.database.transaction() as session:
        for number in range(30):
            one = replace(
                plan(f"rem-{number:012x}"), incident=f"inc-{number:012x}", rule="never-entered", mode="shadow"
            )
            session.add(case(one, correct=number > 0))

    shown = client.get("/v1/policy").json()

    assert shown["problem"] is None
    assert shown["limits"]["breaker_least_nodes"] == 1
    automatic, by_hand = shown["rules"]
    assert (automatic["lock"]["n"], automatic["lock"]["precision"]) == (30, pytest.approx(29 / 30))
    assert automatic["lock"]["bound"] == pytest.approx(0.8333, abs=1e-3)  # Wilson's, 29 of 30
    assert "less than its 95.0%" in automatic["lock"]["why"]
    assert by_hand["lock"] is None


def case(one: object, *, correct: bool) -> ShadowCase:
    """Return a closed incident that a rule in shadow mode would have acted upon."""
    import msgspec

    return ShadowCase(
        remediation=one.id, incident=one.incident, at=now(), closed_at=now(), correct=correct,  # type: ignore[attr-defined]
        because="", document=msgspec.to_builtins(one),
    )  # fmt: skip


def test_a_broken_policy_lets_nothing_act(client: Client, policy_file: Path) -> None:
    """While the policy's file is no policy, what is wrong is shown, and no rule is in force."""
    try:
        policy_file.write_text(POLICY + "\nmode = 1\n")
        os.utime(policy_file, (1, 1))
        shown = client.get("/v1/policy").json()
        assert shown["rules"] == []
        assert "mode" in shown["problem"]
    finally:
        policy_file.write_text(POLICY)
    assert client.get("/v1/policy").json()["problem"] is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [(POLICY, None), ("[[rules]]\nname = 'x'\nmode = 'often'", "often"), ("rules = [", "no TOML"), ("[" * 9_000, "TOML")],
)  # fmt: skip
def test_a_policy_is_checked_before_it_is_used(client: Client, text: str, problem: str | None) -> None:
    """A text is understood, or what is wrong with it is said; neither changes anything."""
    answer = client.post("/v1/policy/check", json={"text": text})

    assert answer.status_code == 200, answer.text
    assert (answer.json()["problem"] is None) == (problem is None)
    assert problem is None or problem in answer.json()["problem"]
    assert (answer.json()["policy"] is None) == (problem is not None)
    assert len(client.get("/v1/policy").json()["rules"]) == 2


def test_only_who_may_change_stops_things(client: Client) -> None:
    """Holding, freezing and closing the breaker take the scope remediate; looking takes read."""
    tokens = {scope: client.service.tokens.make(scope, [scope])[1] for scope in ("read", "execute", "remediate")}
    client.service.open_access.recheck()
    asked = [
        ("POST", "/v1/holds"), ("POST", "/v1/holds/hold-1/expire"), ("PUT", "/v1/freeze"), ("POST", "/v1/breaker/close"),
    ]  # fmt: skip
    try:
        for scope, token in tokens.items():
            own = client.as_(token)
            changes = {own.request(method, path, json={}).status_code == 403 for method, path in asked}
            looks = {own.get(path).status_code for path in ("/v1/holds", "/v1/freeze", "/v1/breaker", "/v1/policy")}
            assert changes == {scope != "remediate"}, scope
            assert looks == {200}, scope
    finally:
        forget_tokens(client)
