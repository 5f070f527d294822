"""The lease of the engine, on SQLite and on PostgreSQL: one holder at a time, and nothing written by who lost it."""

from __future__ import annotations

import threading
import time

import pytest
from sqlalchemy import select

from service.store import leases
from service.store.database import Database
from service.store.leases import HELD_SECONDS, Lease, LeaseLost
from service.store.models import Cursor
from service.store.models import Lease as Row


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        """Return what it was set to."""
        return self.at


def lease(database: Database, owner: str, clock: Clock) -> Lease:
    """Return an owner's view of the engine's lease."""
    return Lease(database, "engine", owner, clock)


def proved(database: Database, held: Lease) -> None:
    """Prove the lease in a transaction of its own."""
    with database.transaction() as session:
        held.prove(session)


def test_one_owner_holds_it(database: Database) -> None:
    """A second owner gets nothing while the first proves its hold, and gets it ten seconds after it saw the last proof."""
    clock = Clock()
    first, second = lease(database, "a", clock), lease(database, "b", clock)

    assert first.take()
    for _ in range(5):
        clock.at += HELD_SECONDS - 1
        assert not second.take()
        proved(database, first)
    assert not second.take()
    clock.at += HELD_SECONDS

    assert second.take()
    assert second.token > first.token


def test_what_was_lost_is_not_written(database: Database) -> None:
    """A transaction of an owner whose lease was taken over fails as a whole, and its release frees nothing."""
    clock = Clock()
    first, second = lease(database, "a", clock), lease(database, "b", clock)
    assert first.take()
    assert not second.take()
    clock.at += HELD_SECONDS
    assert second.take()

    def write() -> None:
        with database.transaction() as session:
            session.add(Cursor(reader="engine", sequence=7))
            session.flush()
            first.prove(session)

    with pytest.raises(LeaseLost, match="not a's with token 1"):
        write()
    first.release()

    with database.session() as session:
        assert session.scalars(select(Cursor)).all() == []
    proved(database, second)
    assert not lease(database, "c", clock).take()


@pytest.mark.parametrize("ahead_seconds", [-86_400.0, 86_400.0, 20 * 86_400.0])
def test_the_instant_in_the_row_frees_nothing_and_holds_nothing(database: Database, ahead_seconds: float) -> None:
    """A lease whose last proof was dated by a wrong clock is free after ten seconds of the candidate's time, and not before."""
    clock = Clock()
    assert lease(database, "a", clock).take()
    with database.transaction() as session:
        session.get_one(Row, "engine").until += ahead_seconds
    second = lease(database, "b", clock)

    assert not second.take()
    clock.at += HELD_SECONDS - 0.1
    assert not second.take()
    clock.at += 0.1

    assert second.take()


def test_a_released_lease_is_free_at_once(database: Database) -> None:
    """Who ends in order leaves no ten seconds without an engine."""
    clock = Clock()
    first = lease(database, "a", clock)
    assert first.take()

    first.release()

    assert lease(database, "b", clock).take()
    with pytest.raises(LeaseLost):
        proved(database, first)


def test_a_restarted_owner_takes_its_own_lease(database: Database) -> None:
    """The same owner needs not wait for its dead process, whose token is worth nothing from then on."""
    clock = Clock()
    dead, again = lease(database, "a", clock), lease(database, "a", clock)
    assert dead.take()

    assert again.take()
    with pytest.raises(LeaseLost):
        proved(database, dead)


def test_of_many_that_ask_at_once_one_gets_it(database: Database) -> None:
    """Eight owners that ask at the same moment for a lease that never was: one has it, none fails."""
    taken: list[bool] = []
    failures: list[Exception] = []
    gate = threading.Barrier(8)

    def ask(owner: str) -> None:
        gate.wait()
        try:
            taken.append(Lease(database, "engine", owner).take())
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(f"o{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert sorted(taken) == [False] * 7 + [True]


def test_a_takeover_waits_for_the_transaction_that_has_proved(postgres: object) -> None:
    """On PostgreSQL a takeover in the middle of a proved transaction waits for its end, and then gets nothing."""
    database = Database(postgres.new_migrated())  # type: ignore[attr-defined]
    clock = Clock()
    first, second = lease(database, "a", clock), lease(database, "b", clock)
    assert first.take()
    assert not second.take()
    clock.at += HELD_SECONDS
    got: list[bool] = []
    thread = threading.Thread(target=lambda: got.append(second.take()))

    with database.transaction() as session:
        first.prove(session)
        thread.start()
        time.sleep(0.3)
        waited = not got
    thread.join()

    assert waited
    assert got == [False]
    database.close()


def test_it_is_renewed_well_before_it_runs_out() -> None:
    """Two renewals may fail before the lease is free for others."""
    assert leases.RENEW_SECONDS * 3 <= HELD_SECONDS
