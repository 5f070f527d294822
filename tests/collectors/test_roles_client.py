"""The role client against a real service: join, watch, be replaced; a service that goes away and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors import faulthound_roles as roles
from tests.support.role_epochs import epochs_from_one
from tests.support.served import Client, served, serving

__all__ = ["epochs_from_one"]

pytestmark = pytest.mark.usefixtures("epochs_from_one")
WAIT = 30.0
NO_ENGINE = {"FAULTHOUND_ENGINE": "false"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Return a client of a new service without an engine."""
    with served(tmp_path, engine=False) as client:
        yield client


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the threads of a test end soon after it."""
    monkeypatch.setattr(roles, "POLL_SECONDS", 2.0)


def of(client: Client, **more: object) -> roles.Service:
    """Return where the directory of a job is."""
    return roles.Service(url=client.url, job="rl/math", **more)  # type: ignore[arg-type]


def test_peers_see_who_serves(client: Client) -> None:
    """What an instance says of itself reaches its peers; one that left is not served any more."""
    peers = roles.watch(of(client))
    me = roles.join("rollout", "3", {"http": "10.0.0.7:9000"}, service=of(client), phase="init")
    me.weights(7)
    me.phase("generate")
    assert peers.wait(
        lambda seen: any(one.weights == 7 and one.phase == "generate" for one in seen.of("rollout")), WAIT
    )
    found = peers.get("rollout", "3")
    assert found is not None
    assert (found.endpoints, found.epoch, me.epoch) == ({"http": "10.0.0.7:9000"}, 1, 1)
    me.leave()
    assert peers.wait(lambda seen: seen.get("rollout", "3") is None, WAIT)
    peers.close()


def test_a_replaced_process_ends(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is fenced hears of it, its peers refuse its epoch, and the next one gets a higher one."""
    lost = threading.Event()
    peers = roles.watch(of(client))
    old = roles.join("rollout", "3", service=of(client), lease_seconds=1.0, lost=lambda _why: lost.set())
    assert peers.wait(lambda seen: seen.get("rollout", "3") is not None, WAIT)
    assert peers.accepts("rollout", "3", old.epoch)
    fence = {"role": "rollout", "instance": "3", "reason": "its node is evicted"}
    assert client.post("/v1/jobs/rl/math/roles/fence", json=fence).status_code == 200
    assert peers.wait(lambda seen: seen.get("rollout", "3") is None, WAIT)
    assert not peers.accepts("rollout", "3", old.epoch)
    assert lost.wait(WAIT)
    with pytest.raises(roles.Fenced):
        old.check()
    with pytest.raises(roles.Fenced):
        roles.join("rollout", "3", service=of(client), seconds=WAIT)

    monkeypatch.setattr(roles, "_OWN", {})  # another process
    new = roles.join("rollout", "3", service=of(client), seconds=WAIT)
    assert peers.accepts("rollout", "3", new.epoch)
    assert not peers.accepts("rollout", "3", old.epoch)
    new.leave()
    peers.close()


