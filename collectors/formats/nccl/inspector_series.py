"""NCCL Inspector's Prometheus text, which a node's exporter collects from files: means by communicator, operation and size.

Metrics keep the plugin's names, which state the unit (nccl_bus_bandwidth_gbs). A device is one series of labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from collectors.formats.series_table import CELLS_LIMIT, Table

PREFIXES = ("nccl_bus_bandwidth_", "nccl_algorithm_bandwidth_", "nccl_collective", "nccl_p2p_")
MOST_SERIES = 100_000  # of one text
LINE_CHARACTERS = 8192
NAME_CHARACTERS = 300
# The labels that distinguish the series of a node, in reading order; older names beside the newer.
_DISTINGUISHING = (
    ("gpu", "gpu_device_id"), ("comm_name", "comm_id"), ("rank",), ("collective", "p2p_operation"), ("message_size",),
    ("algo_proto",), ("nranks", "n_ranks"),
)  # fmt: skip


@dataclass(slots=True)
class Series:
    """What a text holds; ``damaged``: lines that are no series, ``over``: those beyond the bound."""

    tables: list[Table] = field(default_factory=list)
    damaged: int = 0
    over: int = 0


def gather(lines: Iterable[str], cells_most: int = CELLS_LIMIT) -> Series:
    """Read the plugin's lines; a line that is damaged costs itself, one of another exporter nothing."""
    from prometheus_client.parser import text_string_to_metric_families

    series, tables, seen, cells = Series(), dict[str | None, Table](), 0, 0
    for line in lines:
        if not line.startswith(PREFIXES):
            continue
        seen += 1
        if seen > MOST_SERIES:
            series.over += 1
            continue
        try:
            # One line at a time: what the parser refuses would otherwise cost all that follows.
            (family,) = text_string_to_metric_families(line[:LINE_CHARACTERS])
            (sample,) = family.samples
        except (ValueError, IndexError):
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
