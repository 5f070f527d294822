"""dcgm-exporter's metrics as text: a saved scrape of its port 9400, or of a Prometheus that federates many."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from collectors.formats import Input, reader
from collectors.formats.dcgm.dcgm_series import SERIES_LIMIT, gather
from collectors.formats.series_table import CELLS_LIMIT
from collectors.formats.text_lines import lines
from collectors.records import Record, Unread

MARKS = (b"\nDCGM_FI_", b"\nDCGM_EXP_", b"\n# HELP DCGM_", b"\n# TYPE DCGM_")


def _sniff(head: bytes, source: str) -> int:
    del source
    whole = b"\n" + head
    return 95 if any(mark in whole for mark in MARKS) else 0


@reader(
    "dcgm_text",
    made_by="curl http://127.0.0.1:9400/metrics",
    gives="what each GPU does: tensor activity, power, clocks, throttling, errors counted",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield each GPU's names and, for every node, one record of gauges and one of counters, all of one instant."""
    series = gather(text for _, text in lines(input.stream))
    for device in series.devices:
        owned = {"source": input.source, "at": input.at, "node": device.node or input.node}
        yield msgspec.structs.replace(device, **owned)
    for table in series.tables:
        if table.cells:
            yield table.samples("dcgm", input)
    if series.over:
        reason = f"{series.over:,} series are not read: {SERIES_LIMIT:,} series or {CELLS_LIMIT:,} values are the most"
        yield Unread(source=input.source, reason=reason, outcome="limit")
    if series.skipped:
        yield Unread(source=input.source, reason=f"{series.skipped:,} lines are no series", outcome="damaged")
