"""NCCL Inspector's metrics as Prometheus text: a file of its dump folder, or a saved scrape."""

from __future__ import annotations

from collections.abc import Iterator

from collectors.formats import Input, reader
from collectors.formats.nccl.inspector_series import MOST_SERIES, PREFIXES, gather
from collectors.formats.series_table import CELLS_LIMIT
from collectors.formats.text_lines import lines
from collectors.records import Record, Unread


def _sniff(head: bytes, source: str) -> int:
    del source
    whole = b"\n" + head
    # Below dcgm-exporter's claim: a scrape of both is that one's.
    return 90 if any(b"\n" + prefix.encode() in whole for prefix in PREFIXES) and b"{" in head else 0


@reader(
    "inspector_prometheus",
    made_by="NCCL_INSPECTOR_ENABLE=1 NCCL_INSPECTOR_PROM_DUMP=1",
    gives="mean time and bandwidth of collectives, by GPU, communicator, operation and size",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield one record of gauges a node, all of the instant at which the file was written."""
    series = gather(text for _, text in lines(input.stream))
    for table in series.tables:
        if table.cells:
            yield table.samples("nccl", input)
    if series.over:
        reason = f"{series.over:,} series are not read: {MOST_SERIES:,} series or {CELLS_LIMIT:,} values are the most"
        yield Unread(source=input.source, reason=reason, outcome="limit")
    if series.damaged:
        yield Unread(source=input.source, reason=f"{series.damaged:,} lines are no series", outcome="damaged")
