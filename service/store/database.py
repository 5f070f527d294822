"""The database behind the store: SQLite in WAL mode, or PostgreSQL by URL. One engine, two ways in.

``session()`` reads and cannot write; ``transaction()`` writes and commits at its end. They are apart because SQLite has
one writer: a transaction that reads first and writes later fails at once with "database is locked", without waiting, if
another wrote in between. Here the writers of a process queue at a lock, and those of other processes at BEGIN IMMEDIATE.
"""

from __future__ import annotations

import os
import sqlite3
import sysconfig
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import Connection, Engine, create_engine, event, exc, make_url, text
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

from collectors.files import private

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

BUSY_MILLISECONDS = 10_000  # longest wait for another process's transaction, on both databases
POOL_CONNECTIONS = 64  # beyond the threads of the API (40), the appender, the follower and the upkeep
PAGE_BYTES = 8_192  # of a new SQLite file: of the usual 4 kB a batch of 3 kB would waste a quarter
MIGRATION_LOCK = 0x46484D  # "FHM": the number of PostgreSQL's advisory lock

# Errors of the database and of the moment, not of what was written: the caller tries again.
TRANSIENT_ERRORS = (exc.OperationalError, exc.InterfaceError, exc.InternalError, exc.ProgrammingError, exc.TimeoutError)

_SQLITE = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",  # explicit: a build may default to less, and lose acknowledged batches with the power
    "PRAGMA foreign_keys = ON",
    "PRAGMA journal_size_limit = 67108864",
)
_INCREMENTAL = 2  # of PRAGMA auto_vacuum
_POSTGRESQL = (
    f"SET lock_timeout = {BUSY_MILLISECONDS}",
    "SET idle_in_transaction_session_timeout = 60000",
    # A server may be set up to acknowledge commits that a crash takes back. Stricter settings than `on` stay.
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local')",
)


class WrongDatabase(Exception):
    """The database is not one that this program can use; the text has the reason and the next step."""


class Database:
    """The engine, its sessions and its schema."""

    def __init__(self, url: str) -> None:
        try:
            parsed = make_url(url)
        except (exc.ArgumentError, ValueError):  # whose text may hold the password
            raise WrongDatabase(
                "this is no URL of a database: write postgresql+psycopg://USER:PASSWORD@HOST/NAME"
            ) from None
        if parsed.drivername in {"postgresql", "postgres"}:
            parsed = parsed.set(drivername="postgresql+psycopg")
        if parsed.drivername not in {"sqlite", "sqlite+pysqlite", "postgresql+psycopg"}:
            raise WrongDatabase(
                f"{parsed.drivername}:// is no database for the store: give sqlite:///FILE or postgresql+psycopg://…"
            )
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        if self.is_sqlite:
            if not parsed.database or parsed.database == ":memory:":
                raise WrongDatabase(f"{url} is kept in memory, and the store must outlive its process: name a file")
            _make_private(Path(parsed.database))
        self.engine = _engine(parsed.render_as_string(hide_password=False), is_sqlite=self.is_sqlite)
        # PostgreSQL's own habit is a state for each statement: a job could be read with another moment's attempts.
        one_state = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._read = sessionmaker(self.engine.execution_options(**one_state))
        self._write = sessionmaker(self.engine.execution_options(writes=True))
        # SQLite's own wait for its write lock is a poll with pauses of up to 100 ms; a lock wakes at once.
        self._writer: AbstractContextManager[Any] = threading.Lock() if self.is_sqlite else nullcontext()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Yield a session that reads one consistent state; it cannot write."""
        with self._read() as session:
            yield session

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Yield a session that writes; committed, and so durable, at the end of the block, undone if it raises."""
        with self._writer, self._write(expire_on_commit=False) as session, session.begin():
            yield session

    def shrink(self, pages: int) -> None:
        """Give up to so many of a SQLite file's free pages back to the file system."""
        with self._writer, self.engine.connect() as connection:
            driver: Any = connection.connection.dbapi_connection
            # As a script: executed as a statement it ends after its first page, and as a query it has no rows.
            script = f"PRAGMA query_only = 0; PRAGMA incremental_vacuum({pages}); PRAGMA wal_checkpoint(PASSIVE)"
            with _translated_errors(script):
                driver.executescript(script)

    def close(self) -> None:
        """Close the connections."""
        self.engine.dispose()

    def migrate(self) -> None:
        """Bring the schema to this program's version; one process at a time. A newer schema is refused."""
        from alembic import command

        with self.transaction() as session:
            connection = session.connection()
            if not self.is_sqlite:
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
            config, scripts = _alembic(connection)
            found = _revision(connection)
            if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
                raise WrongDatabase(
                    f"the database has schema version {found}, which this program does not know (its newest is "
                    f"{scripts.get_current_head()}): it was made by a newer Faulthound; start that one"
                )
            if found != scripts.get_current_head():
                command.upgrade(config, "head")

    def at_head(self) -> bool:
        """Whether the schema is the one that this program was written for."""
        with self.session() as session:
            connection = session.connection()
            return _revision(connection) == _alembic(connection)[1].get_current_head()


