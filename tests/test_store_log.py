"""The log and the schema, on SQLite and on PostgreSQL."""

from __future__ import annotations

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from service.store.database import Database
from service.store.log import Incoming, Log
from service.store.models import Base
from tests.postgres import database, postgres, url

__all__ = ["database", "postgres", "url"]  # fixtures


def batch(number: int, node: str = "gpu-0001", block: bytes = b"block") -> Incoming:
    """A batch with this id."""
    return Incoming(node, f"b{number}", 99.5, 100.0 + number, 3, block)


def test_models_and_migrations_agree(database: Database) -> None:
    """The migrations make exactly the tables that the models describe."""
    with database.session() as session:
        context = MigrationContext.configure(session.connection(), opts={"compare_type": True})

        assert compare_metadata(context, Base.metadata) == []


def test_migrating_twice_changes_nothing(database: Database) -> None:
    """A second migration finds the schema at head and leaves the batches."""
    Log(database).append([batch(1)])

    database.migrate()

    assert database.at_head()
    assert len(Log(database).read_from(0, 10)) == 1
