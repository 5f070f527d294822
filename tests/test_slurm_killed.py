"""The adapter is killed, or one of Slurm's commands hangs, at every moment: the job is restarted once, or nothing more is done.

Slurm is pretended, and its clock an hour's worth of days away from the service's; service and claims are real.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from service.adapters import claiming, slurm, slurm_actions
from service.adapters.claiming import Begun, Claim
from service.adapters.slurm import Scheduler
from service.clock import now
from service.commands.connection import Connection, connected
from service.remediation.events import Tick
from tests.served import served
from tests.slurm.pretended import At, Killed, Pretended, PretendedTime, hangs, kills, nothing
from tests.slurm.proposals import Heard, Shop

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

    def adapter(self) -> Scheduler:
        """Return a new adapter."""
        return Scheduler(self.connection, self.slurm, self.heard)

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


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    """Return a trial in which no time passes but the pretended."""
    time, begun = PretendedTime(), dict[str, float]()
    for module in (claiming, slurm, slurm_actions):
        monkeypatch.setattr(module, "time", time)
    monkeypatch.setattr(slurm_actions, "POLL_SECONDS", 2.5)
    begin = Claim.begin

    def told(claim: Claim) -> Begun:
        """Let the service's clock pass as the pretended one does."""
        found = begin(claim).remediation
        return Begun(found, time.seconds - begun.setdefault(claim.id, time.seconds))

    monkeypatch.setattr(Claim, "begin", told)
    with served(tmp_path, engine=False) as client, connected(client.url, None, None) as connection:
        yield Trial(Shop(None, client, tmp_path), connection, time)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["evict", "restart_job"])
def test_whenever_it_is_killed_the_job_is_restarted_once(trial: Trial, kind: str) -> None:
    """Before any command, and after any change: the next adapter finishes, and nothing is done twice."""
    moments = trial.undisturbed(kind)
    for number, when in moments:
        trial.begin(kind, kills(number, when))
        with pytest.raises(Killed):
            trial.adapter().once()
        trial.slurm.goes_on()
        successor = trial.adapter()
        successor.resume()
        successor.once()
        assert trial.is_right(kind), (number, when)
    print(f"killed at {len(moments)} moments")


def test_whichever_command_hangs_the_job_is_restarted_once(trial: Trial) -> None:
    """Twenty seconds without an answer, with and without the effect that nobody heard of: it is looked at, not done again."""
    for number, when in trial.undisturbed("evict"):
        trial.begin("evict", hangs(trial.time, number, when))
        adapter = trial.adapter()
        adapter.once()
        adapter.once()  # what hung before it was claimed
        assert trial.is_right("evict"), (number, when)


def test_a_job_that_slurm_puts_back_by_itself_is_not_put_back_again(trial: Trial) -> None:
    """Before any command of ours, the requeue itself the last: it is restarted once, without the node."""
    trial.undisturbed("evict")
    (requeue,) = (number for number, what in trial.slurm.changes.items() if what.startswith("requeue"))
    for number in range(1, requeue + 1):

        def itself(at: int, when: str, number: int = number) -> None:
            if (at, when) == (number, "before"):
                trial.slurm.put_back()

        trial.begin("evict", itself)
        trial.adapter().once()
        assert trial.is_right("evict"), number
        assert trial.slurm.runs_on() == ("gpu0", "gpu2", "gpu3")


def test_a_lease_that_runs_out_while_a_command_hangs_ends_the_work(trial: Trial) -> None:
    """The service has given the claim up meanwhile: not one command more, and what was done can be undone."""
    stopped_at = 0

    def expires() -> None:
        nonlocal stopped_at
        trial.shop.client.service.remedies.handle(Tick(), now() + 61)
        stopped_at = trial.slurm.commands

    for number, when in trial.undisturbed("evict"):
        trial.begin("evict", hangs(trial.time, number, when, expires))
        trial.adapter().once()

        one = trial.shop.one(trial.id)
        assert one["claims"] == 0 or trial.slurm.commands == stopped_at, (number, when, trial.slurm.changes)
        assert one["status"] == ("approved" if one["began_at"] is None else "failed"), (number, when)
        if one["began_at"] is not None:
            trial.shop.ask_undo(trial.id)
            trial.adapter().once()
            assert (trial.status(), trial.slurm.drained()) == ("undone", []), (number, when)
