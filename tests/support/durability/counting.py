"""What the log holds of numbered records, against what the agents had spooled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from collectors.records import Coverage, LogEvent, block
from service.store.database import Database
from service.store.log import Log

EVENT = "counted"


@dataclass
class Count:
    """How often each number of each node is in the log, and whether the log's own numbers only grow."""

    of: dict[str, Counter[int]] = field(default_factory=dict)
    batches: int = 0
    out_of_order: int = 0
    told_dropped: dict[str, int] = field(default_factory=dict)  # node → records, as its newest Coverage says

    def lost(self, spooled: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the numbers that are missing, by node: each node had spooled 1 to its number."""
        missing = {node: sorted(set(range(1, last + 1)) - set(self.of.get(node, ()))) for node, last in spooled.items()}
        return {node: numbers for node, numbers in missing.items() if numbers}

    def twice(self) -> dict[str, list[int]]:
        """Return the numbers that are there more than once, by node."""
        more = {node: sorted(number for number, times in found.items() if times > 1) for node, found in self.of.items()}
        return {node: numbers for node, numbers in more.items() if numbers}


def count(database_url: str) -> Count:
    """Read the whole log of a database that nobody writes any more."""
    database = Database(database_url)
    found, sequence = Count(), 0
    while batches := Log(database).read_from(sequence, 500):
        for stored in batches:
            found.batches += 1
            found.out_of_order += stored.sequence <= sequence
            sequence = stored.sequence
            for record in block.decode(stored.block):
                if isinstance(record, LogEvent) and record.event == EVENT:
                    found.of.setdefault(stored.node, Counter())[record.sequence or 0] += 1
                elif isinstance(record, Coverage):
                    found.told_dropped[stored.node] = record.dropped_records
    database.close()
    return found
