"""The database, its schema and the log, on SQLite and on PostgreSQL."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, OperationalError

from service.store import log as log_module
from service.store.database import Database, WrongDatabase
from service.store.log import Appended, Incoming, Log
from service.store.models import Base
from tests.support.bounds import in_time


def batch(number: int, node: str = "gpu-0001", block: bytes = b"block") -> Incoming:
    """A batch with this id."""
    return Incoming(node, f"b{number}", 99.5, 100.0 + number, 3, block)


def test_models_and_migrations_agree(database: Database) -> None:
    """The migrations make exactly the tables that the models describe."""
    with database.session() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})

        assert compare_metadata(context, Base.metadata) == []


@pytest.mark.system
def test_the_first_migration_can_be_taken_back(url: str, repository: Path) -> None:
    """`alembic downgrade base`, configured by pyproject.toml alone, leaves no table of the store behind."""
    database = Database(url)
    database.migrate()
    alembic = [sys.executable, "-m", "alembic", "downgrade", "base"]

    done = subprocess.run(
        alembic,
        cwd=repository,
        env={"FAULTHOUND_DATABASE_URL": url, "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    with database.session() as session:
        context = MigrationContext.configure(session.connection())
        assert len(compare_metadata(context, Base.metadata)) >= len(Base.metadata.tables)
        assert not database.at_head()
    database.close()


def test_migrating_twice_changes_nothing(database: Database) -> None:
    """A second migration finds the schema at head and leaves the batches."""
    Log(database).append([batch(1)])

    database.migrate()

    assert database.at_head()
    assert len(Log(database).read_from(0, 10)) == 1


def test_several_programs_may_migrate_at_once(url: str) -> None:
    """Four that start on an empty database at the same time all find it at head; none fails."""
    databases = [Database(url) for _ in range(4)]
    failures: list[Exception] = []

    def migrate(database: Database) -> None:
        try:
            database.migrate()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=migrate, args=(database,)) for database in databases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert failures == []
    assert all(one.at_head() for one in databases)
    for one in databases:
        one.close()


def test_a_newer_database_is_refused(database: Database) -> None:
    """A schema version that this program does not know is named, and nothing is changed."""
    with database.transaction() as session:
        session.execute(text("UPDATE alembic_version SET version_num = '9999'"))

    with pytest.raises(WrongDatabase, match=r"version 9999.*newer Faulthound"):
        database.migrate()

    assert not database.at_head()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [("mysql://db/x", "mysql:// is no database"), ("sqlite://", "kept in memory"), ("sqlite:///:memory:", "in memory")],
)
def test_other_databases_are_refused(wrong: str, says: str) -> None:
    """A database that cannot be the store is refused by name, with what to give instead."""
    with pytest.raises(WrongDatabase, match=says):
        Database(wrong)


def test_sqlite_is_safe_against_power_loss(tmp_path: Path) -> None:
    """Every connection has WAL, full sync, foreign keys and a busy timeout; others on the machine cannot read the file."""
    database = Database(f"sqlite:///{tmp_path / 'data' / 'faulthound.db'}")
    database.migrate()
    with database.session() as first, database.session() as second:
        for session in (first, second):
            found = {
                name: session.connection().exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout", "auto_vacuum")
            }
            expected = {
                "journal_mode": "wal",
                "synchronous": 2,
                "foreign_keys": 1,
                "busy_timeout": 10_000,
                "auto_vacuum": 2,
            }

            assert found == expected
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    database.close()


def test_postgresql_acknowledges_only_what_is_durable(postgres: object, request: pytest.FixtureRequest) -> None:
    """A server that is set up to acknowledge before the disk has it is made to wait for the disk."""
    url = postgres.new()  # type: ignore[attr-defined]
    first = Database(url)
    first.migrate()
    with first.transaction() as session:
        session.execute(text("ALTER ROLE tester SET synchronous_commit = off"))
    try:
        second = Database(url)
        with second.session() as session:
            assert session.execute(text("SHOW synchronous_commit")).scalar() == "on"
        second.close()
    finally:
        with first.transaction() as session:
            session.execute(text("ALTER ROLE tester RESET synchronous_commit"))
        first.close()


def test_a_reading_session_cannot_write(database: Database) -> None:
    """A write outside a transaction is refused by the database itself, and a later transaction still writes."""
    Log(database).append([batch(1)])

    with database.session() as session, pytest.raises(DBAPIError, match=r"read-?only"):
        session.execute(text("DELETE FROM batches"))

    assert Log(database).append([batch(2)])[0].duplicate is False


def test_reading_does_not_wait_for_the_writer(database: Database, url: str) -> None:
    """While a transaction is open a new process connects, and reads what was there before, without waiting."""
    Log(database).append([batch(1)])
    other = Database(url)
    began = time.monotonic()

    with database.transaction() as session:
        session.execute(text("DELETE FROM batches"))
        seen = Log(other).read_from(0, 10)
        others = Log(database).read_from(0, 10)

    assert len(seen) == len(others) == 1
    assert in_time(time.monotonic() - began, 3.0)
    other.close()


def test_a_lock_of_another_process_is_an_error_of_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write lock that another process keeps fails the transaction as every other failure, and the next one works."""
    monkeypatch.setattr("service.store.database.BUSY_MILLISECONDS", 50)
    database = Database(f"sqlite:///{tmp_path / 'store.db'}")
    database.migrate()
    other = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(OperationalError, match="database is locked"):
        Log(database).append([batch(1)])
    with pytest.raises(OperationalError, match="database is locked"):
        database.shrink(1)
    other.execute("COMMIT")
    other.close()

    assert not Log(database).append([batch(1)])[0].duplicate
    database.close()


