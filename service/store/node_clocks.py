"""What the nodes' clocks show, of each the newest; a name under which two clocks speak shows nothing.

A token that is bound to no node may report under a known name. Its batches come between those of the node's own agent, so
the clock under that name goes there and back. A clock that was set changes once, and the service's time, when it adopts
another one, changes all of them once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from service.clock import LEASH_SECONDS

DISPUTED_SECONDS = 600.0  # as long as other clocks must agree on a time forwards
MOST_NODES = 1 << 18


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
