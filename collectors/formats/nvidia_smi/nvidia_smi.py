"""``nvidia-smi -q -x``, or without ``-x`` its text, one report or many in a row: each GPU's names, state and values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

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
from collectors.formats.series_table import Table
from collectors.formats.text_lines import lines, local_seconds
from collectors.records import Device, DeviceState, Record, pci_address

ZONES_SECONDS = 15 * 3600.0  # the stamp has no zone: so far may it lie from the file's own time and be the same instant
XML_MARK, TEXT_MARK, NO_HANDLE = b"<nvidia_smi_log", b"NVSMI LOG==", b"Unable to determine the device handle for "
HEADING, LINES_LIMIT = "NVSMI LOG==", 200_000
_OF_REPORT = re.compile(
    r"\s*$|\s{1,40}(?:[A-Z]|vGPU)[\w .,()/%*&+-]{0,80}?(?:\s+:(?: .*)?)?$|[A-Z][\w ]{1,40}\s{2,30}: |"
    r"(?:Timestamp|Driver Version|CUDA Version|Attached GPUs) : |"  # where a paste lost the columns
    r"GPU (?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]$|Unable to determine the device handle for "
)
"""A heading, a value behind its colon, or a GPU. A line of anything else, though indented too, ends the report."""
SNIFF_LINES = 2000  # a report among other lines is found by collectors/formats/text_evidence.py
UNREAD = frozenset({"", "N/A", "[N/A]", "Not Found"})


def _sniff(head: bytes, _source: str) -> int:
    if XML_MARK in head and head.lstrip().startswith(b"<"):
        return 95
    if not (TEXT_MARK in head or head.lstrip().startswith(NO_HANDLE)):
        return 0
    *shown, last = head.decode(errors="replace").splitlines()[:SNIFF_LINES]  # the last may be cut
    shown = shown or [last]
    return 95 if all(HEADING in line or _OF_REPORT.match(line.rstrip()) for line in shown) else 0


@reader(
    "nvidia_smi",
    made_by="nvidia-smi -q -x, or nvidia-smi -q",
    gives="what each GPU is, does and has counted: ECC, remapped rows, retired pages, throttling, processes",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield, log by log, every GPU's names and state, and the values of all of them."""
    if XML_MARK in input.head:
        for log in xml_logs(input.stream):
            yield from _records(log, input, _at(log, input))
        return
    logs = text_logs(text for _, text in lines(input.stream))
    first = next(logs, None)
    second = next(logs, None)
    if first is not None:
        yield from _records(first, input, _at(first, input) if second is None else _stamp(first))
    while second is not None:
        yield from _records(second, input, _stamp(second))
        second = next(logs, None)


class SmiLines:
    """Takes the reports out of a text of other lines: each begins with its heading, and ends where its layout does."""

    def __init__(self, input: Input) -> None:
        self._input = input
        self._lines: list[str] = []

    @property
    def busy(self) -> bool:
        """True inside a report."""
        return bool(self._lines)

    def feed(self, text: str) -> bool:
        """Return whether a line is of a report."""
        if (HEADING in text and text.startswith("=")) or (
            self._lines and len(self._lines) < LINES_LIMIT and _OF_REPORT.match(text)
        ):
            self._lines.append(text)
            return True
        return False

    def finished(self) -> Iterator[Record]:
        """Yield what the lines of the reports gave, once a line is not of one."""
        lines, self._lines = self._lines, []
        for log in text_logs(lines):
            yield from _records(log, self._input, _stamp(log))


def _stamp(log: SmiLog) -> float | None:
    return local_seconds(log.head.get("timestamp", ""), "%a %b %d %H:%M:%S %Y")


def _at(log: SmiLog, input: Input) -> float | None:
    """Return when a lone log was made: the file's time, where the stamp agrees with it but for a zone; without one, None."""
    stamp = _stamp(log)
    if stamp is not None and input.at is not None and abs(input.at - stamp) <= ZONES_SECONDS:
        return input.at
    return stamp


def _records(log: SmiLog, input: Input, at: float | None) -> Iterator[Record]:
    # The tool numbers GPUs as it lists them; a log of some of them does not number them.
    whole = number(log.head.get("attached_gpus")) == len(log.gpus)
    gauges, counters, processes = Table(None), Table(None, "<i8"), Table(None, "<i8")
    for index, gpu in enumerate(log.gpus):
        id, pci = gpu.get(("gpu_uuid",), ("uuid",)) or "", _pci(gpu)
        id = id if id.startswith("GPU-") else pci or f"gpu{index}"
        place = index if whole else None
        if gpu.values:
            yield _device(
                log, gpu, Device(source=input.source, at=at, node=input.node, type="gpu", id=id, index=place, pci=pci)
            )
        if (found := state(gpu)) is not None:
            yield DeviceState(
                source=input.source, at=at, node=input.node, device=id, state=found[0], text=found[1], pci=pci, index=place
            )  # fmt: skip
        if id not in gauges.cells:
            _fill(gauges, id, gpu, GAUGES)
            _fill(counters, id, gpu, COUNTERS)
            if (mask := throttling(gpu)) is not None:
                counters.put(id, REASONS_METRIC, mask)
            for process in gpu.processes:
                used = number(process.get("used_gpu_memory") or process.get("used_memory"))
                if used is not None and process.get("pid", "").isdecimal():
                    processes.put(f"{id}/{process['pid']}", "memory_used_mib", int(used))
    for scope, table in (("gpu", gauges), ("gpu", counters), ("gpu_process", processes)):
        if table.metrics:
            yield table.samples(scope, replace(input, at=at))


def _fill(table: Table, id: str, gpu: SmiGpu, metrics: Mapping[str, tuple[Path, ...]]) -> None:
    table.cells[id] = {}
    for metric, paths in metrics.items():
        if (value := number(gpu.get(*paths))) is not None:
            table.put(id, metric, int(value) if table.type == "<i8" else value)


def _pci(gpu: SmiGpu) -> str | None:
    try:
        return pci_address(gpu.address or gpu.get(("pci", "bus_id"), ("pci", "pci_bus_id")) or "")
    except ValueError:
        return None


def _device(log: SmiLog, gpu: SmiGpu, known: Device) -> Device:
    serial = gpu.get(("serial_number",), ("serial",)) or ""
    attributes = {name: log.head.get(name) for name in ("driver_version", "cuda_version")}
    attributes |= {name: gpu.get(*paths) for name, paths in ATTRIBUTES.items()}
    return msgspec.structs.replace(
        known,
        name=gpu.get(("product_name",)) or "",
        serial=None if serial in UNREAD else serial,
        attributes={name: value for name, value in attributes.items() if value and value not in UNREAD},
    )
