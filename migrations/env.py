"""What Alembic runs: `Database.migrate` hands it a connection, the `alembic` command line a URL in FAULTHOUND_DATABASE_URL."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from service.store.models import Base


def run(connection: Connection) -> None:
    """Run the migrations that were asked for on this connection, which is in a transaction already."""
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get("connection")
if connection is not None:
    run(connection)
else:
    from service.settings import Settings
    from service.store.database import Database

    with Database(Settings().url()).transaction() as session:
        run(session.connection())
