"""How a segment becomes a batch: the ticks of sampled values packed into columns, and all records into one block."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from collectors.agent.segment import Entry, SampleTick
from collectors.live import Readings
from collectors.records import NOT_READ, Record, Samples, block
from collectors.records.record import Damaged

VALUES_MOST = 200_000  # of one tick
EMPTY_SHARE = 4  # a record has at most so many times the rows that its ticks had,
FEW_ROWS = 4_096  # or so many in all ticks together
LARGEST = (1 << 63) - 1
ARRAY_CODES = {"<f4": "f", "<i8": "q"}
_ABSENT = {"<f4": float("nan"), "<i8": NOT_READ}


@dataclass(slots=True)
class Sealed:
    """A segment's content as it is shipped. ``data`` is empty where the segment held only cursors."""

    data: bytes = b""
    records: int = 0
    from_at: float = 0.0  # UTC seconds: the first and the last appending
    until_at: float = 0.0
    cursors: dict[str, Any] = field(default_factory=dict)
    unusable: int = 0  # records of a kind that this version does not know: a newer agent ran here before


def seal(entries: Iterable[Entry], node: str) -> Sealed:
    """Return the entries as one packed block."""
    sealed, records, ticks = Sealed(), list[Record](), list[SampleTick]()
    for entry in entries:
        sealed.from_at = sealed.from_at or entry.at
        sealed.until_at = max(sealed.until_at, entry.at)
        sealed.cursors |= entry.cursors
        ticks += entry.ticks
        for data in entry.records:
            try:
                decoded = block.decode_counting(data)
            except Damaged:
                sealed.unusable += 1
                continue
            records += decoded.records
            sealed.unusable += sum(decoded.skipped.values())
    records += [msgspec.structs.replace(samples, node=node) for samples in pack_ticks(ticks)]
    sealed.records = len(records)
    if records:
        sealed.data = block.encode(records, pack=True)
    return sealed


def encode_tick(readings: Readings, source: str, at: float, monotonic_at: float, boot_id: str | None) -> SampleTick:
    """Return the readings as raw bytes; raise ValueError where they are inconsistent or too many."""
    scope, type = str(readings.scope), readings.type
    devices, metrics = _names(readings.devices, "device"), _names(readings.metrics, "metric")
    if type not in ARRAY_CODES:
        raise ValueError(f"readings of {scope!r} have type {type!r}: gauges are <f4, counters <i8")
    if len(devices) * len(metrics) > VALUES_MOST:
        raise ValueError(f"readings of {scope!r}: {len(devices)} × {len(metrics)} values, more than {VALUES_MOST:,}")
    if len(readings.values) != len(devices) or any(len(row) != len(metrics) for row in readings.values):
        raise ValueError(f"readings of {scope!r} are not {len(devices)} devices × {len(metrics)} metrics")
    one = _gauge if type == "<f4" else _counter
    values: array[Any] = array(ARRAY_CODES[type], [one(value) for row in readings.values for value in row])
    return SampleTick(source, scope, type, devices, metrics, at, monotonic_at, boot_id, values.tobytes())


def _names(names: Iterable[Any], what: str) -> tuple[str, ...]:
    found = tuple(names)
    if not all(isinstance(name, str) for name in found) or len(set(found)) < len(found):
        raise ValueError(f"the {what}s of the readings are not distinct names: {found[:4]!r}")
    return found


def _gauge(value: float | None) -> float:
    return _ABSENT["<f4"] if value is None else float(value)


def _counter(value: float | None) -> int:
    # NaN and infinity are no counts, and a count beyond int64 cannot be distinguished from a wrong reading.
    if value is None or value != value or not -LARGEST <= value <= LARGEST:  # noqa: PLR0124
        return NOT_READ
    return int(value)


def pack_ticks(ticks: Iterable[SampleTick]) -> list[Samples]:
    """Return one record for each source, scope, type, boot and list of metrics, in order of first appearance.

    Where devices come and go so fast that the columns would be mostly empty, one becomes several.
    """
    series: dict[tuple[Any, ...], list[SampleTick]] = {}
    for tick in ticks:
        series.setdefault((tick.source, tick.scope, tick.type, tick.boot_id, tick.metrics), []).append(tick)
    return [_packed(dense) for alike in series.values() for dense in _dense(alike)]


def _dense(ticks: list[SampleTick]) -> Iterator[list[SampleTick]]:
    taken, devices, rows = list[SampleTick](), set[str](), 0
    for tick in ticks:
        rows += len(tick.devices)
        if len(devices.union(tick.devices)) * (len(taken) + 1) > max(FEW_ROWS, EMPTY_SHARE * rows):
            yield taken
            taken, devices, rows = [], set(), len(tick.devices)
        taken.append(tick)
        devices.update(tick.devices)
    yield taken


def _packed(ticks: list[SampleTick]) -> Samples:
    first = ticks[0]
    # A device that came or went in between has the absent value for the other ticks.
    devices = tuple(dict.fromkeys(device for tick in ticks for device in tick.devices))
    code, width, count = ARRAY_CODES[first.type], len(first.metrics), len(ticks)
    values: array[Any] = array(code, [_ABSENT[first.type]]) * (len(devices) * width * count)
    for number, tick in enumerate(ticks):
        given: array[Any] = array(code, tick.values)
        if tick.devices == devices:
            values[number::count] = given
            continue
        for row, device in enumerate(tick.devices):
            at = devices.index(device) * width * count
            values[at + number : at + width * count : count] = given[row * width : (row + 1) * width]
    return Samples(
        source=first.source,
        at=first.at,
        monotonic_at=first.monotonic_at,
        boot_id=first.boot_id,
        scope=first.scope,
        type=first.type,
        devices=devices,
        metrics=first.metrics,
        ticks=array("d", [tick.at for tick in ticks]).tobytes(),
        monotonic_ticks=array("d", [tick.monotonic_at for tick in ticks]).tobytes(),
        values=values.tobytes(),
    )
