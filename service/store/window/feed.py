"""What the log's batches are handed to: the window in memory and the blocks on disk; after a restart, from both again."""

from __future__ import annotations

from collections.abc import Sequence

from collectors.records import Record, block
from collectors.records.record import Damaged
from service.store.log import Log, Stored
from service.store.window.compaction import Compaction, blocks
from service.store.window.tail import Tail

BATCHES_AT_ONCE = 500


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
            found = log.read_from(place, BATCHES_AT_ONCE)
            for stored in (one for one in found if one.sequence <= until_sequence):
                try:
                    self.add(stored, block.decode(stored.block))
                except Damaged:  # the follower has reported it
                    continue
            place = found[-1].sequence if found else until_sequence
