"""A scheduler in memory, its commands alone, through the whole claim loop against a real service."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from analyzers.remediation.messages import RemediationTick
from service.adapters.claims import HeldClaim
from service.adapters.scheduler import ClaimLoop, Keep, NotHere, Placed, SchedulerAway, Work
from service.client import Connection
from service.clock import now
from tests.support.served import Client
from tests.support.slurm.proposals import Heard, Shop

pytestmark = pytest.mark.system

NODES = ("gpu0", "gpu1", "gpu2")


class InMemory:
    """A scheduler of three nodes and one job."""

    kinds = frozenset({"evict"})

    def __init__(self) -> None:
        self.drained: set[str] = set()
        self.job_on, self.away = list(NODES), 0

    def find(self, found: dict[str, Any], placed: Callable[[], Placed]) -> Work:
        if not set(found["nodes"]) <= set(NODES):
            raise NotHere("it has other nodes")
        job = "7" if set(placed().nodes) <= set(self.job_on) else None
        return Work(kind=found["kind"], nodes={name: name for name in found["nodes"]}, job=job)

    def find_undo(self, found: dict[str, Any], give_back: Collection[str] | None, _is_undone: object) -> Work:
        return Work(kind=found["kind"], nodes={name: name for name in give_back or found["nodes"]})

    def commands(self, work: Work, task: str) -> list[list[str]]:
        return [[task, *work.nodes]]

    def drain(self, node: str, _work: Work, keep: Keep) -> str | None:
        keep()
        self.away -= 1
        if self.away >= 0:
            raise SchedulerAway("it starts again")
        was_drained = node in self.drained
        self.drained.add(node)
        return "drained" if was_drained else None

    def restart(self, _work: Work, _begun_at: float, keep: Keep) -> Moving:
        return Moving(self, keep)

    def undrain(self, node: str, _work: Work, _keep: Keep) -> str | None:
        self.drained.discard(node)
        return "given back"

    def allow(self, _work: Work, _keep: Keep) -> str | None:
        return "left as it is"


class Moving:
    """The job's restart."""

    refusal = ""

    def __init__(self, scheduler: InMemory, keep: Keep) -> None:
        self.scheduler, self.keep = scheduler, keep

    def __call__(self) -> str | None:
        self.keep()
        self.scheduler.job_on = [node for node in NODES if node not in self.scheduler.drained]
        return f"runs on {','.join(self.scheduler.job_on)}"


@pytest.fixture
def shop(client: Client, tmp_path: Path) -> Shop:
    """Return what proposes to the service."""
    return Shop(None, client, tmp_path)  # type: ignore[arg-type]


def test_a_second_scheduler_is_its_commands_alone(shop: Shop, connection: Connection) -> None:
    """Through a scheduler that is away at first: claimed, drained, restarted, reported, and undone when asked."""
    scheduler, heard = InMemory(), Heard()
    scheduler.away = 1
    loop = ClaimLoop(connection, scheduler, heard.note)
    far = shop.propose("far", ["tpu7"], ran_on=["tpu7", "tpu8"])
    loop.once()
    id = shop.propose("llama", ["gpu1"], ran_on=NODES)

    assert "do gpu1" in loop.dry_run()
    loop.once()

    assert shop.one(id)["did"] == {"gpu1": "drained", "job 7": "runs on gpu0,gpu2"}
    assert (shop.one(id)["status"], shop.one(far)["status"]) == ("verifying", "approved")
    shop.ask_undo(id)
    loop.once()
    assert (shop.one(id)["status"], scheduler.drained) == ("undone", set())
    assert heard.notes == [
        f"{far}: it has other nodes: it is left to others",
        f"{id}: done: gpu1 drained, job 7 runs on gpu0,gpu2",
        f"{id}: undone: gpu1 given back",
    ]


def test_it_recovers_after_a_restart(shop: Shop, connection: Connection) -> None:
    """A claim that a killed process held is resumed and finished by the next one."""
    id = shop.propose("llama", ["gpu1"], ran_on=NODES)
    HeldClaim.take(connection, id).begin()
    scheduler = InMemory()

    ClaimLoop(connection, scheduler, Heard().note).resume()

    assert (shop.one(id)["status"], scheduler.drained) == ("verifying", {"gpu1"})


def test_it_stops_when_its_lease_is_lost(shop: Shop, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once the service has given the claim up, no command more is run."""
    id = shop.propose("llama", ["gpu1"], ran_on=NODES)
    scheduler, heard = InMemory(), Heard()
    begin = HeldClaim.begin

    def begin_and_lose(claim: HeldClaim) -> Any:
        begun = begin(claim)
        shop.client.service.remedies.handle(RemediationTick(), now() + 61)
        claim._beat_at = 0.0
        return begun

    monkeypatch.setattr(HeldClaim, "begin", begin_and_lose)
    ClaimLoop(connection, scheduler, heard.note).once()

    assert scheduler.drained == set()
    assert "is given up" in heard.notes[-1]
    assert shop.one(id)["status"] == "failed"


def test_a_jobs_name_makes_no_line_of_a_dry_run(shop: Shop, connection: Connection) -> None:
    """What is printed may be pasted into a shell: a sender's line end begins no command, and its escapes steer no terminal."""
    shop.propose("far\nreboot\x1b[2J\u202e", ["tpu7"], ran_on=["tpu7", "tpu8"])

    shown = "\n".join(ClaimLoop(connection, InMemory(), Heard().note).dry_run())

    assert "of far\\nreboot" in shown
    assert not any(line.startswith("reboot") for line in shown.splitlines())
    assert not set(shown) & set("\x1b\u202e")
