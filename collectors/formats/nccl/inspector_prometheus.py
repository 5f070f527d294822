"""NCCL Inspector's metrics as Prometheus text, of its dump folder or a scrape: means by communicator, operation and size.

Metrics keep the plugin's names, which state the unit (nccl_bus_bandwidth_gbs). A device is one series of labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from collectors.formats import Input, reader
from collectors.formats.series_table import CELLS_LIMIT, SERIES_LIMIT, Table, not_read, sample_of
from collectors.formats.text_lines import lines as text_lines
from collectors.records import Record

PREFIXES = ("nccl_bus_bandwidth_", "nccl_algorithm_bandwidth_", "nccl_collective", "nccl_p2p_")
NAME_CHARACTERS = 300
# The labels that distinguish the series of a node, in reading order; older names beside the newer.
_DISTINGUISHING = (
    ("gpu", "gpu_device_id"), ("comm_name", "comm_id"), ("rank",), ("collective", "p2p_operation"), ("message_size",),
    ("algo_proto",), ("nranks", "n_ranks"),
)  # fmt: skip


@dataclass(slots=True)
class InspectorSeries:
    """What a text holds; ``damaged``: lines that are no series, ``over``: those beyond the bound."""

    tables: list[Table] = field(default_factory=list)
    damaged: int = 0
    over: int = 0


def gather(lines: Iterable[str], cells_most: int = CELLS_LIMIT) -> InspectorSeries:
    """Read the plugin's lines; a line that is damaged costs itself, one of another exporter nothing."""
    series, tables, seen, cells = InspectorSeries(), dict[str | None, Table](), 0, 0
    for line in lines:
        if not line.startswith(PREFIXES):
            continue
        seen += 1
        if seen > SERIES_LIMIT:
            series.over += 1
            continue
        try:
            sample = sample_of(line)
        except ValueError:
            series.damaged += 1
            continue
        node = sample.labels.get("node") or sample.labels.get("hostname") or None
        table, device = tables.setdefault(node, Table(node)), _device(sample.labels)
        more = table.growth(device, sample.name)
        if cells + more > cells_most:
            series.over += 1
        elif math.isfinite(sample.value):
            cells += more
            table.put(device, sample.name, sample.value)
    series.tables = list(tables.values())
    return series


def _device(labels: Mapping[str, str]) -> str:
    given = (next((labels[name] for name in names if labels.get(name)), "") for names in _DISTINGUISHING)
    return "/".join(filter(None, given))[:NAME_CHARACTERS]


def _sniff(head: bytes, _source: str) -> int:
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
    series = gather(text for _, text in text_lines(input.stream))
    for table in series.tables:
        if table.cells:
            yield table.samples("nccl", input)
    yield from not_read(input, series.over, series.damaged)
