"""What several collectors report alike: rows of readings, devices that changed, and bounds that left something out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from collectors.live import Readings
from collectors.live.sources.clock import Clock
from collectors.records import Device, Record, Unread

AGAIN_SECONDS = 3600.0  # a store that keeps a week must find what a device is in any hour of it

Number = int | float
Row = Mapping[str, Number | None]


def tick(scope: str, rows: Mapping[str, Row], type: Literal["<f4", "<i8"] = "<i8") -> Iterable[Readings]:
    """Yield the rows (device → metric → value) as one ``Readings``, none where no row has a value."""
    metrics = tuple(dict.fromkeys(name for row in rows.values() for name, value in row.items() if value is not None))
    if metrics:
        values = [[row.get(name) for name in metrics] for row in rows.values()]
        yield Readings(scope, tuple(rows), metrics, values, type)


class ChangedDevices:
    """Passes on the devices that are new or have changed, and each device once an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported: dict[tuple[str, str], tuple[Device, float]] = {}

    def changed(self, devices: Iterable[Device]) -> Iterator[Device]:
        """Yield those to report now."""
        now, current = self._clock.monotonic(), {}
        for device in devices:
            key = (device.type, device.id)
            before = self._reported.get(key)
            if before is None or before[0] != device or now - before[1] >= AGAIN_SECONDS:
                before = device, now
                yield device
            current[key] = before
        self._reported = {**self._reported, **current} if len(self._reported) < 1000 else current


class LimitReports:
    """Reports that a bound left something out: at first, when the count has doubled, and once an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported: dict[str, tuple[int, float]] = {}

    def left_out(self, source: str, count: int, what: str) -> Iterator[Record]:
        """Yield the report that is due; ``what`` names the things and the bound."""
        now, before = self._clock.monotonic(), self._reported.get(source)
        if count and (before is None or count >= 2 * before[0] or now - before[1] >= AGAIN_SECONDS):
            self._reported[source] = count, now
            yield Unread(source=source, reason=f"{count:,} {what}", outcome="limit")
