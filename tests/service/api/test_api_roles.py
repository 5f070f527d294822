"""The directory of roles over REST: epochs, leases, watchers, tokens of a job."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.api import role_documents
from tests.service.api.test_api_tokens import made
from tests.support.role_epochs import epochs_from_one
from tests.support.served import Client, served

__all__ = ["epochs_from_one"]

pytestmark = pytest.mark.usefixtures("epochs_from_one")
URL = "/v1/jobs/rl/math/roles"  # a job's name may hold a slash


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Return a client of a new service without an engine."""
    with served(tmp_path, engine=False) as client:
        yield client


def register(client: Client, process: str = "a", **more: Any) -> Any:
    """Ask for a slot."""
    return client.put(URL, json={"role": "rollout", "instance": "3", "process": process, **more})


def test_a_replacement_has_a_higher_epoch(client: Client) -> None:
    """A second process waits for the lease or for a fence; what it replaced is refused from then on."""
    first = register(client, endpoints={"http": "10.0.0.7:9000"}).json()["role"]
    assert (first["epoch"], first["state"], first["endpoints"]) == (1, "serving", {"http": "10.0.0.7:9000"})

    taken = register(client, "b")
    assert (taken.status_code, taken.json()["type"]) == (409, "/docs/rest.md#conflict")
    assert 20 <= int(taken.headers["Retry-After"]) <= 30

    fence = {"role": "rollout", "instance": "3", "epoch": 1, "reason": "its node is evicted"}
    assert client.post(f"{URL}/fence", json=fence).json()["role"]["state"] == "fenced"
    assert register(client, "b").json()["role"]["epoch"] == 2
    for late in (register(client, epoch=1), register(client), client.post(f"{URL}/fence", json=fence)):
        assert (late.status_code, late.json()["type"]) == (409, "/docs/rest.md#fenced")
    kinds = [event["kind"] for event in client.eventually("/v1/events", lambda page: len(page["items"]) >= 3)["items"]]
    assert kinds[:3] == ["role_registered", "role_fenced", "role_registered"]


def test_a_role_of_which_no_rule_says_what_it_is_for_is_named(client: Client) -> None:
    """By a read and by the stream; one that left, a queue, and one with a row are none."""
    for role in ("oracle", "rollout", "queue", "sage"):
        client.put(URL, json={"role": role, "instance": "0", "process": role})
    epoch = next(one["epoch"] for one in client.get(URL).json()["items"] if one["role"] == "sage")
    assert client.post(f"{URL}/leave", json={"role": "sage", "instance": "0", "epoch": epoch}).status_code == 200
    assert client.get(URL).json()["unknown_roles"] == ["oracle"]
    with client.stream("GET", f"{URL}/stream?wait_seconds=1") as answer:
        assert _next(answer.iter_lines())["unknown_roles"] == ["oracle"]


