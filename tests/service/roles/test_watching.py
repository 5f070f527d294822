"""Those who wait for a change of a directory: a heartbeat wakes none of them."""

from __future__ import annotations

import asyncio

import pytest

from service.roles import watching
from service.roles.directory import Register, Renew
from service.roles.repository import RoleDirectories
from service.roles.watching import RoleWatch
from service.store.database import Database
from tests.support.role_epochs import epochs_from_one

__all__ = ["epochs_from_one"]

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("epochs_from_one")]
JOB = "rl"


class Counted(RoleWatch):
    """Counts how often all who wait are woken."""

    woken = 0

    def _wake_all(self) -> None:
        self.woken += 1
        super()._wake_all()


def test_a_change_wakes_those_who_wait_and_a_phase_wakes_nobody(database: Database) -> None:
    """A thousand instances change their phases by the second; their peers need epochs, endpoints and weights."""
    directories = RoleDirectories(database, lambda: 100.0)
    first, _ = directories.take(JOB, Register(role="rollout", instance="0", process="a"), "x")

    async def watched() -> tuple[int, bool, int]:
        watch = Counted(directories)
        waiting = asyncio.create_task(watch.wait(JOB, first.version, 20.0))
        await asyncio.sleep(0.7)  # one query
        watch.woken = 0
        for phase in ("generate", "wait", "generate"):
            slot, _ = directories.take(JOB, Renew(role="rollout", instance="0", epoch=1, phase=phase), "x")
            watch.wake(JOB, slot.version)
        await asyncio.sleep(0.7)
        by_phases, ended = watch.woken, waiting.done()
        slot, _ = directories.take(JOB, Renew(role="rollout", instance="0", epoch=1, weights=7), "x")
        watch.wake(JOB, slot.version)
        await waiting
        by_weights = watch.woken
        await watch.close()
        return by_phases, ended, by_weights

    assert asyncio.run(watched()) == (0, False, 1)


def test_many_who_wait_are_woken_together(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fifty changes in a moment the first wakes all at once, and the others wake them once more, at the newest version."""
    monkeypatch.setattr(watching, "READS_A_SECOND", 40.0)  # of 40 who wait: a second
    directories = RoleDirectories(database, lambda: 100.0)
    version = directories.take(JOB, Register(role="rollout", instance="0", process="a"), "x")[0].version

    async def watched() -> tuple[list[int], int, float]:
        began_at = asyncio.get_running_loop().time()
        watch, seen = Counted(directories), [version] * 40

        async def follow(number: int) -> None:
            while seen[number] < version + 50:
                await watch.wait(JOB, seen[number], 20.0)
                seen[number] = directories.versions(frozenset({JOB}))[JOB]

        tasks = [asyncio.create_task(follow(number)) for number in range(40)]
        await asyncio.sleep(0)
        for step in range(1, 51):
            slot, _ = directories.take(JOB, Renew(role="rollout", instance="0", epoch=1, weights=step), "x")
            watch._written(JOB, slot.version)
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        woken, seconds = watch.woken, asyncio.get_running_loop().time() - began_at
        await watch.close()
        return seen, woken, seconds

    seen, woken, seconds = asyncio.run(watched())
    assert seen == [version + 50] * 40
    assert woken <= 2 + seconds  # once a second, however long the changes take here