def test_a_slot_that_is_held_is_waited_for(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second process joins as soon as the lease of one that died is over, and gives up after its own time."""
    first = roles.join("reward", "0", service=of(client), lease_seconds=2.0)
    first._ended.set()  # it dies without a word
    monkeypatch.setattr(roles, "_OWN", {})
    with pytest.raises(TimeoutError, match="held by process"):
        roles.join("reward", "0", service=of(client), seconds=0.2)
    assert roles.join("reward", "0", service=of(client), seconds=WAIT).epoch == 2


def test_who_waits_to_join_says_what_for(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A held place is said at once, an absent service after some seconds, each once a minute; no secret of the URL is."""
    roles.join("reward", "0", service=of(client), lease_seconds=60.0)._ended.set()
    monkeypatch.setattr(roles, "_OWN", {})
    with pytest.raises(TimeoutError):
        roles.join("reward", "0", service=of(client), seconds=0.5)
    held = capsys.readouterr().err.splitlines()
    assert [line.partition(" is held by process ")[0] for line in held] == [
        "faulthound: reward 0 waits to be registered: reward 0"
    ]
    assert "for another " in held[0]

    away = roles.Service(url="http://ann:secret@127.0.0.1:9", job="rl")
    with pytest.raises(TimeoutError, match="does not answer"):
        roles.join("reward", "0", service=away, seconds=0.5)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(roles, "WAIT_SAID_SECONDS", (0.2, 60.0))
    with pytest.raises(TimeoutError, match="does not answer"):
        roles.join("reward", "0", service=away, seconds=2.0)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("faulthound: reward 0 waits to be registered: 127.0.0.1:9 does not answer")


@pytest.mark.system
def test_a_job_goes_on_without_the_service(tmp_path: Path) -> None:
    """After kill -9 of the service peers keep what they knew; when it is back, holders renew and have their epochs."""
    with serving(tmp_path, NO_ENGINE) as (url, process):
        service = roles.Service(url=url, job="rl")
        peers, me = roles.watch(service), roles.join("trainer", "0", service=service, lease_seconds=1.0)
        assert peers.wait(lambda seen: seen.get("trainer", "0") is not None, WAIT)
        epoch = me.epoch
        process.kill()
        process.wait()
        time.sleep(2.0)
        assert peers.get("trainer", "0") is not None
        me.check()
    port = url.rpartition(":")[2]
    with serving(tmp_path, NO_ENGINE, "--port", port) as (url, _process):
        me.weights(3)  # a phase wakes no watcher
        assert peers.wait(lambda seen: any(one.weights == 3 for one in seen.of("trainer")), WAIT)
        assert me.epoch == epoch
        me.leave()
    peers.close()


def test_a_job_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a job's name there is no directory to join."""
    monkeypatch.delenv("FAULTHOUND_JOB", raising=False)
    with pytest.raises(ValueError, match="FAULTHOUND_JOB"):
        roles.watch()


def test_what_it_does_is_reported(client: Client) -> None:
    """Phase, wait and progress reach the directory, with when each began; many changes are few requests."""
    me = roles.join("rollout", "3", service=of(client), lease_seconds=3.0)
    for number in range(1, 2_000):
        me.phase("generate" if number % 2 else "tool")
        me.progress(tokens=number, running=2)
    me.waiting("tool")
    shown = client.eventually(
        "/v1/jobs/rl/math/roles", lambda page: page["items"][0]["activity"]["waiting_for"] == "tool"
    )
    (one,) = shown["items"]
    assert (one["phase"], one["activity"]["tokens_total"], one["activity"]["requests_running"]) == (
        "generate",
        1_999,
        2,
    )
    assert one["activity"]["last_token_at"] <= one["activity"]["waiting_since"] <= one["renewed_at"]
    assert shown["version"] < 20
    me.working()
    client.eventually("/v1/jobs/rl/math/roles", lambda page: page["items"][0]["activity"]["waiting_for"] == "")
    me.leave()


class Whole:
    """A whole number of a library: NumPy's and torch's have such an index."""

    def __index__(self) -> int:
        return 41


def test_what_is_no_count_is_said_once_and_stops_no_job(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """A misspelt one, a text, a fraction, and a version that is none are left out beside the good ones; the lease goes on."""
    me = roles.join("rollout", "3", service=of(client), lease_seconds=3.0)
    for _ in range(3):
        me.progress(requests=3, running=3, tokens=Whole(), steps="12", queue=0.5)  # type: ignore[arg-type]
        me.weights("7")  # type: ignore[arg-type]
        me.phase(5)  # type: ignore[arg-type]
    me.weights(Whole())  # type: ignore[arg-type]
    assert me._doing.counts == {"running": 3, "tokens": 41}
    (shown,) = client.eventually("/v1/jobs/rl/math/roles", lambda page: page["items"][0]["weights"] == 41)["items"]
    assert (shown["phase"], shown["activity"]["tokens_total"], shown["activity"]["steps_total"]) == ("5", 41, None)
    said = capsys.readouterr().err.splitlines()
    assert [line.split(" is left out: ")[0] for line in said] == [
        "faulthound: requests as int", "faulthound: steps as str", "faulthound: queue as float", "faulthound: weights as str",
    ]  # fmt: skip
    assert "tokens, steps, running, waiting, queue" in said[0]
    me.leave()


def test_what_the_service_refuses_costs_no_place(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """A name of 65 letters is refused for ever: the instance renews without what it says, and says the rest again later."""
    me = roles.join("rollout", "3", service=of(client), lease_seconds=1.0)
    me.phase("x" * 65)
    time.sleep(3.0)
    me.check()
    (shown,) = client.get("/v1/jobs/rl/math/roles").json()["items"]
    assert (shown["state"], shown["phase"]) == ("serving", "")
    assert "at most 64" in capsys.readouterr().err
    assert client.get("/v1/jobs/rl/math/roles").json()["items"][0]["renewed_at"] > shown["registered_at"] + 1.0
    me.phase("generate")
    me.progress(tokens=9)
    client.eventually("/v1/jobs/rl/math/roles", lambda page: page["items"][0]["activity"]["tokens_total"] == 9)
    me.leave()


def test_the_seconds_between_waits_are_its_work() -> None:
    """They count on while it works, rest while it waits for one or another, and are not said of one that names no wait."""
    doing = roles._Doing()
    assert "worked_seconds" not in doing.said()
    doing.wait("queue:experience")
    assert (first := doing.said()["worked_seconds"]) < 0.1
    doing.wait("trainer")
    time.sleep(0.2)
    assert doing.said()["worked_seconds"] == first
    doing.wait("")
    time.sleep(0.2)
    assert doing.said()["worked_seconds"] >= first + 0.2
    doing.wait("reward")
    assert doing.said()["worked_seconds"] >= first + 0.2


def test_a_service_that_does_not_know_the_work_hears_the_rest(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An older one refuses a field that it does not know: the instance goes on without it, and keeps its place."""
    refused = threading.Event()
    call = roles.Service.call

    def older(service: roles.Service, method: str, path: str = "", body: Any = None, wait: float = 0.0) -> Any:
        if "worked_seconds" in (body or {}).get("activity", {}):
            refused.set()
            raise roles.Refused(422, "invalid", "activity.worked_seconds: extra inputs are not permitted", None)
        return call(service, method, path, body, wait)

    monkeypatch.setattr(roles.Service, "call", older)
    me = roles.join("trainer", "0", service=of(client), lease_seconds=3.0)
    me.waiting("trainer")
    shown = client.eventually(
        "/v1/jobs/rl/math/roles", lambda page: page["items"][0]["activity"]["waiting_for"] == "trainer"
    )
    assert refused.is_set()
    assert shown["items"][0]["activity"]["worked_seconds"] is None
    me.leave()


def test_a_long_lease_is_renewed_as_often_as_any(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine forgets in three minutes what is not said again: an instance with a lease of ten would come and go."""
    monkeypatch.setattr(roles, "LEASE_SECONDS", 0.6)
    roles.join("reward", "0", service=of(client), lease_seconds=600.0)

    def renewed_at() -> float:
        found = client.app.state.service.roles.read("rl/math")
        return next(slot.renewed_at for slot in found.slots.values())

    first, until = renewed_at(), time.monotonic() + 20.0
    while renewed_at() == first and time.monotonic() < until:
        time.sleep(0.05)
    assert renewed_at() > first
