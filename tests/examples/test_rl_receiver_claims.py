"""The receiver of the example beside a real service whose answers are lost: what was approved is done once, and reported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from analyzers.remediation.messages import Approve
from service.clock import now
from tests.support.served import REPOSITORY, Client, served

sys.path.insert(0, str(REPOSITORY / "examples" / "rl_job"))

import receiver as example

pytestmark = pytest.mark.system
URL = "/v1/jobs/rl/roles"
VERBS = ("claim", "begin", "fence", "complete")


class Flaky(example.Receiver):
    """Loses the first answers to each of some verbs: to a request that was carried out, or that never came."""

    def lose(self, verbs: tuple[str, ...], *, carried_out: bool, times: int = 1) -> None:
        """Set what is lost."""
        self._left, self._carried_out = dict.fromkeys(verbs, times), carried_out
        self.begins: Callable[[], None] = lambda: None

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None, key: str) -> Any:
        verb = path.rpartition("/")[2]
        lost, self._left[verb] = self._left.get(verb, 0) > 0, self._left.get(verb, 0) - 1
        if lost and not self._carried_out:
            raise ConnectionRefusedError("away")
        answer = super()._send(method, path, body, key)
        if verb == "begin":
            self.begins()
        if lost:
            raise TimeoutError("timed out")
        return answer


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """Return a client of a service without an engine."""
    with served(tmp_path, engine=False) as client:
        yield client


def register(client: Client, instance: str, process: str) -> None:
    """Let a process take the place of a rollout."""
    asked = {"role": "rollout", "instance": instance, "process": process}
    assert client.put(URL, json=asked).status_code == 200


def approved(client: Client) -> str:
    """Let a person ask for the restart of both rollouts, and approve it; return its id."""
    for instance in ("0", "1"):
        register(client, instance, f"first{instance}")
    id: str = client.post(f"{URL}/restart", json={"role": "rollout", "reason": "they hang"}).json()["id"]
    client.service.remedies.handle(Approve(id=id, by="ann"), now())
    return id


def receiver_of(client: Client, folder: Path, did: list[frozenset[str] | None]) -> Flaky:
    """Return a receiver that notes what it restarts."""
    file = folder / "secret"
    file.write_text("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")

    def restart(_role: str, which: frozenset[str] | None) -> dict[str, str]:
        did.append(which)
        return {f"rollout {one}": "pid 7" for one in sorted(which or ())}

    return Flaky(client.url, "", "rl", file, restart, lambda: None)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("carried_out", [True, False])
def test_an_answer_that_is_lost_costs_nothing(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, carried_out: bool
) -> None:
    """Whether the request came or not, it is repeated under its key: both are restarted once, and that is reported."""
    monkeypatch.setattr(example, "AGAIN_SECONDS", 0.0)
    did = list[frozenset[str] | None]()
    one, id = receiver_of(client, tmp_path, did), approved(client)
    one.lose((verb,), carried_out=carried_out, times=2)
    one.turn()
    assert did == [frozenset({"0", "1"})]
    found = client.get(f"/v1/remediations/{id}").json()
    assert (found["status"], found["did"]) == ("verifying", {"rollout 0": "pid 7", "rollout 1": "pid 7"})


@pytest.mark.parametrize("gone", ["1", "01"])
def test_what_was_replaced_meanwhile_is_left_alone(client: Client, tmp_path: Path, gone: str) -> None:
    """Another program was faster: its epoch is higher than the one in the plan."""
    did = list[frozenset[str] | None]()
    one, id = receiver_of(client, tmp_path, did), approved(client)
    one.lose((), carried_out=True)

    def faster() -> None:
        for instance in gone:
            fence = {"role": "rollout", "instance": instance, "reason": "x"}
            assert client.post(f"{URL}/fence", json=fence).status_code == 200
            register(client, instance, f"second{instance}")

    one.begins = faster
    one.turn()
    assert did == ([frozenset({"0"})] if gone == "1" else [])
    found = client.get(f"/v1/remediations/{id}").json()
    assert found["status"] == "verifying"
    assert {f"rollout {one}": "was replaced meanwhile" for one in gone}.items() <= found["did"].items()
