"""Bundles of the service: the records of a job's incident, in the order and at the times they were received."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from collectors.formats import Damaged, Input, reader
from collectors.records import Record, Unread, block, bundle, of_sender


def _sniff(head: bytes, _source: str) -> int:
    return 100 if head.startswith(bundle.MAGIC[:7]) else 0


@reader(
    "bundle",
    made_by="faulthound export JOB --since 10m incident.fhz",
    gives="every record of a job in a span of time",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield the records of the bundle's job; a batch that is damaged costs itself."""
    job = ""
    for entry in bundle.read(input.stream):
        if isinstance(entry, bundle.Manifest):
            job = entry.job
            yield from (Unread(source=input.source, reason=reason, outcome="limit") for reason in entry.missing)
        elif isinstance(entry, bundle.Damage):
            yield Unread(source=input.source, reason=entry.reason, outcome="damaged")
        if not isinstance(entry, bundle.Batch):  # what was judged from the records is none of them
            continue
        source = f"{input.source}#{entry.sequence}"
        try:
            decoded = block.decode_counting(entry.block)
        except Damaged as error:
            yield Unread(source=source, reason=str(error), outcome="damaged")
            continue
        records = decoded.records
        yield from (Unread(source=source, reason=reason, outcome="damaged") for reason in decoded.left_out())
        for record in of_sender(records, entry.node, entry.received_at) if entry.node else records:
            if record.job is None or not job or record.job == job:
                yield msgspec.structs.replace(
                    record,
                    received_at=entry.received_at if entry.sequence else record.received_at or entry.received_at,
                    source=f"{source}:{record.source}" if record.source else source,
                )
