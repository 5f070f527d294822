"""What is not said twice: a device that is as it was, a bound that is still exceeded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from collectors.live.sources.clock import Clock
from collectors.records import Device, Record, Unread

AGAIN_SECONDS = 3600.0  # a store that keeps a week must find what a device is in any hour of it


class Devices:
    """Passes on the devices that are new or have changed, and every one once an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[tuple[str, str], tuple[Device, float]] = {}

    def changed(self, devices: Iterable[Device]) -> Iterator[Device]:
        """Yield those worth a record now."""
        now, still = self._clock.monotonic(), {}
        for device in devices:
            key = (device.type, device.id)
            before = self._said.get(key)
            if before is None or before[0] != device or now - before[1] >= AGAIN_SECONDS:
                before = device, now
                yield device
            still[key] = before
        self._said = {**self._said, **still} if len(self._said) < 1000 else still


class Bounds:
    """Tells that a bound left something out: when it begins, when it is twice as much, and once an hour."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._told: dict[str, tuple[int, float]] = {}

    def left_out(self, source: str, count: int, what: str) -> Iterator[Record]:
        """Yield what is to be told; ``what`` says of what, and which bound."""
        now, before = self._clock.monotonic(), self._told.get(source)
        if not count:
            return
        if before is None or count >= 2 * before[0] or now - before[1] >= AGAIN_SECONDS:
            self._told[source] = count, now
            yield Unread(source=source, reason=f"{count:,} {what}", outcome="limit")
