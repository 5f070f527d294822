"""Samples by node, minute and scope, written from the log: ten minutes of a fleet are read without touching its batches.

A minute is one of receipt and never goes back, so that it ends at a place of the log: everything up to that place is in
the blocks, and everything after it is not. The blocks of a minute and the place are written in several small
transactions, the place in the last; a crash between them writes the same blocks again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import select

from collectors import block
from collectors.records import Record, Samples
from service.store.database import Database
from service.store.models import Block, Cursor
from service.window.grid import unpacked
from service.window.merging import merged

PLACE, MINUTE = "compaction", "compaction_minute"  # rows of the cursors: the log's sequence, the last whole minute
ROWS_AT_ONCE = 256  # of one transaction: the log's own waits no longer than for that


class Compaction:
    """The minute that is being gathered, and how far the blocks are complete."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.session() as session:
            kept = {row.reader: row.sequence for row in session.scalars(select(Cursor))}
        self.place: int = kept.get(PLACE, 0)  # every batch up to here is in the blocks
        self._complete: int = kept.get(MINUTE, -1)
        self._minute = -1
        self._last = self.place
        self._gathered: dict[tuple[str, str], list[Samples]] = defaultdict(list)
        self.left_out = 0

    def add(self, sequence: int, node: str, received_at: float, records: Iterable[Record]) -> None:
        """Take up a batch, in the log's order; write the minute before it if this one begins another."""
        minute = max(int(received_at // 60), self._minute, self._complete + 1)
        if minute > self._minute and self._minute >= 0:
            self._write()
        self._minute, self._last = minute, sequence
        for record in records:
            if isinstance(record, Samples):
                self._gather(node, record)

    def _gather(self, node: str, samples: Samples) -> None:
        try:
            unpacked(samples)
        except ValueError:
            self.left_out += 1
        else:
            self._gathered[node, samples.scope].append(samples)

    def _write(self) -> None:
        rows = iter(self._gathered.items())
        while some := dict(islice(rows, ROWS_AT_ONCE)):
            with self.database.transaction() as session:
                for row in _blocks(some, self._minute):
                    session.merge(row)
        with self.database.transaction() as session:
            session.merge(Cursor(reader=PLACE, sequence=self._last))
            session.merge(Cursor(reader=MINUTE, sequence=self._minute))
        self.place, self._complete = self._last, self._minute
        self._gathered.clear()


def _blocks(gathered: Mapping[tuple[str, str], list[Samples]], minute: int) -> Iterator[Block]:
    for (node, scope), samples in gathered.items():
        yield Block(node=node, minute=minute, scope=scope, part=0, block=block.encode(merged(samples), pack=True))


def blocks(
    database: Database, since: float, until: float, scope: str | None = None, nodes: Iterable[str] | None = None
) -> Iterator[tuple[str, float, list[Record]]]:
    """Yield (node, end of the minute, samples) for the minutes of receipt that touch [since, until)."""
    where: list[Any] = [Block.minute >= int(since // 60), Block.minute < -(-until // 60)]
    where += [Block.scope == scope] if scope is not None else []
    where += [Block.node.in_(list(nodes))] if nodes is not None else []
    statement = select(Block.node, Block.minute, Block.block).where(*where).order_by(Block.minute)
    with database.session() as session:
        for node, minute, data in session.execute(statement.execution_options(yield_per=500)):
            yield node, 60.0 * (minute + 1), block.decode(data)
