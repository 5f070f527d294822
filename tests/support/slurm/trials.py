"""A real service and a real adapter with a Slurm that is pretended, and in which no time passes but the pretended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.adapters import claims, scheduler
from service.adapters.claims import Begun, HeldClaim
from service.adapters.scheduler import ClaimLoop
from service.adapters.slurm import slurm_actions
from service.adapters.slurm.slurm_actions import SlurmScheduler
from service.client import Connection, connected
from tests.support.served import served
from tests.support.slurm.pretended import At, Pretended, PretendedTime, nothing
from tests.support.slurm.proposals import Heard, Shop

RAN_ON = ("gpu0", "gpu1", "gpu2")


@dataclass
class Trial:
    """A service, its adapter, and a Slurm that is pretended."""

    shop: Shop
    connection: Connection
    time: PretendedTime
    heard: Heard = field(default_factory=Heard)
    slurm: Pretended = field(init=False)
    id: str = ""

    def begin(self, kind: str, at: At = nothing) -> None:
        """Have one approved, in a new Slurm."""
        self.shop.clear()
        self.slurm = Pretended(self.time, at)
        self.id = self.shop.propose("llama-7", ["gpu1"] if kind == "evict" else [], ran_on=RAN_ON, kind=kind)

    def adapter(self) -> ClaimLoop:
        """Return a new adapter."""
        return ClaimLoop(self.connection, SlurmScheduler(self.slurm), self.heard.note)

    def status(self) -> str:
        """Return how it stands."""
        return str(self.shop.one(self.id)["status"])

    def undisturbed(self, kind: str) -> list[tuple[int, str]]:
        """Return each command of a run, and when it can fail: a change before it has its effect and after that."""
        self.begin(kind)
        self.adapter().once()
        numbers, changes = range(1, self.slurm.commands + 1), self.slurm.changes
        return [(number, when) for number in numbers for when in ("before", "after")[: 1 + (number in changes)]]

    def is_right(self, kind: str) -> bool:
        """Whether all is as it should be: restarted once, the node drained once."""
        drains = [one for one in self.slurm.changes.values() if "State=DRAIN" in one]
        assert (self.status(), self.slurm.restarts) == ("verifying", 1), self.slurm.changes
        assert (self.slurm.drained(), len(drains)) == ((["gpu1"], 1) if kind == "evict" else ([], 0))
        return True


@contextmanager
def pretending(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    """Run a service."""
    time, begun = PretendedTime(), dict[str, float]()
    for module in (claims, scheduler, slurm_actions):
        monkeypatch.setattr(module, "time", time)
    monkeypatch.setattr(scheduler, "STEP_SECONDS", 2.5)
    begin = HeldClaim.begin

    def reported(claim: HeldClaim) -> Begun:
        """Let the service's clock pass as the pretended one does."""
        found = begin(claim).remediation
        return Begun(found, time.seconds - begun.setdefault(claim.id, time.seconds))

    monkeypatch.setattr(HeldClaim, "begin", reported)
    with served(folder, engine=False) as client, connected(client.url, None, None) as connection:
        yield Trial(Shop(None, client, folder), connection, time)  # type: ignore[arg-type]
