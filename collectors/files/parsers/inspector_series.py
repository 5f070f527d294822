"""NCCL Inspector's Prometheus files."""

from __future__ import annotations

from typing import Any

from collectors.formats.nccl.inspector_prometheus import gather


def parse(data: bytes, most_cells: int) -> list[tuple[str | None, list[str], list[str], list[Any]]]:
    """Return tables of (node, devices, metrics, a row of values for each device)."""
    tables = gather(data.decode(errors="replace").split("\n"), most_cells).tables
    return [(one.node, list(one.cells), list(one.metrics), list(one.rows())) for one in tables if one.cells]