def test_who_is_not_heard_within_its_lease_is_said(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its state stays what the directory holds: it keeps its place until another takes it. One that left is not missed."""
    epochs = {}
    for name, lease in (("0", 30.0), ("1", 600.0), ("2", 30.0)):
        asked = {"role": "rollout", "instance": name, "process": name, "lease_seconds": lease}
        epochs[name] = client.put(URL, json=asked).json()["role"]["epoch"]
    client.post(f"{URL}/leave", json={"role": "rollout", "instance": "2", "epoch": epochs["2"]})
    assert client.get(URL).json()["unheard"] == []
    later = role_documents.now() + 60.0
    monkeypatch.setattr(role_documents, "now", lambda: later)
    shown = client.get(URL).json()
    assert shown["unheard"] == ["rollout 0"]
    assert [one["state"] for one in shown["items"]] == ["serving", "serving", "left"]


def test_what_one_instance_says_is_bounded(client: Client) -> None:
    """Every instance reads the whole directory: endpoints of 4,096 bytes are taken, more are refused with the bound."""
    few = {f"e{number}": "x" * 500 for number in range(8)}
    assert register(client, endpoints=few).status_code == 200
    refused = register(client, endpoints=few | {"e8": "x" * 500})
    assert refused.status_code == 422
    assert "4,096 are the most" in refused.text


def test_a_watcher_gets_what_changed(client: Client) -> None:
    """A long poll waits for a change of its job and answers with that alone; a heartbeat is none."""
    assert client.get(URL).status_code == 404
    for instance in ("1", "2"):
        register(client, instance=instance, process=instance)
    known = client.get(URL).json()
    assert ([one["instance"] for one in known["items"]], known["version"], known["epoch"]) == (["1", "2"], 2, 2)
    register(client, instance="1", process="1", epoch=1)
    assert client.get(f"{URL}?after=2").json()["items"] == []

    changed = threading.Timer(
        0.3, lambda: register(client, instance="2", process="2", epoch=2, weights=7, phase="sync")
    )
    changed.start()
    answer = client.get(f"{URL}?after=2&wait_seconds=30").json()
    changed.join()
    assert [(one["instance"], one["weights"], one["phase"]) for one in answer["items"]] == [("2", 7, "sync")]
    assert answer["version"] == 3
    changed.join()


def test_the_stream_has_each_change(client: Client) -> None:
    """Server-sent events carry the whole directory first, then each change, with the version as id."""
    register(client)
    with client.stream("GET", f"{URL}/stream?wait_seconds=20") as answer:
        lines = answer.iter_lines()
        assert _next(lines)["items"][0]["epoch"] == 1
        left = {"role": "rollout", "instance": "3", "epoch": 1}
        assert client.post(f"{URL}/leave", json=left).status_code == 200
        assert [(one["state"], one["epoch"]) for one in _next(lines)["items"]] == [("left", 1)]


def test_a_watcher_of_a_lost_database_gets_the_new_directory(client: Client) -> None:
    """It was further than one from a backup has counted: it gets all that there is at once, and not only what comes."""
    register(client)
    began = time.monotonic()
    polled = client.get(f"{URL}?after=999&wait_seconds=20").json()
    assert (polled["version"], [one["epoch"] for one in polled["items"]]) == (1, [1])
    assert time.monotonic() - began < 10.0
    with client.stream("GET", f"{URL}/stream?after=999&wait_seconds=2") as answer:
        found = _next(answer.iter_lines())
        assert (found["version"], [one["epoch"] for one in found["items"]]) == (1, [1])


def test_a_jobs_token_is_for_its_directory(client: Client) -> None:
    """It registers and reads there, and nothing else; fencing takes a scheduler's."""
    admin = client.as_(made(client, "admin"))
    own = client.as_(made(admin, "roles", job="rl/math"))
    other = client.as_(made(admin, "roles", job="another"))
    reading = client.as_(made(admin, "read"))
    fence = {"role": "rollout", "instance": "3", "reason": "x"}
    assert (register(own).status_code, own.get(URL).status_code, reading.get(URL).status_code) == (200, 200, 200)
    assert (register(other).status_code, other.get(URL).status_code, register(reading).status_code) == (403, 403, 403)
    assert (own.post(f"{URL}/fence", json=fence).status_code, own.get("/v1/jobs").status_code) == (403, 403)
    assert client.as_(made(admin, "execute")).post(f"{URL}/fence", json=fence).status_code == 200
    refused = admin.post("/v1/tokens", json={"name": "x", "scopes": ["roles", "read"], "job": "rl/math"})
    assert refused.status_code == 422


def _next(lines: Iterator[str]) -> Any:
    for line in lines:
        if line.startswith("data: "):
            return json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream has ended")


def test_a_person_proposes_a_restart(client: Client) -> None:
    """It is a proposal with the epoch to fence, which nothing can claim before it is approved."""
    ask = {"role": "rollout", "instance": "3", "reason": "it answers nothing"}
    assert client.post(f"{URL}/restart", json=ask).status_code == 404
    register(client, node="gpu-7")
    one = client.post(f"{URL}/restart", json=ask).json()
    assert (one["kind"], one["role"], one["status"], one["task"]) == ("restart_role", "rollout", "proposed", None)
    assert (one["role_restart"]["instance"], one["role_restart"]["epochs"]) == ("3", {"3": 1})
    assert client.post(f"{URL}/restart", json=ask).json()["id"] == one["id"]
    client.put(URL, json={"role": "controller", "instance": "0", "process": "c"})
    refused = client.post(f"{URL}/restart", json={"role": "controller", "reason": "it is slow"})
    assert (refused.status_code, refused.json()["type"]) == (409, "/docs/rest.md#conflict")
    assert "manages the job" in refused.json()["detail"]
