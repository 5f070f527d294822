"""Roles in memory through the whole claim loop against a real service: fenced first, and only what is still the old one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from analyzers.remediation.messages import Approve
from service.adapters.scheduler import ClaimLoop, Keep, RoleWork
from service.client import Connection
from service.clock import now
from tests.support.served import Client
from tests.support.slurm.proposals import Heard

pytestmark = pytest.mark.system

URL = "/v1/jobs/rl/roles"


class Roles:
    """Restarts what it is asked to, at once. ``begins``: what happens as the restart begins."""

    def __init__(self, client: Client, begins: Callable[[], None] = lambda: None) -> None:
        self.client, self.begins = client, begins
        self.asked = list[str]()
        self.refusal = ""

    def find_role(self, work: RoleWork) -> RoleWork:
        """Every instance is its own."""
        return work

    def role_commands(self, work: RoleWork) -> list[list[str]]:
        """Return the commands of a dry run."""
        return [["restart", work.what]]

    def restart_role(self, work: RoleWork, keep: Keep) -> Callable[[], str | None]:  # type: ignore[override]
        """Return the restart; nothing is fenced yet."""
        keep()
        self.asked.append(f"look {work.what} {self.state()}")
        self.begins()

        def restart() -> str | None:
            self.asked.append(f"restart {work.what} {self.state()}")
            return "runs anew"

        restart.refusal = ""  # type: ignore[attr-defined]
        return restart

    def state(self) -> str:
        """Return the states of the rollouts, one letter each."""
        return "".join(one["state"][0] for one in self.client.get(URL).json()["items"])


def register(client: Client, instance: str, process: str) -> None:
    """Let a process take the place of a rollout."""
    asked = {"role": "rollout", "instance": instance, "process": process}
    assert client.put(URL, json=asked).status_code == 200


def replace(client: Client, instance: str) -> None:
    """Let another program fence a rollout and start another."""
    fence = {"role": "rollout", "instance": instance, "reason": "x"}
    assert client.post(f"{URL}/fence", json=fence).status_code == 200
    register(client, instance, f"second{instance}")


def approved(client: Client) -> str:
    """Let a person ask for the restart of all rollouts, and approve it; return its id."""
    for instance in ("0", "1"):
        register(client, instance, f"first{instance}")
    id: str = client.post(f"{URL}/restart", json={"role": "rollout", "reason": "they hang"}).json()["id"]
    client.service.remedies.handle(Approve(id=id, by="ann"), now())
    return id


def test_it_is_looked_at_then_fenced_then_restarted(client: Client, connection: Connection) -> None:
    """By an adapter that does roles alone; a dry run prints it, and evictions are left to others."""
    roles, heard = Roles(client), Heard()
    loop = ClaimLoop(connection, None, heard.note, roles)  # type: ignore[arg-type]
    id = approved(client)
    assert "restart 'rollout 0,1'" in loop.dry_run()
    loop.once()
    assert roles.asked == ["look rollout 0,1 ss", "restart rollout 0,1 ff"]
    one = client.get(f"/v1/remediations/{id}").json()
    assert (one["status"], one["did"]) == ("verifying", {"rollout 0,1": "runs anew"})


def test_what_is_replaced_as_it_begins_is_not_touched(client: Client, connection: Connection) -> None:
    """Another program is faster between the look and the fence: the other instance alone is looked at again, and restarted."""
    left = ["0"]

    def faster() -> None:
        while left:
            replace(client, left.pop())

    roles = Roles(client, begins=faster)
    id = approved(client)
    ClaimLoop(connection, None, Heard().note, roles).once()  # type: ignore[arg-type]
    assert roles.asked == ["look rollout 0,1 ss", "look rollout 1 ss", "restart rollout 1 sf"]
    one = client.get(f"/v1/remediations/{id}").json()
    assert one["did"] == {"rollout 0": "was replaced meanwhile", "rollout 1": "runs anew"}
    assert one["status"] == "verifying"


@pytest.mark.parametrize("gone", ["1", "01"])
def test_what_was_replaced_after_the_claim_is_left_alone(client: Client, connection: Connection, gone: str) -> None:
    """The rest is restarted; with all of them replaced nothing is to be done."""
    roles, id = Roles(client), approved(client)
    loop = ClaimLoop(connection, None, Heard().note, roles)  # type: ignore[arg-type]
    real = loop._restart_role

    def late(*given: object) -> None:
        for instance in gone:
            replace(client, instance)
        real(*given)  # type: ignore[arg-type]

    loop._restart_role = late  # type: ignore[method-assign]
    loop.once()

    did = client.get(f"/v1/remediations/{id}").json()["did"]
    meanwhile = {f"rollout {instance}": "was replaced meanwhile" for instance in gone}
    assert did == meanwhile | ({"rollout 0": "runs anew"} if gone == "1" else {})
    assert roles.asked == (["look rollout 0 ss", "restart rollout 0 fs"] if gone == "1" else [])
