"""A job's samples of a span of time as one array: out of memory where the window still holds them, else out of the blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from sqlalchemy import select

from collectors.records import Record, Samples, block
from collectors.records.record import Damaged
from service.store.database import Database
from service.store.models import Batch, Cursor
from service.store.window.compaction import PLACE, blocks
from service.store.window.tail import Cube, Tail, TooMany

MOST_ROOM = 64 << 20  # values of the nodes' blocks that are in memory at once, all metrics of the scope: 256 MB
BATCHES_AT_ONCE = 16
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
