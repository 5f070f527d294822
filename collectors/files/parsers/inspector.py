"""NCCL Inspector's log lines and its Prometheus files."""

from __future__ import annotations

from typing import Any

from collectors.formats.nccl.inspector_jsonl import gather, thinned
from collectors.formats.nccl.inspector_prometheus import gather as gather_series
from collectors.records import block


def parse(data: bytes, most: int, series: bool = False) -> Any:
    """Return a block of the operations, ``most`` at most, and how many lines are none; of ``series`` the tables.

    A table is (node, devices, metrics, a row of values for each device), of ``most`` cells in all.
    """
    if series:
        tables = gather_series(data.decode(errors="replace").split("\n"), most).tables
        return [[one.node, list(one.cells), list(one.metrics), list(one.rows())] for one in tables if one.cells]
    gathered = gather(data.split(b"\n"))
    every = thinned(gathered.communicators, most)
    return [block.encode(found for each in gathered.communicators for found in each.records(every)), gathered.damaged]
