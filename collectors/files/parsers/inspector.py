"""NCCL Inspector's log lines."""

from __future__ import annotations

from collectors.formats.nccl.inspector_jsonl import gather, thinned
from collectors.records import block


def parse(data: bytes, most: int) -> tuple[bytes, int]:
    """Return a block of the operations, about ``most`` of them, and how many lines are none."""
    gathered = gather(data.split(b"\n"))
    every = thinned(gathered.communicators, most)
    return block.encode(found for each in gathered.communicators for found in each.records(every)), gathered.damaged
