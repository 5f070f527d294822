"""A scheduler's claims, against a real service: they are kept, lost, taken up again, and nobody acts under a lost one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from analyzers.remediation.messages import AskUndo, RemediationTick
from service.adapters import claims as claiming
from service.adapters.claims import ClaimLost, HeldClaim
from service.adapters.scheduler import ClaimLoop, CommandRefused
from service.adapters.slurm import slurm_finding
from service.adapters.slurm.slurm_actions import SlurmScheduler
from service.adapters.slurm.slurm_commands import Slurm
from service.adapters.slurm.slurm_output import SlurmNode
from service.client import Connection, RequestRefused, connected
from service.clock import now
from tests.support.served import Client, served
from tests.support.slurm.proposals import Heard, Shop

pytestmark = pytest.mark.system

NODES = ("gpu0", "gpu1", "gpu2")


class Clock:
    """Time as a test wants it, in place of the module's own."""

    CLOCK_BOOTTIME = 7

    def __init__(self) -> None:
        self.at, self.suspended_seconds = 1_000.0, 0.0

    def monotonic(self) -> float:
        """Return the time."""
        return self.at

    def clock_gettime(self, which: int) -> float:
        """Return the time since the machine has booted, in which it may have been suspended."""
        assert which == self.CLOCK_BOOTTIME
        return self.at + self.suspended_seconds

    def sleep(self, seconds: float) -> None:
        """Let it pass."""
        self.at += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock of the claims."""
    clock = Clock()
    monkeypatch.setattr(claiming, "time", clock)
    return clock


def approved(client: Client, folder: Path) -> str:
    """Return the id of a remediation that can be claimed."""
    return Shop(None, client, folder).propose("llama", ["gpu1"], ran_on=NODES)  # type: ignore[arg-type]


def test_a_claim_that_is_kept_is_made_longer(
    client: Client, connection: Connection, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four times a minute the service hears that somebody is still there, not at every look; who decides sees no change."""
    beats: list[str] = []
    send = connection.send

    def counted(method: str, path: str, **options: Any) -> Any:
        beats.extend([path] if path.endswith("/heartbeat") else [])
        return send(method, path, **options)

    monkeypatch.setattr(connection, "send", counted)
    id = approved(client, tmp_path)
    claim = HeldClaim.take(connection, id)
    claim.begin()
    version = client.get(f"/v1/remediations/{id}").json()["version"]
    for _ in range(120):
        clock.sleep(1)
        claim.keep()
    claim.complete({"gpu1": "drained"})

    one = client.get(f"/v1/remediations/{id}").json()
    assert one["status"] == "verifying"
    assert 6 <= len(beats) <= 9
    assert one["version"] - version == 1  # the completion


def test_who_has_lost_its_claim_does_not_act(
    client: Client, connection: Connection, tmp_path: Path, clock: Clock
) -> None:
    """Once the service has given the claim up, the next look stops whoever held it, and what it says is refused."""
    id = approved(client, tmp_path)
    claim = HeldClaim.take(connection, id)
    claim.begin()
    client.service.remedies.handle(RemediationTick(), now() + 61)
    clock.sleep(16)

    with pytest.raises(ClaimLost, match="do not act"):
        claim.keep()
    with pytest.raises(RequestRefused, match="do not act"):
        claim.complete({})
    assert client.get(f"/v1/remediations/{id}").json()["status"] == "failed"


def test_who_slept_does_not_act(client: Client, tmp_path: Path, clock: Clock) -> None:
    """A process that was stopped for too long, or hears nothing of the service, ends before its lease does."""
    with connected(client.url, None, None) as connection, connected("http://127.0.0.1:9", None, None) as nowhere:
        claim = HeldClaim.take(connection, approved(client, tmp_path))
        claim._connection = nowhere
        clock.sleep(34)
        claim.keep()  # the lease that it has still holds
        clock.sleep(2)
        with pytest.raises(ClaimLost, match="was not reached"):
            claim.keep()


