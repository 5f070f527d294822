"""``nvidia-smi -q``, as text or with ``-x`` as XML, one log or many in a row: each GPU's names, state and values."""

from __future__ import annotations

import calendar
import math
import struct
import time
from array import array
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from collectors.formats import Input, reader
from collectors.formats.nvidia_smi.smi_tree import Path, SmiGpu, SmiLog, text_logs, xml_logs
from collectors.formats.nvidia_smi.smi_values import (
    ATTRIBUTES,
    COUNTERS,
    GAUGES,
    REASONS_METRIC,
    number,
    state,
    throttling,
)
from collectors.formats.text_lines import lines
from collectors.records import NOT_READ, Device, DeviceState, Record, Samples, pci_address

ZONES_SECONDS = 15 * 3600.0  # the stamp has no zone: so far may it lie from the file's own time and be the same instant
XML_MARK, TEXT_MARK, NO_HANDLE = b"<nvidia_smi_log", b"NVSMI LOG==", b"Unable to determine the device handle for "

Column = dict[str, float | None]


def _sniff(head: bytes, source: str) -> int:
    del source
    if XML_MARK in head and head.lstrip().startswith(b"<"):
        return 95
    return 95 if TEXT_MARK in head or head.lstrip().startswith(NO_HANDLE) else 0


@reader(
    "nvidia_smi",
    made_by="nvidia-smi -q",
    gives="what each GPU is, does and has counted: ECC, remapped rows, retired pages, throttling, processes",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield, log by log, every GPU's names and state, and the values of all of them."""
    if XML_MARK in input.head:
        for log in xml_logs(input.stream):
            yield from _records(log, input, _at(log, input))
        return
    before: SmiLog | None = None
    alone = True
    for log in text_logs(text for _, text in lines(input.stream)):
        if before is not None:
            alone = False
            yield from _records(before, input, _stamp(before))
        before = log
    if before is not None:
        yield from _records(before, input, _at(before, input) if alone else _stamp(before))


def _stamp(log: SmiLog) -> float | None:
    """Return the log's own time as if it were UTC; it says no zone."""
    try:
        return float(calendar.timegm(time.strptime(log.head.get("timestamp", ""), "%a %b %d %H:%M:%S %Y")))
    except (ValueError, OverflowError):
        return None


def _at(log: SmiLog, input: Input) -> float | None:
    """Return when a lone log was made: the file's time, where the stamp agrees with it but for a zone."""
    stamp = _stamp(log)
    if stamp is None or (input.at is not None and abs(input.at - stamp) <= ZONES_SECONDS):
        return input.at
    return stamp


def _records(log: SmiLog, input: Input, at: float | None) -> Iterator[Record]:
    # The tool numbers GPUs as it lists them; a log of some of them does not say which.
    whole = number(log.head.get("attached_gpus")) == len(log.gpus)
    named: dict[str, SmiGpu] = {}
    for index, gpu in enumerate(log.gpus):
        id, pci = gpu.get(("gpu_uuid",), ("uuid",)) or "", _pci(gpu)
        id = id if id.startswith("GPU-") else pci or f"gpu{index}"
        named.setdefault(id, gpu)
        place = index if whole else None
        if gpu.values:
            yield _device(log, gpu, input, Device(at=at, type="gpu", id=id, index=place, pci=pci))
        if (said := state(gpu)) is not None:
            word, text = said
            yield DeviceState(
                source=input.source, at=at, node=input.node, device=id, state=word, text=text, pci=pci, index=place
            )
    gauges = {id: _read(gpu, GAUGES) for id, gpu in named.items()}
    counters = {id: {**_read(gpu, COUNTERS), REASONS_METRIC: throttling(gpu)} for id, gpu in named.items()}
    processes: dict[str, Column] = {
        f"{id}/{process['pid']}": {
            "memory_used_mib": number(process.get("used_gpu_memory") or process.get("used_memory"))
        }
        for id, gpu in named.items()
        for process in gpu.processes
        if process.get("pid", "").isdecimal()
    }
    yield from _samples(input, at, "gpu", "<f4", gauges)
    yield from _samples(input, at, "gpu", "<i8", counters)
    yield from _samples(input, at, "gpu_process", "<i8", processes)


def _pci(gpu: SmiGpu) -> str | None:
    try:
        return pci_address(gpu.address or gpu.get(("pci", "bus_id"), ("pci", "pci_bus_id")) or "")
    except ValueError:
        return None


def _device(log: SmiLog, gpu: SmiGpu, input: Input, known: Device) -> Device:
    serial = gpu.get(("serial_number",), ("serial",))
    attributes = {name: log.head.get(name) for name in ("driver_version", "cuda_version")}
    attributes |= {name: gpu.get(*paths) for name, paths in ATTRIBUTES.items()}
    return msgspec.structs.replace(
        known,
        source=input.source,
        node=input.node,
        name=gpu.get(("product_name",)) or "",
        serial=serial if _told(serial) else None,
        attributes={name: value for name, value in attributes.items() if value and _told(value)},
    )


def _told(value: str | None) -> bool:
    return bool(value) and value not in ("N/A", "[N/A]", "Not Found")


def _read(gpu: SmiGpu, metrics: Mapping[str, tuple[Path, ...]]) -> Column:
    return {metric: number(gpu.get(*paths)) for metric, paths in metrics.items()}


def _samples(
    input: Input, at: float | None, scope: str, type: Literal["<f4", "<i8"], columns: Mapping[str, Column]
) -> Iterator[Samples]:
    """Yield one table, of the metrics that some device has; nothing where there is none."""
    given = {metric: None for column in columns.values() for metric, value in column.items() if value is not None}
    if not given:
        return
    values: array[Any] = array("q" if type == "<i8" else "f")
    for column in columns.values():
        for metric in given:
            value = column.get(metric)
            values.append(
                (NOT_READ if value is None else int(value)) if type == "<i8" else math.nan if value is None else value
            )
    yield Samples(
        source=input.source,
        at=at,
        node=input.node,
        scope=scope,
        type=type,
        devices=tuple(columns),
        metrics=tuple(given),
        ticks=struct.pack("<d", math.nan if at is None else at),
        values=values.tobytes(),
    )
