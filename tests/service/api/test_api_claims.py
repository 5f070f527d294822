"""The scheduler's side of the contract over REST: claims, leases, fencing tokens, and what a lost answer costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from analyzers.remediation.messages import AddHold, Approve, RemediationTick, SetFreeze
from analyzers.remediation.types import Freeze, Hold
from service.clock import now
from service.store.models import Remediation as Row
from tests.support.incident_rows import JOB
from tests.support.remediation_rows import NODES, PLAN_ID, cleared, forget_tokens, seeded
from tests.support.served import Client, served

URL = f"/v1/remediations/{PLAN_ID}"
FENCED = "/docs/rest.md#fenced"


@pytest.fixture
def client(running_service: Client) -> Iterator[Client]:
    """Return a scheduler's client; one eviction is approved."""
    service = running_service.service
    cleared(service.database)
    seeded(service.database, service.remedies)
    service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
    yield running_service.as_(service.tokens.make("slurm", ["execute"])[1])
    forget_tokens(running_service)


def other(client: Client, scope: str = "execute") -> Client:
    """Return the client of another token."""
    return client.as_(client.service.tokens.make("other", [scope])[1])


def claim(client: Client, seconds: float = 60.0, **headers: str) -> httpx.Response:
    """Claim it."""
    own = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(f"{URL}/claim", json={"seconds": seconds}, headers=own)


def say(client: Client, verb: str, token: int, **more: Any) -> httpx.Response:
    """Say something under a claim."""
    return client.post(f"{URL}/{verb}", json={"token": token, **more})


def ended(client: Client) -> None:
    """Have the newest claim's lease run out, and the engine see it."""
    with client.service.database.transaction() as session:
        row = session.get(Row, PLAN_ID)
        assert row is not None
        row.document = row.document | {"claim": row.document["claim"] | {"until": now() - 1}}


def listed(client: Client) -> list[str]:
    """Return what the service says that can be claimed."""
    return [one["id"] for one in client.get("/v1/remediations?claimable=true").json()["items"]]


def together(ask: Callable[[Client], httpx.Response], clients: Sequence[Client]) -> list[httpx.Response]:
    """Return what each client was answered when all asked at once."""
    with ThreadPoolExecutor(len(clients)) as threads:
        return list(threads.map(ask, clients))


def test_an_eviction_goes_its_way(client: Client) -> None:
    """What is approved is listed, claimed, kept, begun and completed; what was done is kept, and who did it is reported."""
    assert listed(client) == [PLAN_ID]
    held = claim(client).json()
    assert (held["token"], held["task"], held["remediation"]["status"]) == (1, "do", "claimed")
    assert held["until"] == pytest.approx(now() + 60, abs=10)
    assert listed(client) == []

    kept = say(client, "heartbeat", 1, seconds=120).json()
    begun = say(client, "begin", 1).json()
    done = say(client, "complete", 1, did={NODES[1]: {"was": "idle", "drained": True}}).json()

    assert kept["until"] > held["until"]
    assert begun["remediation"]["status"] == "executing"
    assert (done["status"], done["claim"], done["task"]) == ("verifying", None, None)
    assert done["did"] == {NODES[1]: {"was": "idle", "drained": True}}
    events = client.get("/v1/events?limit=1000").json()["items"]
    mine = {event["kind"] for event in events if event["actor"].startswith("slurm (") and event["subject"] == PLAN_ID}
    assert mine == {"remediation_claimed", "remediation_begun", "remediation_completed"}


def test_what_was_done_is_undone(client: Client) -> None:
    """A person asks for it, any scheduler claims it with the task undo and a new token, and says when it is undone."""
    claim(client), say(client, "begin", 1), say(client, "complete", 1, did={NODES[1]: "drained"})
    ann = other(client, "remediate")
    assert (
        ann.post(f"{URL}/undo", json={"reason": "its test passed"}, headers={"If-Match": "*"}).json()["task"] == "undo"
    )
    assert listed(client) == [PLAN_ID]

    held = claim(client).json()
    undone = say(client, "complete", held["token"], did={NODES[1]: "resumed"}).json()

    assert (held["token"], held["task"]) == (2, "undo")
    assert undone["status"] == "undone"
    assert listed(client) == []


