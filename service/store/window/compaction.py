"""Samples by node, minute and scope, written from the log: ten minutes of a fleet are read without touching its batches.

A minute is one of receipt and never goes back, but where a clock was ahead, so that it ends at a place of the log: everything up
to that place is in the blocks, and everything after it is not. The blocks of a minute are written a few at a time while the next
one is gathered, so that the log waits for none of it, and the place with the last; a crash between writes the same blocks again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec
import numpy as np
from sqlalchemy import ColumnElement, and_, false, or_, select, tuple_
from sqlalchemy.orm import Session

from collectors.records import Record, Samples, block
from collectors.records.record import Damaged
from service.store.database import Database
from service.store.models import Block, Cursor
from service.store.schema import clean
from service.store.upserts import upsert
from service.store.window.grid import check

PLACE, MINUTE = "compaction", "compaction_minute"  # rows of the cursors: the log's sequence, the last whole minute
ROWS_AT_ONCE = 64  # of one transaction
BLOCKS_AT_ONCE = 64  # read into memory
LONGEST_SCOPE = 64  # characters: the column's
MOST_NODE_BYTES = 8 << 20  # of one node in a minute: ordinary ones send some ten thousand
MOST_BYTES = 256 << 20  # of all nodes in a minute; two minutes are in memory at once
AHEAD_MINUTES = 2  # a minute of receipt that is further ahead was dated by a wrong clock
RECORD_BYTES = 1_000  # that a record takes beside its values

_Gathered = dict[tuple[str, str], list[Samples]]  # by node and scope


@dataclass(slots=True)
class _Closed:
    """A whole minute on its way to the blocks."""

    minute: int
    last: int  # the log's place at its end
    rows: _Gathered


class Compaction:
    """The minute that is being gathered, the one before it that is being written, and how far the blocks are complete."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.session() as session:
            kept = {row.reader: row.sequence for row in session.scalars(select(Cursor))}
        self.place: int = kept.get(PLACE, 0)  # every batch up to here is in the blocks
        self.left_out = 0
        self._complete: int = kept.get(MINUTE, -1)
        self._closed: _Closed | None = None
        self._minute = -1  # the open one
        self._last = self.place
        self._gathered: _Gathered = defaultdict(list)
        self._node_bytes: dict[str, int] = defaultdict(int)  # of the open minute
        self._bytes = 0

    def add(self, sequence: int, node: str, received_at: float, records: Iterable[Record]) -> None:
        """Take up a batch, in the log's order; the same one again after an error of the database."""
        before = self._closed.minute if self._closed else self._complete
        if (
            max(before, self._minute) > int(received_at // 60) + AHEAD_MINUTES
        ):  # a clock was ahead: else all would be one minute
            self._go_back(int(received_at // 60))
            before = self._complete
        minute = max(int(received_at // 60), self._minute, before + 1)
        if minute > self._minute >= 0:
            while self._closed:
                self._write_some()
            self._closed, self._gathered = _Closed(self._minute, self._last, self._gathered), defaultdict(list)
            self._node_bytes, self._bytes = defaultdict(int), 0
        self._minute, self._last = minute, sequence
        if self._closed:
            self._write_some()
        for record in records:
            if isinstance(record, Samples):
                self._gather(node, record)

    def _go_back(self, minute: int) -> None:
        """Write what was gathered ahead of time, and go on after ``minute``; a minute that comes again is joined."""
        while self._closed:
            self._write_some()
        if self._minute >= 0:
            self._closed, self._gathered = _Closed(self._minute, self._last, self._gathered), defaultdict(list)
            self._node_bytes, self._bytes = defaultdict(int), 0
            while self._closed:
                self._write_some()
        self._minute, self._complete = -1, minute

    def _gather(self, node: str, samples: Samples) -> None:
        """Keep samples for the minute's block; those that no block can hold are left out; the log has them."""
        size_bytes = len(samples.values) + RECORD_BYTES
        try:
            check(samples)
            if clean(samples.scope, LONGEST_SCOPE) != samples.scope:
                raise ValueError(f"no column holds the scope {samples.scope[:LONGEST_SCOPE]!a}")
            if self._node_bytes[node] + size_bytes > MOST_NODE_BYTES or self._bytes + size_bytes > MOST_BYTES:
                raise ValueError(f"{node} sends more in a minute than a block holds")
        except ValueError:
            self.left_out += 1
            return
        self._node_bytes[node] += size_bytes
        self._bytes += size_bytes
        self._gathered[node, samples.scope].append(samples)

    def _write_some(self) -> None:
        """Write some rows of the closed minute; after the last ones, that it is complete."""
        closed = self._closed
        assert closed is not None
        some = list(islice(closed.rows, ROWS_AT_ONCE))
        rows = [_row(node, closed.minute, scope, closed.rows[node, scope]) for node, scope in some]
        ends = len(some) == len(closed.rows)
        with self.database.transaction() as session:
            _keep_written(session, rows)
            upsert(session, Block, rows)
            if ends:
                places = {PLACE: closed.last, MINUTE: closed.minute}
                rows = [{"reader": name, "sequence": value} for name, value in places.items()]
                upsert(session, Cursor, rows, where=_is_on)
        for key in some:
            del closed.rows[key]
        if ends:
            self.place, self._complete, self._closed = closed.last, closed.minute, None


def _is_on(table: Any, new: Any) -> ColumnElement[bool]:
    """Whether a cursor goes on; the minute goes back where a clock was ahead."""
    ahead = and_(table.reader == MINUTE, table.sequence > new.sequence + AHEAD_MINUTES)
    return or_(new.sequence > table.sequence, ahead)


def _row(node: str, minute: int, scope: str, samples: list[Samples]) -> dict[str, Any]:
    data = block.encode(_merged(samples), pack=True)
    return {"node": node, "minute": minute, "scope": scope, "block": data}


def _keep_written(session: Session, rows: list[dict[str, Any]]) -> None:
    """Join the blocks with those that are there: after a clock was ahead a minute may come again."""
    keys = {(row["node"], row["minute"], row["scope"]): row for row in rows}
    there = tuple_(Block.node, Block.minute, Block.scope).in_(list(keys)) if keys else false()
    for written in session.scalars(select(Block).where(there)):
        row = keys[written.node, written.minute, written.scope]
        if written.block == row["block"]:
            continue
        with suppress(Damaged):
            samples = [*block.decode(written.block), *block.decode(row["block"])]
            row["block"] = block.encode(_merged([one for one in samples if isinstance(one, Samples)]), pack=True)


def blocks(
    database: Database, since: float, until: float, scope: str | None = None, nodes: Iterable[str] | None = None
) -> Iterator[tuple[str, float, list[Record]]]:
    """Yield (node, end of the minute, samples) for the minutes of receipt that touch [since, until)."""
    where: list[Any] = [Block.minute >= int(since // 60), Block.minute < -(-until // 60)]
    where += [Block.scope == scope] if scope is not None else []
    where += [Block.node.in_(list(nodes))] if nodes is not None else []
    statement = select(Block.node, Block.minute, Block.block).where(*where).order_by(Block.minute)
    with database.session() as session:
        for node, minute, data in session.execute(statement.execution_options(yield_per=BLOCKS_AT_ONCE)):
            with suppress(Damaged):  # of a disk that failed; the log has it too
                yield node, 60.0 * (minute + 1), block.decode(data)


def _merged(samples: Iterable[Samples]) -> list[Samples]:
    """Join the records that have the same devices and metrics; ticks stay in the order in which they came.

    Those since one boot, and all with or all without monotonic ticks: these are joined as well.
    """
    alike: dict[tuple[Any, ...], list[Samples]] = defaultdict(list)
    for one in samples:
        monotonic = len(one.monotonic_ticks) == len(one.ticks)
        alike[one.type, one.devices, one.metrics, one.boot_id, monotonic].append(one)
    return [_joined(parts) for parts in alike.values()]


def _joined(parts: Sequence[Samples]) -> Samples:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    names = len(first.devices), len(first.metrics)  # either may be 0: the values do not give the number of ticks
    cubes = [np.frombuffer(part.values, part.type).reshape(*names, len(part.ticks) // 8) for part in parts]
    return msgspec.structs.replace(
        first,
        ticks=b"".join(part.ticks for part in parts),
        monotonic_ticks=b"".join(
            part.monotonic_ticks for part in parts if len(part.monotonic_ticks) == len(part.ticks)
        ),
        values=np.concatenate(cubes, axis=2).tobytes(),
    )
