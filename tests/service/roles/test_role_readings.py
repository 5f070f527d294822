"""What a directory of roles hears is in the log, as readings of its job alone, and under no node's name."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, update

from collectors.records import RoleState, block, directory_sender, is_directory
from service.roles import readings as readings_module
from service.store.log import Stored
from service.store.models import Job, RoleSlot
from tests.support.served import Client

JOB = "rl/math"
URL = f"/v1/jobs/{JOB}/roles"

pytestmark = pytest.mark.system


def batches(client: Client, at_least: int) -> list[Stored]:
    """Return the log's batches, once there are so many."""
    log = client.app.state.service.log
    for _ in range(600):
        client.app.state.service.role_readings.flush()
        found: list[Stored] = log.read_from(0, 100)
        if len(found) >= at_least:
            return found
        client.get("/healthz")
    raise AssertionError(f"{len(found)} batches of {at_least}")


def readings(stored: Stored) -> list[RoleState]:
    """Return the readings in a batch."""
    return [one for one in block.decode(stored.block) if isinstance(one, RoleState)]


def register(client: Client, **more: Any) -> dict[str, Any]:
    """Register rollout 3, or renew it."""
    asked = {"role": "rollout", "instance": "3", "process": "a", "node": "gpu-7", "pid": 4_711, **more}
    answer = client.put(URL, json=asked)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["role"])


def test_a_heartbeat_is_a_reading(client: Client) -> None:
    """It says what the instance does since when, by the service's clock, and comes in the job's own batches."""
    epoch = register(client)["epoch"]
    does = {
        "phase_seconds": 40.0, "waiting_for": "reward", "waiting_seconds": 30.0, "tokens_total": 900,
        "token_seconds": 31.0, "requests_running": 2,
    }  # fmt: skip
    shown = register(client, epoch=epoch, phase="reward", weights=7, activity=does)
    assert shown["activity"]["waiting_for"] == "reward"
    assert shown["pid"] == 4_711

    last = batches(client, 1)[-1]
    assert last.node == directory_sender(JOB)
    assert is_directory(last.node)
    (found,) = readings(last)
    assert (found.job, found.role, found.instance, found.epoch, found.attempt) == (JOB, "rollout", "3", epoch, None)
    assert (found.phase, found.weights, found.waiting_for, found.tokens_total) == ("reward", 7, "reward", 900)
    assert found.at is not None
    assert found.phase_since == pytest.approx(found.at - 40.0, abs=2.0)
    assert found.waiting_since == pytest.approx(found.at - 30.0, abs=2.0)
    assert found.last_token_at == pytest.approx(found.at - 31.0, abs=2.0)


def test_a_reading_has_the_hardware_that_was_declared(client: Client) -> None:
    """So that an instance is compared with those of its own kind; it is read again every ten seconds."""
    epoch = register(client)["epoch"]
    with client.app.state.service.database.transaction() as session:
        declared = {"node_kinds": {"gpu-7": "h20-a"}}
        session.merge(Job(name=JOB, first_seen_at=0.0, last_seen_at=0.0, declared=declared, version=1))
    client.app.state.service.role_readings.note_missing()
    register(client, epoch=epoch, weights=8)
    assert readings(batches(client, 1)[-1])[-1].hardware == "h20-a"


def test_a_directory_is_no_node(client: Client) -> None:
    """Its batches make no node of that name, and an agent cannot send in its name."""
    register(client)
    batches(client, 1)
    client.eventually("/healthz", lambda _: client.app.state.service.follower.sequence >= 1)
    assert client.get("/v1/nodes").json()["items"] == []
    forged = client.post("/v1/records", headers={"Faulthound-Node": directory_sender(JOB)}, json=[])
    assert forged.status_code == 422


def test_a_missing_heartbeat_is_a_reading(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance that renews no more is reported as it was heard last, as long as others of its job are heard."""
    register(client, instance="4", process="b")
    register(client, instance="5", process="c", lease_seconds=180.0)  # it renews each minute
    epoch = register(client)["epoch"]
    batches(client, 1)
    later = readings_module.now() + 40.0
    monkeypatch.setattr(readings_module, "now", lambda: later)
    with client.app.state.service.database.transaction() as session:
        session.execute(
            update(RoleSlot)
            .where(RoleSlot.instance == "3")
            .values(document=func.json_set(RoleSlot.document, "$.renewed_at", later))
        )
    assert epoch
    client.app.state.service.role_readings._heard[JOB] = later + 60.0
    client.app.state.service.role_readings.note_missing()
    found = [one for stored in batches(client, 2) for one in readings(stored) if one.at == later]
    assert [one.instance for one in found] == ["4"]
    assert found[0].renewed_at is not None
    assert found[0].renewed_at < later - 30.0


def test_what_an_earlier_attempt_left_is_not_missed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempt 1 has fewer rollouts: those of attempt 0 are over, whatever number it had; one of attempt 1 is missed."""
    for instance in ("3", "4"):
        register(client, instance=instance, process=f"first{instance}")
    register(client, instance="1", process="second1", attempt=1)
    register(client, instance="2", process="second2", attempt=1)
    batches(client, 1)
    later = readings_module.now() + 40.0
    monkeypatch.setattr(readings_module, "now", lambda: later)
    client.app.state.service.role_readings._heard[JOB] = later + 60.0
    client.app.state.service.role_readings.note_missing()
    found = [one for stored in batches(client, 2) for one in readings(stored) if one.at == later]
    assert sorted(one.instance for one in found) == ["1", "2"]


def test_that_an_epoch_was_fenced_is_reported_before_its_successor(client: Client) -> None:
    """Both come within one second: the end of the fenced process is part of the restart, and the engine has to know it."""
    first = register(client)["epoch"]
    assert (
        client.post(
            f"{URL}/fence", json={"role": "rollout", "instance": "3", "epoch": first, "reason": "it is restarted"}
        ).status_code
        < 300
    )
    second = register(client, process="b", pid=4_712)["epoch"]
    found = [(one.epoch, one.state, one.pid) for stored in batches(client, 1) for one in readings(stored)]
    assert (first, "fenced", 4_711) in found
    assert (second, "serving", 4_712) in found