def test_one_of_many_gets_it(client: Client) -> None:
    """Of eight schedulers that claim at the same moment one gets it; the others are informed that it is claimed."""
    found = together(claim, [other(client) for _ in range(8)])

    assert sorted(answer.status_code for answer in found) == [200] + [409] * 7
    assert [answer.json()["token"] for answer in found if answer.is_success] == [1]


def test_a_lost_answer_is_given_again(client: Client) -> None:
    """A claim, a completion and a failure sent again under their key are answered as before, and done once."""
    first, again = claim(client, Idempotency_Key="c"), claim(client, Idempotency_Key="c")
    say(client, "begin", 1)
    completed = [
        client.post(f"{URL}/complete", json={"token": 1}, headers={"Idempotency-Key": "d"}).json() for _ in range(2)
    ]

    assert first.json() == again.json()
    assert completed[0] == completed[1]
    assert client.get(URL).json()["claims"] == 1


def test_what_is_said_again_is_answered_again(client: Client) -> None:
    """Beginning and completing twice under one token, without a key, changes nothing the second time."""
    claim(client)
    begun = [say(client, "begin", 1).json()["remediation"] for _ in range(2)]
    done = [say(client, "complete", 1).json() for _ in range(2)]

    assert begun[0]["began_at"] == begun[1]["began_at"]
    assert begun[0]["version"] == begun[1]["version"]
    assert done[0] == done[1]


@pytest.mark.parametrize("verb", ["heartbeat", "begin", "complete", "fail"])
def test_a_late_claimant_cannot_act(client: Client, verb: str) -> None:
    """Whoever comes after its lease has run out is fenced, before and after somebody else has claimed; it is noted."""
    claim(client)
    ended(client)
    more = {"reason": "late"} if verb == "fail" else {}
    late = say(client, verb, 1, **more)
    client.service.remedies.handle(RemediationTick(), now())
    second = other(client)
    assert claim(second).json()["token"] == 2

    overtaken = say(client, verb, 1, **more)

    assert [answer.json()["type"] for answer in (late, overtaken)] == [FENCED, FENCED]
    assert "do not act" in overtaken.json()["detail"]
    assert client.get(URL).json()["claim"]["token"] == 2
    noted = client.eventually("/v1/events?kind=fenced_refused", lambda page: page["items"])["items"]
    assert noted[0]["subject"] == PLAN_ID


def test_a_key_lets_nobody_act_late(client: Client) -> None:
    """Beginning again under an old key after the lease has run out is fenced, not answered from memory."""
    claim(client)
    key = {"Idempotency-Key": "b"}
    assert client.post(f"{URL}/begin", json={"token": 1}, headers=key).status_code == 200
    ended(client)

    assert client.post(f"{URL}/begin", json={"token": 1}, headers=key).json()["type"] == FENCED


def test_a_guessed_token_is_worth_nothing(client: Client) -> None:
    """The fencing token is a number that anybody can guess; it is good only with the bearer token that claimed."""
    claim(client)
    thief = other(client)

    answers = [
        say(thief, verb, 1, **({"reason": "x"} if verb == "fail" else {})) for verb in ("begin", "complete", "fail")
    ]

    assert {answer.json()["type"] for answer in answers} == {FENCED}
    assert client.get(URL).json()["status"] == "claimed"


def test_only_who_executes_claims(client: Client) -> None:
    """Claiming takes the scope execute: a reader, an agent and a person who approves are refused."""
    statuses = {scope: claim(other(client, scope)).status_code for scope in ("read", "ingest", "remediate", "admin")}

    assert statuses == {"read": 403, "ingest": 403, "remediate": 403, "admin": 200}


def test_what_stands_in_the_way_is_told(client: Client) -> None:
    """Claiming what is held is refused with each reason as a code and a sentence, and it is not listed as claimable."""
    hold = Hold(id="hold-1", by="ann", reason="burn-in", made_at=now(), until=now() + 600, node=NODES[1])
    client.service.remedies.handle(AddHold(hold=hold), now())
    client.service.remedies.handle(
        SetFreeze(freeze=Freeze(by="bob", reason="move", at=now()), by="bob", reason="move"), now()
    )

    refused = claim(client)

    assert (refused.status_code, refused.json()["type"]) == (409, "/docs/rest.md#hindered")
    assert [one["code"] for one in refused.json()["hindrances"]] == ["frozen", "held"]
    assert "burn-in" in refused.json()["hindrances"][1]["text"]
    assert listed(client) == []
    assert client.get(URL).json()["task"] == "do"
    assert client.eventually("/v1/events?kind=hindered_refused", lambda page: page["items"])


