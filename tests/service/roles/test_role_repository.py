"""The stored directories: what was answered is there after a restart, on both databases; old ones are forgotten."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import delete, update

from service.roles import repository
from service.roles.directory import Fence, Leave, Register, RegistrationRefused, Renew
from service.roles.repository import FORGOTTEN_SECONDS, QUIET_SECONDS, DirectoryFull, RoleDirectories
from service.store.database import Database
from service.store.models import Attempt, Job, RoleDirectory, RoleSlot
from tests.support.postgres import database, postgres, url

__all__ = ["database", "postgres", "url"]

LEASE = 30.0


def of(database: Database, at: float) -> RoleDirectories:
    """Return the directories of a service that was started at an instant, which it is for ever."""
    return RoleDirectories(database, lambda: at)


def register(process: str, instance: str = "3", attempt: int = 0) -> Register:
    """Return the request of a process for a slot."""
    return Register(role="rollout", instance=instance, process=process, attempt=attempt, lease_seconds=LEASE)


def test_a_restarted_service_has_lost_nothing(database: Database) -> None:
    """The epochs go on, holders renew, and no lease has ended while no service listened."""
    assert of(database, 0.0).take("rl", register("a"), "x")[0].epoch == 1

    later = of(database, 10.0)
    with pytest.raises(RegistrationRefused) as refused:
        later.take("rl", register("b"), "x")
    assert (refused.value.kind, refused.value.seconds) == ("held", LEASE)
    assert later.take("rl", Renew(role="rollout", instance="3", epoch=1), "x") == (
        later.read("rl").slots["rollout\x1f3"],  # type: ignore[union-attr]
        LEASE,
    )
    assert later.take("rl", register("b", attempt=1), "x")[0].epoch > 1
    with pytest.raises(RegistrationRefused, match="has lost"):
        later.take("rl", register("a"), "x")


def test_no_epoch_is_given_twice_after_the_loss_of_the_database(database: Database) -> None:
    """A new directory, and one from a backup, begin beyond what could be given before; a heartbeat alone changes no version."""
    before = of(database, 1_000.0)
    kept = before.take("rl", register("a"), "x")[0]
    given = [before.take("rl", register(f"b{number}", f"{number}"), "x")[0] for number in range(20, 60)]
    with database.transaction() as session:  # as it was after the first
        session.execute(delete(RoleSlot).where(RoleSlot.instance != "3"))
        session.execute(update(RoleDirectory).values(epoch=kept.epoch, version=kept.version))
    restored = of(database, 1_001.0)
    restored.take("rl", Renew(role="rollout", instance="3", epoch=kept.epoch), "x")
    assert restored.versions(frozenset({"rl"})) == {"rl": kept.version}
    next_one = restored.take("rl", register("c", "99"), "x")[0]
    assert next_one.epoch > given[-1].epoch
    assert next_one.version > given[-1].version
    with database.transaction() as session:
        session.execute(delete(RoleDirectory))
    new = RoleDirectories(database, lambda: 1_002.0).take("rl", register("d"), "x")[0]
    assert (new.epoch > next_one.epoch, new.version > next_one.version) == (True, True)


def test_who_is_further_than_a_directory_gets_all_of_it(database: Database) -> None:
    """Its version is of another database."""
    directories = of(database, 1_000.0)
    version = directories.take("rl", register("a"), "x")[0].version
    found = directories.read("rl", version + 7)
    assert found is not None
    assert [slot.instance for slot in found.slots.values()] == ["3"]
    assert directories.read("rl", version).slots == {}  # type: ignore[union-attr]


def test_an_attempt_that_no_agent_sees_hides_none_that_runs(database: Database) -> None:
    """Agents see attempt 3: 2^31 - 1 waits until they see it too; the next ones, and jobs without agents, wait for nothing."""
    directories = of(database, 0.0)
    with database.transaction() as session:
        session.add(Job(name="rl", first_seen_at=0.0, last_seen_at=0.0, declared={}, version=1))
        session.flush()
        session.add(Attempt(job="rl", number=3, first_seen_at=0.0, last_seen_at=0.0, world_size=4))
    directories.take("rl", register("a", attempt=3), "x")
    for job, number in (("rl", 4), ("rl", 19), ("alone", (1 << 31) - 1)):
        assert directories.take(job, register(f"b{number}", attempt=number), "x")[0].attempt == number
    with pytest.raises(RegistrationRefused, match="2,147,483,647 of rl is more than 16 beyond 3") as refused:
        directories.take("rl", register("c", attempt=(1 << 31) - 1), "x")
    assert (refused.value.kind, refused.value.seconds) == ("held", 10.0)


def test_of_many_at_once_one_gets_the_slot(database: Database) -> None:
    """Processes that register the same slot at one moment get one epoch between them; of others each gets its own."""
    directories = of(database, 0.0)

    def attempt(number: int) -> int | None:
        try:
            instance = "3" if number % 2 else str(100 + number)
            return directories.take("rl", register(f"p{number}", instance), "x")[0].epoch
        except RegistrationRefused:
            return None

    with ThreadPoolExecutor(8) as threads:
        epochs = [epoch for epoch in threads.map(attempt, range(16)) if epoch is not None]
    assert sorted(epochs) == list(range(1, 10))


def test_only_old_directories_are_forgotten(database: Database) -> None:
    """A directory in which nothing was renewed for a month goes with its slots."""
    of(database, 0.0).take("old", register("a"), "x")
    of(database, 0.0).take("living", register("a"), "x")
    later = of(database, FORGOTTEN_SECONDS + 1)
    later.take("living", Renew(role="rollout", instance="3", epoch=1), "x")
    later.forget()
    assert (later.read("old"), later.read("living") is None) == (None, False)
    with database.session() as session:
        assert session.query(RoleSlot).count() == 1


def test_a_job_without_a_directory_has_nothing_to_fence(database: Database) -> None:
    """The first registration makes the directory, and nothing else does."""
    with pytest.raises(RegistrationRefused, match="no directory"):
        of(database, 0.0).take("rl", Fence(role="rollout", instance="3"), "x")
    assert of(database, 0.0).read("rl") is None


def test_instances_that_ended_give_their_room(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that are never used again fill no directory for good; what may live keeps its place, and no epoch comes twice."""
    monkeypatch.setattr(repository, "MOST_SLOTS", 3)
    monkeypatch.setattr(repository, "MADE_ROOM", 2)
    directories = of(database, 0.0)
    for number in range(20):
        slot, _ = directories.take("rl", register(f"p{number}", f"run-{number}"), "x")
        assert slot.epoch == number + 1
        directories.take("rl", Leave(role="rollout", instance=f"run-{number}", epoch=slot.epoch), "x")
    found = directories.read("rl")
    assert found is not None
    assert len(found.slots) <= 3
    for number in range(3):
        directories.take("rl", register(f"q{number}", f"held-{number}"), "x")
    with pytest.raises(DirectoryFull, match="3 instances that serve"):
        directories.take("rl", register("q3", "held-3"), "x")
    with pytest.raises(DirectoryFull):  # an attempt later, but these may renew yet
        directories.take("rl", register("q3", "held-3", attempt=1), "x")
    later = of(database, QUIET_SECONDS + 1.0)
    assert later.take("rl", register("q3", "held-3", attempt=1), "x")[0].epoch > 23


def test_jobs_that_are_over_give_their_room(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new job finds a place as long as one directory is quiet; those of jobs at work stay."""
    monkeypatch.setattr(repository, "MOST_DIRECTORIES", 2)
    of(database, 0.0).take("first", register("a"), "x")
    of(database, 10.0).take("second", register("a"), "x")
    with pytest.raises(DirectoryFull, match="2 directories"):
        of(database, 20.0).take("third", register("a"), "x")
    later = of(database, QUIET_SECONDS + 100.0)
    later.take("first", Renew(role="rollout", instance="3", epoch=1), "x")
    later.take("third", register("a"), "x")
    assert (later.read("first") is None, later.read("second")) == (False, None)
