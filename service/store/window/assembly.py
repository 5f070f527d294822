"""Samples in memory and in blocks together: fed from the log, and read of a span of time as one array."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from sqlalchemy import select

from collectors.records import Record, Samples, block
from collectors.records.record import Damaged
from service.store.database import Database
from service.store.log import Log, Stored
from service.store.models import Batch, Cursor
from service.store.window.compaction import PLACE, Compaction, blocks
from service.store.window.tail import Cube, Tail, TooMany

MOST_ROOM = 64 << 20  # values of the nodes' blocks that are in memory at once, all metrics of the scope: 256 MB
BATCHES_AT_ONCE = 16
RESUMED_AT_ONCE = 500  # batches of the log
SLACK_SECONDS = 60.0  # a block is of a minute of receipt: readings of the span may be in the next one


def assemble(
    tail: Tail,
    database: Database,
    scope: str,
    nodes: Sequence[str],
    metrics: Sequence[str] | None,
    since: float,
    until: float,
    now: float,
    most_values: int | None = None,
) -> Cube:
    """Return the ticks in [since, until) of these nodes; ``metrics`` None: all that they have in this scope.

    Raise ``TooMany`` before more than ``most_values`` are made, or more are read from the blocks than there is room for.
    """
    if since >= now - tail.window_seconds:
        return tail.assemble(scope, nodes, metrics, since, until, most_values)
    past = Tail(until - since + 4 * SLACK_SECONDS, tail.tick_seconds)  # with room for what else the blocks hold
    for node, received_at, records in _sampled(database, since - SLACK_SECONDS, until + SLACK_SECONDS, scope, nodes):
        past.add(node, received_at, records)
        if past.size > MOST_ROOM:
            raise TooMany(f"more than {MOST_ROOM:,} values of {len(nodes):,} nodes are in the blocks of this span")
    return past.assemble(scope, nodes, metrics, since, until, most_values)


def _sampled(
    database: Database, since: float, until: float, scope: str, nodes: Sequence[str]
) -> Iterator[tuple[str, float, list[Record]]]:
    """Yield what was received in a span: whole minutes out of the blocks, and out of the log what is not yet in them."""
    with database.session() as session:  # before the blocks: a minute written meanwhile comes twice, and is not missed
        place = session.scalar(select(Cursor.sequence).where(Cursor.reader == PLACE)) or 0
    yield from blocks(database, since, until, scope, nodes)
    newer = (
        select(Batch.node, Batch.received_at, Batch.block)
        .where(Batch.sequence > place, Batch.received_at >= since, Batch.received_at < until, Batch.node.in_(nodes))
        .order_by(Batch.sequence)
    )
    with database.session() as session:
        for node, received_at, data in session.execute(newer.execution_options(yield_per=BATCHES_AT_ONCE)):
            with suppress(Damaged):  # the follower has reported it
                records = block.decode(data)
                yield node, received_at, [one for one in records if isinstance(one, Samples) and one.scope == scope]


class Feed:
    """The consumer of the log that keeps samples."""

    def __init__(self, tail: Tail, compaction: Compaction) -> None:
        self.tail, self.compaction = tail, compaction
        self._dropped_at = 0.0

    def add(self, stored: Stored, records: Sequence[Record]) -> None:
        """Take up one batch, in the log's order."""
        self.tail.add(stored.node, stored.received_at, records)
        self.compaction.add(stored.sequence, stored.node, stored.received_at, records)
        if abs(stored.received_at - self._dropped_at) >= self.tail.window_seconds:
            self.tail.drop(stored.received_at - self.tail.window_seconds)
            self._dropped_at = stored.received_at

    def resume(self, log: Log, until_sequence: int, since: float, now: float) -> None:
        """Fill the window from the blocks since then, and both from the batches that are not yet in the blocks."""
        for node, at, records in blocks(self.compaction.database, since, now + 60):
            self.tail.add(node, at, records)
        place = self.compaction.place
        while place < until_sequence:
            found = log.read_from(place, RESUMED_AT_ONCE)
            for stored in (one for one in found if one.sequence <= until_sequence):
                try:
                    self.add(stored, block.decode(stored.block))
                except Damaged:  # the follower has reported it
                    continue
            place = found[-1].sequence if found else until_sequence
