"""The log of batches: what was acknowledged, in the order in which it became durable.

Two methods, which a message broker could implement too. Nothing else writes batches, and only retention deletes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from sqlalchemy import Connection, insert, select, text, tuple_

from service.store.database import Database
from service.store.models import Base, Batch

APPEND_LOCK = 0x46484C  # "FHL": the number of PostgreSQL's advisory lock
ROWS_AT_ONCE = 500  # of one statement: SQLite takes 32,766 values
AHEAD_SECONDS = 120.0  # what is dated further ahead was dated by a wrong clock, and counts as old
READ_BYTES = 64 << 20  # of blocks that one call of read_from returns, or a single larger one


@dataclass(frozen=True, slots=True)
class Incoming:
    """A batch as a node sent it."""

    node: str
    batch_id: str
    sent_at: float | None  # UTC seconds by the node's clock
    received_at: float
    records: int
    block: bytes


@dataclass(frozen=True, slots=True)
class Appended:
    """The place of a batch in the log; ``duplicate``: it was there before."""

    sequence: int
    duplicate: bool


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch of the log."""

    sequence: int
    node: str
    batch_id: str
    sent_at: float | None
    received_at: float
    records: int
    block: bytes


def sane(stored: Stored, at: float) -> Stored:
    """Return a batch as received now where it is dated more than two minutes ahead: a clock was wrong then."""
    return stored if stored.received_at <= at + AHEAD_SECONDS else replace(stored, received_at=at)


class Log:
    """The log in the store's own database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def append(self, batches: Sequence[Incoming]) -> list[Appended]:
        """Store the batches in one transaction and return the place of each; durable at return, or nothing is stored.

        A later number is a later commit, on PostgreSQL and between processes too: a reader never finds a smaller number
        than one that it has seen. Numbers may be missing. A batch that its node has sent before keeps its first number.
        """
        with self._database.transaction() as session:
            connection = session.connection()
            if not self._database.is_sqlite:
                # The server hands numbers out before the commit: only one transaction may be between the two.
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": APPEND_LOCK})
            known = _known(connection, {(batch.node, batch.batch_id) for batch in batches})
            new: dict[_Key, Incoming] = {}
            for batch in batches:
                if (key := (batch.node, batch.batch_id)) not in known:
                    new.setdefault(key, batch)
            inserted = dict(zip(new, _insert(connection, new.values()), strict=True))
        return [_place(batch, known, inserted) for batch in batches]

    def read_from(self, sequence: int, most: int) -> list[Stored]:
        """Return up to ``most`` batches with a higher number, in order; fewer where their blocks pass 64 MiB.

        An empty list, and nothing else, means that there are no more.
        """
        with self._database.session() as session:
            sizes = session.execute(
                select(Batch.sequence, Batch.size_bytes)
                .where(Batch.sequence > sequence).order_by(Batch.sequence).limit(most)
            ).all()  # fmt: skip
            total = 0
            last = sizes[0].sequence if sizes else sequence
            for row in sizes:
                total += row.size_bytes
                if total > READ_BYTES:
                    break
                last = row.sequence
            rows = session.execute(
                select(*_STORED).where(Batch.sequence > sequence, Batch.sequence <= last).order_by(Batch.sequence)
            )
            return [Stored(*row) for row in rows]


_Key = tuple[str, str]  # node and batch id: what makes a batch the same batch
_BATCHES = Base.metadata.tables["batches"]  # the table and not the class: no object is made for a row
_STORED = (Batch.sequence, Batch.node, Batch.batch_id, Batch.sent_at, Batch.received_at, Batch.records, Batch.block)


def _known(connection: Connection, keys: Iterable[_Key]) -> dict[_Key, int]:
    known: dict[_Key, int] = {}
    left = iter(keys)
    while some := list(islice(left, ROWS_AT_ONCE)):
        rows = connection.execute(
            select(Batch.node, Batch.batch_id, Batch.sequence).where(tuple_(Batch.node, Batch.batch_id).in_(some))
        )
        known.update({(row.node, row.batch_id): row.sequence for row in rows})
    return known


def _insert(connection: Connection, batches: Iterable[Incoming]) -> list[int]:
    rows = [
        {
            "node": batch.node,
            "batch_id": batch.batch_id,
            "sent_at": batch.sent_at,
            "received_at": batch.received_at,
            "records": batch.records,
            "size_bytes": len(batch.block),
            "block": batch.block,
        }
        for batch in batches
    ]
    if not rows:
        return []
    statement = insert(_BATCHES).returning(_BATCHES.c.sequence, sort_by_parameter_order=True)
    return list(connection.scalars(statement, rows))


def _place(batch: Incoming, known: dict[_Key, int], inserted: dict[_Key, int]) -> Appended:
    """Return the place of a batch; the first of its id in a call takes the number, the others are its duplicates."""
    key = (batch.node, batch.batch_id)
    if key in known:
        return Appended(known[key], duplicate=True)
    known[key] = inserted[key]
    return Appended(inserted[key], duplicate=False)