def test_a_session_sees_one_state(database: Database) -> None:
    """What is committed while a session reads is not seen by it, on either database, and by the next one it is."""
    log, count = Log(database), text("SELECT count(*) FROM batches")
    log.append([batch(1)])

    with database.session() as session:
        before = session.scalar(count)
        log.append([batch(2)])
        after = session.scalar(count)
    with database.session() as session:
        assert (before, after, session.scalar(count)) == (1, 1, 2)


def test_what_raises_is_undone(database: Database) -> None:
    """A transaction that raises leaves nothing behind."""
    log = Log(database)
    log.append([batch(1)])

    def fail() -> None:
        with database.transaction() as session:
            session.execute(text("DELETE FROM batches"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert len(log.read_from(0, 10)) == 1


def test_the_log_gives_back_what_went_in(database: Database) -> None:
    """Batches come back in the order of their appending, byte for byte, with everything that was said of them."""
    log = Log(database)
    sent = [batch(number, node=f"gpu-{number % 3:04}", block=bytes([number]) * number * 100) for number in range(50)]

    places = log.append(sent[:20]) + log.append(sent[20:])
    stored = log.read_from(0, 100)

    assert [one.sequence for one in stored] == [place.sequence for place in places]
    assert [(one.node, one.batch_id, one.sent_at, one.received_at, one.records, one.block) for one in stored] == [
        (one.node, one.batch_id, one.sent_at, one.received_at, one.records, one.block) for one in sent
    ]
    assert log.read_from(stored[29].sequence, 5) == stored[30:35]
    assert log.read_from(stored[-1].sequence, 5) == []


def test_a_batch_counts_once(database: Database) -> None:
    """The same node and id keep their first number, across calls and within one; another node's same id is another."""
    log = Log(database)
    first, other = log.append([batch(1), batch(1, node="gpu-0002")])

    again = log.append([batch(1, block=b"another content"), batch(2), batch(2), batch(1, node="gpu-0002")])

    assert (first.duplicate, other.duplicate) == (False, False)
    assert first.sequence != other.sequence
    assert again == [
        Appended(first.sequence, duplicate=True),
        Appended(again[1].sequence, duplicate=False),
        Appended(again[1].sequence, duplicate=True),
        Appended(other.sequence, duplicate=True),
    ]
    assert [one.block for one in log.read_from(0, 10)] == [b"block"] * 3


@pytest.mark.system
def test_large_commits_keep_their_order(database: Database) -> None:
    """Three thousand batches in one transaction, half of them known, are numbered in the order they were given in."""
    log = Log(database)
    known = log.append([batch(number) for number in range(0, 3_000, 2)])

    places = log.append([batch(number) for number in range(3_000)])

    new = [place.sequence for place in places if not place.duplicate]
    assert [place for place in places if place.duplicate] == [Appended(one.sequence, duplicate=True) for one in known]
    assert new == sorted(new)
    assert [one.batch_id for one in log.read_from(known[-1].sequence, 3_000)] == [f"b{n}" for n in range(1, 3_000, 2)]


def test_reading_is_bounded_by_bytes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read stops before it passes its bound of bytes, but always returns one batch: nothing stops a reader."""
    monkeypatch.setattr(log_module, "READ_BYTES", 1_000)
    log = Log(database)
    log.append(
        [
            batch(1, block=bytes(400)),
            batch(2, block=bytes(400)),
            batch(3, block=bytes(400)),
            batch(4, block=bytes(5_000)),
        ]
    )

    read: list[list[str]] = []
    last = 0
    while found := log.read_from(last, 100):
        read.append([one.batch_id for one in found])
        last = found[-1].sequence

    assert read == [["b1", "b2"], ["b3"], ["b4"]]


def test_deleted_numbers_are_not_given_again(database: Database) -> None:
    """After retention has taken the newest batch, the next one has a higher number all the same."""
    log = Log(database)
    (place,) = log.append([batch(1)])
    with database.transaction() as session:
        session.execute(text("DELETE FROM batches"))

    (later,) = log.append([batch(2)])

    assert later.sequence > place.sequence


def test_a_half_written_file_is_refused(tmp_path: Path) -> None:
    """A file that is no database is left alone, with the database's own word for it."""
    (tmp_path / "faulthound.db").write_bytes(b"not a database " * 1_000)
    database = Database(f"sqlite:///{tmp_path / 'faulthound.db'}")

    with pytest.raises((DBAPIError, sqlite3.DatabaseError), match="not a database"):
        database.migrate()

    assert (tmp_path / "faulthound.db").read_bytes().startswith(b"not a database")