def test_a_hold_stops_it_until_it_begins(client: Client) -> None:
    """A hold made between claim and begin keeps it from beginning."""
    claim(client)
    hold = Hold(id="hold-1", by="ann", reason="burn-in", made_at=now(), until=now() + 600, job=JOB)
    client.service.remedies.handle(AddHold(hold=hold), now())

    assert say(client, "begin", 1).json()["type"] == "/docs/rest.md#hindered"
    assert client.get(URL).json()["status"] == "claimed"


def test_a_failure_says_what_was_done(client: Client) -> None:
    """A failed execution keeps what was done before it, in one line why, and can be undone."""
    claim(client), say(client, "begin", 1)

    failed = say(client, "fail", 1, reason="scontrol:\n\tno such \x1b[1mjob", did={NODES[1]: "drained"}).json()

    assert (failed["status"], failed["because"]) == ("failed", "scontrol: no such [1mjob")
    assert failed["did"] == {NODES[1]: "drained"}
    ann = other(client, "remediate")
    assert ann.post(f"{URL}/undo", json={"reason": "back"}, headers={"If-Match": "*"}).status_code == 200


@pytest.mark.parametrize(
    "did",
    [
        '{"gpu-0002": NaN}', '{"gpu-0002": "\\ud800"}', '{"gpu-0002": 1e999}', '{"gpu-0002": "\\u0000"}',
        '{"gpu-0002": {"\\u0000": ["\\\\u0000"]}}',
        '{"": 1}', '{"gpu-0002": ' + "[" * 500 + "]" * 500 + "}", '{"gpu-0002": ' + "9" * 400 + "}",
        '{"gpu-0002": "' + "x" * (300 << 10) + '"}',
    ],
    ids=["nan", "surrogate", "infinite", "nul", "nul inside", "nameless", "deep", "long number", "large"],
)  # fmt: skip
def test_odd_words_do_no_harm(client: Client, did: str) -> None:
    """Whatever a claimant says that it did is taken as plain JSON, or refused by rule; it is never an error of ours."""
    claim(client), say(client, "begin", 1)

    body = f'{{"token": 1, "did": {did}}}'.encode()
    answer = client.post(f"{URL}/complete", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code in (200, 400, 422), answer.text
    assert client.get(URL).status_code == 200
    assert client.get("/v1/events").status_code == 200


@pytest.mark.parametrize("seconds", [0, -1, 1e9, "x", None])
def test_the_length_of_a_claim_is_bounded(client: Client, seconds: Any) -> None:
    """A claim for no time, for years or for a word is refused."""
    assert client.post(f"{URL}/claim", json={"seconds": seconds}).status_code == 422


def test_a_claim_is_no_longer_than_the_policy_says(client: Client) -> None:
    """However long a claim is asked for, it ends within the policy's bound; a heartbeat does not make it shorter."""
    held = claim(client, 80_000.0).json()

    assert held["until"] < now() + client.service.policy().limits.claim_seconds + 1
    assert say(client, "heartbeat", 1, seconds=5).json()["until"] >= held["until"]


@pytest.mark.system
def test_two_processes_give_one_claim(url: str, tmp_path: Path) -> None:
    """Two services of one database let one of many schedulers have it, and both fence the one that was late."""
    with (
        served(tmp_path / "a", engine=False, database_url=url) as left,
        served(tmp_path / "b", engine=False, database_url=url) as right,
    ):
        seeded(left.service.database, left.service.remedies)
        left.service.remedies.handle(Approve(id=PLAN_ID, by="ann"), now())
        assert left.get(URL).json() == right.get(URL).json()
        tokens = [left.service.tokens.make(f"slurm-{number}", ["execute"])[1] for number in range(4)]
        schedulers = [(left, right)[number % 2].as_(token) for number, token in enumerate(tokens)]

        found = together(claim, schedulers)

        assert sorted(answer.status_code for answer in found) == [200, 409, 409, 409]
        winner = next(token for answer, token in zip(found, tokens, strict=True) if answer.status_code == 200)
        assert say(right.as_(winner), "begin", 1).json()["remediation"]["status"] == "executing"
        ended(left)
        assert say(left.as_(winner), "complete", 1).json()["type"] == FENCED
