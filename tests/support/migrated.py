"""An empty SQLite database with this program's schema: a copy of it takes a tenth of the migrations."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from tests.support.memory import in_memory

NAME = "faulthound.db"


@cache
def migrated_bytes() -> bytes:
    """Return what is in the file of such a database; it is made once a process."""
    from service.store.database import Database

    with tempfile.TemporaryDirectory(prefix="fhsq", dir=in_memory()) as folder:
        file = Path(folder) / NAME
        database = Database(f"sqlite:///{file}")
        database.migrate()
        database.close()
        return file.read_bytes()


def put_migrated(folder: Path) -> None:
    """Put a copy where a service of this folder looks for its database, if it has none yet."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / NAME).exists():
        (folder / NAME).write_bytes(migrated_bytes())
