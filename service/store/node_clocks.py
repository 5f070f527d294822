"""What the nodes' clocks show, of each the newest, and which nodes confirm the service's time.

A token that is bound to no node may report under a known name. Its batches come between those of the node's own agent, so
the clock under that name goes there and back, and shows nothing. A clock that was set changes once, and the service's time,
when it adopts another one, changes all of them once. Such a token may also invent names: those that are new since the time
became uncertain have no say.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from service.clock import LEASH_SECONDS
from service.store.models import Node, Token

DISPUTED_SECONDS = 600.0  # as long as other clocks must agree on a time forwards
MOST_NODES = 1 << 18
REPORTING_SECONDS = 3_600.0  # before the newest report: a node that had left by then need not come back
KNOWN_SECONDS = 86_400.0
VOTE_SECONDS = 90.0  # a node's row is written every 30 s
AHEAD_SECONDS = 5.0


@dataclass(slots=True)
class _Clock:
    ahead: float
    changed_at: float = -math.inf
    changed_before_at: float = -math.inf


class NodeClocks:
    """By how much each node's clock is ahead of the service's."""

    def __init__(self) -> None:
        self._clocks: dict[str, _Clock] = {}

    def take(self, node: str, ahead: float, at: float) -> float | None:
        """Take over what a batch shows; return what is believed: None while the clock has gone there and back."""
        clock = self._clocks.get(node)
        if clock is None:
            if len(self._clocks) >= MOST_NODES:
                del self._clocks[next(iter(self._clocks))]
            clock = self._clocks[node] = _Clock(ahead)
        if abs(ahead - clock.ahead) > LEASH_SECONDS:
            clock.changed_before_at, clock.changed_at = clock.changed_at, at
        clock.ahead = ahead
        disputed = abs(at - clock.changed_before_at) <= DISPUTED_SECONDS
        return None if disputed else ahead


def find_voters(session: Session, at: float) -> frozenset[str]:
    """Return the nodes that were known at an instant, and were reporting in the hour before the newest report until then.

    Where such nodes have tokens of their own, only those; elsewhere those that first reported a day before, or else all. A
    token's end is not looked at: it is by the time that is uncertain.
    """
    known = Node.first_seen_at <= at
    newest = session.scalar(select(func.max(Node.last_seen_at)).where(known))
    if newest is None:
        return frozenset()
    since = min(newest, at) - REPORTING_SECONDS
    found = session.execute(select(Node.name, Node.first_seen_at).where(known, Node.last_seen_at >= since))
    first_seen_at = {row[0]: row[1] for row in found}
    owned = select(Token.node).where(Token.node.is_not(None), Token.revoked_at.is_(None), Token.made_at <= at)
    bound = {node.lower() for node in session.scalars(owned) if node}
    return (
        frozenset(name for name in first_seen_at if name.lower() in bound)
        or frozenset(name for name, first_at in first_seen_at.items() if first_at <= at - KNOWN_SECONDS)
        or frozenset(first_seen_at)
    )


def read_votes(session: Session, at: float, own_boot_id: str) -> dict[str, float]:
    """Return how far the clock of each reporting node is ahead of the held time; this machine's own agent has no say."""
    recent = (Node.last_seen_at >= at - VOTE_SECONDS, Node.last_seen_at <= at + AHEAD_SECONDS)
    other = or_(Node.boot_id.is_(None), Node.boot_id != own_boot_id)
    found = session.execute(select(Node.name, Node.clock_offset_seconds).where(*recent, other))
    return {row[0]: row[1] for row in found if row[1] is not None}
