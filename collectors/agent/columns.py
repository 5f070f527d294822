"""Ticks of sampled values, as they come, and the one record with columns that a scope's ticks become."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import msgspec

from collectors.live import Readings
from collectors.records import NOT_READ, Samples

VALUES_MOST = 200_000  # of one tick
EMPTY_SHARE = 4  # a record has at most so many times the rows that its ticks had,
FEW_ROWS = 4_096  # or so many in all ticks together
LARGEST = (1 << 63) - 1
_CODES = {"<f4": "f", "<i8": "q"}
_ABSENT = {"<f4": float("nan"), "<i8": NOT_READ}


class SampleTick(msgspec.Struct, frozen=True, array_like=True):
    """One ``Readings`` as it stands in a segment: ``values`` raw, device after device."""

    source: str  # the collector
    scope: str
    type: Literal["<f4", "<i8"]
    devices: tuple[str, ...]
    metrics: tuple[str, ...]
    at: float
    monotonic_at: float
    boot_id: str | None
    values: bytes


def tick_of(readings: Readings, source: str, at: float, monotonic_at: float, boot_id: str | None) -> SampleTick:
    """Return the readings as raw bytes; raise ValueError where they are not what they claim to be."""
    devices, metrics = _names(readings.devices, "device"), _names(readings.metrics, "metric")
    if readings.type not in _CODES:
        raise ValueError(f"readings of {readings.scope!r} have type {readings.type!r}: gauges are <f4, counters <i8")
    if len(devices) * len(metrics) > VALUES_MOST:
        raise ValueError(
            f"readings of {readings.scope!r}: {len(devices)} × {len(metrics)} values, over {VALUES_MOST:,}"
        )
    if len(readings.values) != len(devices) or any(len(row) != len(metrics) for row in readings.values):
        raise ValueError(f"readings of {readings.scope!r} are not {len(devices)} devices × {len(metrics)} metrics")
    one = _gauge if readings.type == "<f4" else _counter
    values: array[Any] = array(_CODES[readings.type], [one(value) for row in readings.values for value in row])
    return SampleTick(
        source, str(readings.scope), readings.type, devices, metrics, at, monotonic_at, boot_id, values.tobytes()
    )


def _names(names: Iterable[Any], what: str) -> tuple[str, ...]:
    found = tuple(names)
    if not all(isinstance(name, str) for name in found) or len(set(found)) < len(found):
        raise ValueError(f"the {what}s of the readings are not distinct names: {found[:4]!r}")
    return found


def _gauge(value: float | None) -> float:
    return _ABSENT["<f4"] if value is None else float(value)


def _counter(value: float | None) -> int:
    # NaN and infinity are no counts, and what the source counts beyond int64 cannot be told from a wrong reading.
    if value is None or value != value or not -LARGEST <= value <= LARGEST:  # noqa: PLR0124
        return NOT_READ
    return int(value)


def samples_of(ticks: Iterable[SampleTick]) -> list[Samples]:
    """Return the ticks packed: one record a source, scope, type, boot and list of metrics, in order of first coming.

    Where devices come and go so fast that the columns would be mostly empty, there are several.
    """
    series: dict[tuple[Any, ...], list[SampleTick]] = {}
    for tick in ticks:
        series.setdefault((tick.source, tick.scope, tick.type, tick.boot_id, tick.metrics), []).append(tick)
    return [_packed(of_one) for of_all in series.values() for of_one in _dense(of_all)]


def _dense(ticks: list[SampleTick]) -> Iterator[list[SampleTick]]:
    taken, devices, told = list[SampleTick](), set[str](), 0
    for tick in ticks:
        told += len(tick.devices)
        if len(devices.union(tick.devices)) * (len(taken) + 1) > max(FEW_ROWS, EMPTY_SHARE * told):
            yield taken
            taken, devices, told = [], set(), len(tick.devices)
        taken.append(tick)
        devices.update(tick.devices)
    yield taken


def _packed(ticks: list[SampleTick]) -> Samples:
    first = ticks[0]
    # A device that came or went in between has the absent value where it was not there.
    devices = tuple(dict.fromkeys(device for tick in ticks for device in tick.devices))
    width, count = len(first.metrics), len(ticks)
    values: array[Any] = array(_CODES[first.type], [_ABSENT[first.type]]) * (len(devices) * width * count)
    for number, tick in enumerate(ticks):
        given: array[Any] = array(_CODES[first.type], tick.values)
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
