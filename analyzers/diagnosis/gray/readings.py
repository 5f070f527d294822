"""What was read of each GPU and port, in one table of ticks: several files, sources and metrics of one come together here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.gray.names import COUNTERS, GAUGES, PORTS, SCOPES
from analyzers.model.sample_values import sample_values
from analyzers.model.window import Window
from collectors.records import NOT_READ, Device, Samples

Floats = NDArray[np.float64]
Parts = list[tuple[Floats, Floats]]  # instants and values

MOST_AT = 1e11  # a later instant is none
UNKNOWN: Device = Device(source="", type="gpu", id="")


@dataclass
class DeviceReadings:
    """One GPU or port.

    ``ticks``: whole seconds; where a file has no time, its number. ``columns``: reading → a value a tick, or NaN.
    ``counted``: (kind, scope, metric, part) → instants and values of a counter, of readings with a time.
    """

    node: str | None
    id: str
    device: Device
    source: str
    received: bool
    ticks: Floats
    columns: dict[str, Floats]
    counted: dict[tuple[str, str, str, str], tuple[Floats, Floats]] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """Return the name of the product; empty where it is not known."""
        return self.device.name

    @property
    def is_port(self) -> bool:
        """Whether it is a port of a network card."""
        return self.device.type == PORTS

    @property
    def name(self) -> str:
        """Return what it is called in sentences."""
        number = self.device.index
        known = (
            f"port {self.id}"
            if self.is_port
            else f"GPU {number}"
            if number is not None
            else f"GPU {self.device.pci or self.id}"
        )
        return f"{known} of {self.node}" if self.node else known

    def column(self, name: str) -> Floats:
        """Return a reading at each tick."""
        found = self.columns.get(name)
        return np.full(len(self.ticks), np.nan) if found is None else found


@dataclass
class _Gathered:
    source: str
    received: bool
    gauges: dict[str, Parts] = field(default_factory=lambda: defaultdict(list))
    counters: dict[tuple[str, str, str, str], Parts] = field(default_factory=lambda: defaultdict(list))
    undated: dict[str, float] = field(default_factory=dict)  # file without a time → its number


Key = tuple[str | None, str]  # node, and PCI address or UUID


def devices(window: Window) -> list[DeviceReadings]:
    """Return the readings of every whole GPU and every port, in order of their names."""
    known = {(one.node, one.id): one for one in window.records_of(Device) if one.type in ("gpu", PORTS)}
    gathered: dict[Key, _Gathered] = {}
    ids: dict[Key, str] = {}
    for samples in window.records_of(Samples):
        for id, part, row in _rows(samples):
            device = known.get((samples.node, id), UNKNOWN)
            key = samples.node, _name(device, id)
            ids.setdefault(key, id)
            if key not in gathered:
                gathered[key] = _Gathered(samples.source, samples.received_at is not None)
            _take(gathered[key], samples, part, row)
    by_key = {(one.node, _name(one, one.id)): one for one in known.values()}
    order = sorted(gathered, key=lambda key: (key[0] or "", key[1]))
    return [_readings(key, ids[key], by_key.get(key, UNKNOWN), gathered[key]) for key in order]


def _name(device: Device, id: str) -> str:
    """Return what a device's readings are gathered by: sources differ in their names of a GPU; a card may have two ports."""
    return id if device.type == PORTS else device.pci or id


def _rows(samples: Samples) -> Iterator[tuple[str, str, Mapping[str, Floats]]]:
    """Yield GPU, part of it (a link) and the wanted metrics' values a tick; a record of another shape gives nothing."""
    wanted = [name for name in samples.metrics if name in GAUGES or name in COUNTERS]
    found = sample_values(samples)
    if samples.scope not in SCOPES or not wanted or found is None:
        return
    read = found[1]
    values = np.where(read == NOT_READ, np.nan, read) if samples.type == "<i8" else read.astype(np.float64)
    for number, device in enumerate(samples.devices):
        if samples.scope == PORTS:
            yield device, "", {name: values[number, samples.metrics.index(name)] for name in wanted}
            continue
        gpu, slash, link = device.rpartition("/")
        if bool(slash) != (samples.scope == "nvlink"):
            continue  # an instance of a GPU that is divided has no clock or link of its own
        row = {name: values[number, samples.metrics.index(name)] for name in wanted}
        yield (gpu, link, row) if slash else (device, "", row)


def _take(into: _Gathered, samples: Samples, part: str, row: Mapping[str, Floats]) -> None:
    ticks = np.frombuffer(samples.ticks, "<f8").astype(np.float64)
    dated = np.isfinite(ticks) & (np.abs(ticks) < MOST_AT)
    if not dated.any():
        ticks = np.full(len(ticks), into.undated.setdefault(samples.source, float(len(into.undated))))
    for name, values in row.items():
        if name in GAUGES:
            reading, unit = GAUGES[name]
            use = np.isfinite(values) & (dated if dated.any() else True)
            into.gauges[reading].append((np.round(ticks[use]), values[use] * unit))
        else:
            use = np.isfinite(values) & dated
            into.counters[COUNTERS[name], samples.scope, name, part].append((ticks[use], values[use]))


def _readings(key: Key, id: str, device: Device, gathered: _Gathered) -> DeviceReadings:
    joined = {name: _in_order(parts) for name, parts in gathered.gauges.items()}
    ticks = np.unique(np.concatenate([at for at, _ in joined.values()] or [np.empty(0)]))
    columns = {}
    for name, (at, values) in joined.items():
        columns[name] = np.full(len(ticks), np.nan)
        columns[name][np.searchsorted(ticks, at)] = values
    counted = {name: _in_order(parts) for name, parts in sorted(gathered.counters.items())}
    return DeviceReadings(key[0], id, device, gathered.source, gathered.received, ticks, columns, counted)


def _in_order(parts: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Join readings by their instants; of one instant one is kept, the largest, so that no order of records matters."""
    at, values = (
        parts[0] if len(parts) == 1 else (np.concatenate([part[number] for part in parts]) for number in (0, 1))
    )
    if (at[1:] > at[:-1]).all():
        return at, values
    order = np.lexsort((-values, at))
    at, values = at[order], values[order]
    first = np.ones(len(at), np.bool_)
    first[1:] = at[1:] != at[:-1]
    return at[first], values[first]
