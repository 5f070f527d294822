"""A job's samples of a span of time as one array: out of memory where the window still holds them, else out of the blocks."""

from __future__ import annotations

from collections.abc import Sequence

from service.store.database import Database
from service.window.compaction import blocks
from service.window.tail import Cube, Tail

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
) -> Cube:
    """Return the ticks in [since, until) of these nodes; ``metrics`` None: all that they have in this scope.

    The span is bounded by the caller: an array of n ticks × devices × metrics is made of it.
    """
    if since >= now - tail.window_seconds:
        return tail.assemble(scope, nodes, metrics, since, until)
    past = Tail(until - since + 4 * SLACK_SECONDS, tail.tick_seconds)  # with room for what else the blocks hold
    for node, received_at, records in blocks(database, since - SLACK_SECONDS, until + SLACK_SECONDS, scope, nodes):
        past.add(node, received_at, records)
    return past.assemble(scope, nodes, metrics, since, until)