def _make_private(file: Path) -> None:
    """Make the file and its folder, for this user alone; SQLite gives its journals the mode of the file."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = file.resolve()
    # Root may work on another user's database, as with `faulthound tokens create --local`; it makes none in their folder.
    owners = frozenset({file.stat().st_uid}) if os.geteuid() == private.SUPERUSER and file.exists() else frozenset()
    try:
        private.check_folder(file.parent, owners=owners)
    except private.NotPrivate as problem:
        raise WrongDatabase(str(problem)) from None
    private.make_private(file)


def migrations() -> Path:
    """Return the folder of the migrations: beside the package in a checkout, under ``share`` in an installation."""
    root = Path(__file__).resolve().parents[2]
    places = (root / "migrations", Path(sysconfig.get_path("data")) / "share/faulthound/migrations")
    for place in (*places, root / "share/faulthound/migrations"):
        if (place / "env.py").is_file():
            return place
    raise WrongDatabase(
        f"the migrations are neither in {places[0]} nor in {places[1]}: install faulthound[service] again"
    )


def _engine(url: str, *, is_sqlite: bool) -> Engine:
    connect: dict[str, Any] = {}
    if not is_sqlite:  # a server that has vanished without a word is noticed within half a minute
        connect = {"connect_timeout": 5, "keepalives_idle": 15, "keepalives_interval": 5, "tcp_user_timeout": 15_000}
    engine = create_engine(
        url,
        connect_args=connect,
        pool_size=8,
        max_overflow=POOL_CONNECTIONS - 8,
        pool_timeout=10,
        pool_pre_ping=not is_sqlite,
        # NaN, which an agent's account may hold, is no JSON: it becomes null here and an error in PostgreSQL otherwise.
        json_serializer=lambda value: msgspec.json.encode(value).decode(),
        json_deserializer=msgspec.json.decode,
    )
    event.listen(engine, "connect", _connected_sqlite if is_sqlite else _connected_postgresql)
    if is_sqlite:
        event.listen(engine, "begin", _begun_sqlite)
    return engine


def _connected_sqlite(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # the driver's own BEGIN comes too late and spares statements that change tables
    connection.execute(f"PRAGMA busy_timeout = {BUSY_MILLISECONDS}")
    # Retention shrinks the file. That it can is written into a new file's header, before anything else; asked for again
    # it would wait for the writer, and so would every reader.
    if connection.execute("PRAGMA auto_vacuum").fetchone() != (_INCREMENTAL,):
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute(f"PRAGMA auto_vacuum = {_INCREMENTAL}")
    for statement in _SQLITE:
        connection.execute(statement).fetchall()


def _connected_postgresql(connection: Any, _: ConnectionPoolEntry) -> None:
    connection.autocommit = True
    for statement in _POSTGRESQL:
        connection.execute(statement)
    connection.autocommit = False


def _begun_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    driver = connection.connection.dbapi_connection
    assert driver is not None
    for statement in (f"PRAGMA query_only = {int(not writes)}", "BEGIN IMMEDIATE" if writes else "BEGIN"):
        with _translated_errors(statement):
            driver.execute(statement)


@contextmanager
def _translated_errors(statement: str) -> Iterator[None]:
    """Raise what the driver raises as SQLAlchemy's own, which it does not do for what it does not send itself."""
    try:
        yield
    except sqlite3.Error as error:
        raise exc.OperationalError(statement, None, error) from error


def _alembic(connection: Connection) -> tuple[Config, ScriptDirectory]:
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(migrations()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config, ScriptDirectory.from_config(config)


def _revision(connection: Connection) -> str | None:
    from alembic.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()
