"""Blocks of records: a batch of an agent's spool, or of the service's log."""

from __future__ import annotations

from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.records import Record, Unread, block


def _sniff(head: bytes, _source: str) -> int:
    return 100 if head.startswith(block.MAGIC[:7]) else 0


@reader("block", made_by="the agent's spool", gives="records as the agent wrote them", sniff=_sniff)
def read(input: Input) -> Iterator[Record]:
    """Yield the records of one block, and what of it no reader can use."""
    decoded = block.decode_counting(input.stream.read())
    yield from decoded.records
    yield from (Unread(source=input.source, reason=reason, outcome="damaged") for reason in decoded.left_out())
