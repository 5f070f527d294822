"""A job's samples of a span of time as one array: out of memory where the window still holds them, else out of the blocks."""

from __future__ import annotations

from collections.abc import Sequence

from service.store.database import Database
from service.window.compaction import blocks
from service.window.tail import Cube, Tail, TooMany

MOST_ROOM = 64 << 20  # values of the nodes' blocks that are in memory at once, all metrics of the scope: 256 MB
SLACK_SECONDS = 60.0  # a block is of a minute of receipt: readings of the span may stand in the next one


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
    for node, received_at, records in blocks(database, since - SLACK_SECONDS, until + SLACK_SECONDS, scope, nodes):
        past.add(node, received_at, records)
        if past.size > MOST_ROOM:
            raise TooMany(f"more than {MOST_ROOM:,} values of {len(nodes):,} nodes stand in the blocks of this span")
    return past.assemble(scope, nodes, metrics, since, until, most_values)
