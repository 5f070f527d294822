"""Prometheus text as tables of devices by metrics, one a node: for a tick, or for one record of one instant."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from collectors.formats import Input
from collectors.records import ARRAY_CODES, NOT_READ, Samples, Unread, column_bytes

CELLS_LIMIT = 4_000_000  # of all tables of a text: devices times metrics, far more than the series that fill them
SERIES_LIMIT = 200_000  # of one text
LINE_CHARACTERS = 8192  # a series of an exporter has some hundred; a longer line is none

Type = Literal["<f4", "<i8"]


@dataclass(slots=True)
class Table:
    """The values of one kind of one node, by device and metric."""

    node: str | None
    type: Type = "<f4"
    cells: dict[str, dict[str, float]] = field(default_factory=dict)
    metrics: dict[str, None] = field(default_factory=dict)  # in the order of their coming

    def growth(self, device: str, metric: str) -> int:
        """Return how many cells there would be more if these two had a value."""
        devices, metrics = len(self.cells), len(self.metrics)
        return (devices + (device not in self.cells)) * (metrics + (metric not in self.metrics)) - devices * metrics

    def put(self, device: str, metric: str, value: float) -> None:
        """Set a cell."""
        self.metrics.setdefault(metric)
        self.cells.setdefault(device, {})[metric] = value

    def rows(self) -> Iterator[list[float | None]]:
        """Yield one row a device, a value a metric, None where there is none."""
        for values in self.cells.values():
            yield [values.get(metric) for metric in self.metrics]

    def samples(self, scope: str, input: Input) -> Samples:
        """Return the table as it stood when the file was written."""
        absent = NOT_READ if self.type == "<i8" else math.nan
        values: array[Any] = array(ARRAY_CODES[self.type])
        for row in self.rows():
            values.extend(absent if value is None else value for value in row)
        return Samples(
            source=input.source,
            at=input.at,
            node=self.node or input.node,
            scope=scope,
            type=self.type,
            devices=tuple(self.cells),
            metrics=tuple(self.metrics),
            ticks=struct.pack("<d", math.nan if input.at is None else input.at),
            values=column_bytes(values),
        )


def sample_of(line: str) -> Any:
    """Return the one sample of a series' line; raise ValueError where it is none."""
    from prometheus_client.parser import text_string_to_metric_families

    # One line at a time: what the parser refuses would otherwise cost all that follows.
    try:
        (family,) = text_string_to_metric_families(line[: LINE_CHARACTERS + 1])
        (sample,) = family.samples
    except IndexError as error:
        raise ValueError(str(error)) from error
    return sample


def not_read(input: Input, over: int, damaged: int) -> Iterator[Unread]:
    """Yield what of a text gave no value: series beyond the limits, and lines that are none."""
    if over:
        reason = f"{over:,} series are not read: {SERIES_LIMIT:,} series or {CELLS_LIMIT:,} values are the most"
        yield Unread(source=input.source, reason=reason, outcome="limit")
    if damaged:
        yield Unread(source=input.source, reason=f"{damaged:,} lines are no series", outcome="damaged")
