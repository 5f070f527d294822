"""One tick of readings from rows that need not have the same metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from collectors.live import Readings

Number = int | float
Row = Mapping[str, Number | None]


def tick(scope: str, rows: Mapping[str, Row], type: Literal["<f4", "<i8"] = "<i8") -> Iterable[Readings]:
    """Yield the rows (device → metric → value) as one ``Readings``; nothing where there is no value at all."""
    metrics = tuple(dict.fromkeys(name for row in rows.values() for name, value in row.items() if value is not None))
    if metrics:
        values = [[row.get(name) for name in metrics] for row in rows.values()]
        yield Readings(scope, tuple(rows), metrics, values, type)