def test_who_was_suspended_does_not_act(client: Client, tmp_path: Path, clock: Clock) -> None:
    """A machine that slept for a minute has a lease that has run out, though no process on it has seen time pass."""
    with connected(client.url, None, None) as connection, connected("http://127.0.0.1:9", None, None) as nowhere:
        claim = HeldClaim.take(connection, approved(client, tmp_path))
        claim._connection = nowhere
        claim.keep()
        clock.suspended_seconds += 60
        with pytest.raises(ClaimLost, match="was not reached"):
            claim.keep()


def test_a_claim_that_the_policy_makes_shorter_ends_sooner(tmp_path: Path, clock: Clock) -> None:
    """The service gives 30 s where 60 were asked for: who hears nothing of it for 6 s has less than a command's time left."""
    policy = tmp_path / "policy.toml"
    policy.write_text("[limits]\nclaim_seconds = 30\n")
    with served(tmp_path, engine=False, policy=policy) as client, connected(client.url, None, None) as connection:
        claim = HeldClaim.take(connection, approved(client, tmp_path))
        clock.sleep(4)
        claim.keep()
        clock.sleep(2)
        with pytest.raises(ClaimLost, match="claim_seconds"):
            claim.keep()


class Stubborn(Slurm):
    """A Slurm that does not take a drain back."""

    def node(self, name: str) -> SlurmNode | None:
        """Return a node that is drained by whatever remediation asks."""
        return SlurmNode(name=name, flags=frozenset({"IDLE", "DRAIN"}), reason="faulthound inc-", by="slurm")

    def change(self, command: Sequence[str]) -> None:
        """Refuse."""
        raise CommandRefused(f"{command[0]}: Access/permission denied")


def test_an_undo_that_fails_is_not_tried_again_at_once(
    client: Client, connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slurm refuses it: it stays to be undone, and three looks within a minute try it once; the timeline has it once."""
    id = approved(client, tmp_path)
    claim = HeldClaim.take(connection, id)
    claim.begin()
    claim.complete({"gpu1": "drained"})
    client.service.remedies.handle(AskUndo(id=id, by="ann", reason="it is well"), now())
    monkeypatch.setattr(slurm_finding, "mark", lambda *_: "faulthound inc-")
    loop = ClaimLoop(connection, SlurmScheduler(Stubborn()), Heard().note)
    for _ in range(3):
        loop.once()

    assert client.get(f"/v1/remediations/{id}").json()["task"] == "undo"
    kinds = [one["kind"] for one in client.get("/v1/events").json()["items"]]
    assert kinds.count("remediation_undo_failed") == 1


class Answering:
    """A service whose clock has nothing to do with this machine's, forty seconds after a remediation was begun."""

    def send(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return what is answered to a claim and to a begin."""
        remediation = {"id": "rem-1", "began_at": 5_000.0}
        return {
            "token": 1,
            "task": "do",
            "until": 5_060.0,
            "seconds": 20.0 + 40.0 * self.new,
            "remediation": remediation,
        }

    new = True


def test_how_long_ago_it_was_begun_is_told_by_the_service_alone(clock: Clock) -> None:
    """Just begun, or taken up again after forty seconds: the age is of the service's clock, whatever ours says."""
    service = Answering()
    claim = HeldClaim.take(cast("Connection", service), "rem-1")
    assert claim.begin().seconds_ago == 0.0
    clock.sleep(1)
    service.new = False
    assert claim.begin().seconds_ago == 40.0


def test_a_claim_is_taken_up_by_its_holder_only(client: Client, tmp_path: Path) -> None:
    """After a restart the same token finds its claim again; another scheduler's stays where it is."""
    id = approved(client, tmp_path)
    admin = client.post("/v1/tokens", json={"name": "ops", "scopes": ["admin"]}).json()["token"]
    files = {}
    for name in ("slurm", "other"):
        made = client.as_(admin).post("/v1/tokens", json={"name": name, "scopes": ["execute"]}).json()
        files[name] = tmp_path / name
        files[name].write_text(made["token"])
    with connected(client.url, None, files["slurm"]) as mine, connected(client.url, None, files["other"]) as theirs:
        token = HeldClaim.take(mine, id).token
        found = mine.get(f"/v1/remediations/{id}")
        assert HeldClaim.resume(theirs, found) is None
        again = HeldClaim.resume(mine, found)
        with pytest.raises(RequestRefused, match="claimed by"):
            HeldClaim.take(theirs, id)

    assert again is not None
    assert again.token == token
