"""Insert-or-update of many rows, which the two databases spell alike and SQLAlchemy keeps apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, bindparam, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from service.store.models import Base

ROWS_AT_ONCE = 500

Row = Mapping[str, Any]


def upsert(
    session: Session,
    model: type[Base],
    rows: Iterable[Row],
    kept: frozenset[str] = frozenset(),
    where: Callable[[Any, Any], ColumnElement[bool]] | None = None,
) -> None:
    """Insert the rows, or change those that are there but for the columns ``kept``; ``where(table, new)`` may forbid it.

    The rows go in the order of their keys, so that two processes that write the same ones never wait for each other in
    a circle. Each row has the same columns, and no key comes twice.
    """
    table: Any = model.__table__
    keys = [column.name for column in table.primary_key]
    ordered = sorted(rows, key=lambda row: tuple(row[key] for key in keys))
    for start in range(0, len(ordered), ROWS_AT_ONCE):
        some = ordered[start : start + ROWS_AT_ONCE]
        session.connection().execute(_statement(session, model, some[0], keys, kept, where), some)


def touch(session: Session, model: type[Base], rows: Iterable[Row], columns: Sequence[str], latest_at: float) -> None:
    """Change these columns of rows that are there, unless the row has a later ``last_seen_at`` that is not past ``latest_at``."""
    table: Any = model.__table__
    keys = [column.name for column in table.primary_key]
    ordered = sorted(rows, key=lambda row: tuple(row[key] for key in keys))
    if not ordered:
        return
    statement = (
        update(table)
        .where(*(table.c[key] == bindparam(f"key_{key}") for key in keys))
        .where((table.c.last_seen_at <= bindparam("now_last_seen_at")) | (table.c.last_seen_at > latest_at))
        .values({name: bindparam(f"now_{name}") for name in columns})
    )
    session.connection().execute(
        statement,
        [{f"key_{key}": row[key] for key in keys} | {f"now_{name}": row[name] for name in columns} for row in ordered],
    )


def _statement(
    session: Session,
    model: type[Base],
    row: Row,
    keys: Sequence[str],
    kept: frozenset[str],
    where: Callable[[Any, Any], ColumnElement[bool]] | None,
) -> Any:
    table: Any = model.__table__
    dialect: Any = sqlite if session.get_bind().dialect.name == "sqlite" else postgresql
    statement = dialect.insert(table)
    changed = {name: statement.excluded[name] for name in row if name not in keys and name not in kept}
    condition = where(table.c, statement.excluded) if where else None
    return statement.on_conflict_do_update(index_elements=keys, set_=changed, where=condition)
