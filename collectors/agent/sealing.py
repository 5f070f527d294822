"""How a segment's entries become one batch: the ticks packed into columns, and everything into one compressed block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from collectors.agent.columns import SampleTick, samples_of
from collectors.agent.segment import Entry
from collectors.records import Record, block
from collectors.records.record import Damaged


@dataclass(slots=True)
class Sealed:
    """A segment's content as it is shipped. ``data`` is empty where there was nothing but cursors."""

    data: bytes = b""
    records: int = 0
    from_at: float = 0.0  # UTC seconds: the first and the last appending
    until_at: float = 0.0
    cursors: dict[str, Any] = field(default_factory=dict)
    unusable: int = 0  # records of a kind that this version does not know: a newer agent ran here before


def seal(entries: Iterable[Entry], node: str) -> Sealed:
    """Return the entries as one packed block."""
    sealed, records, ticks = Sealed(), list[Record](), list[SampleTick]()
    for entry in entries:
        sealed.from_at = sealed.from_at or entry.at
        sealed.until_at = max(sealed.until_at, entry.at)
        sealed.cursors |= entry.cursors
        ticks += entry.ticks
        for data in entry.records:
            try:
                decoded = block.decode_counting(data)
            except Damaged:
                sealed.unusable += 1
                continue
            records += decoded.records
            sealed.unusable += sum(decoded.skipped.values())
    records += [msgspec.structs.replace(samples, node=node) for samples in samples_of(ticks)]
    sealed.records = len(records)
    if records:
        sealed.data = block.encode(records, pack=True)
    return sealed
