"""dcgm-exporter's series as tables: by node, gauges and counters apart, devices by metrics.

From a scrape of its port 9400, or a saved one, also of a Prometheus that federates many. Metrics keep the exporter's names
(DCGM_FI_DEV_GPU_UTIL), which state the unit. ``DCGM_FI_DEV_XID_ERRORS`` is the code of the last Xid and stays: a value
like the others, and no event.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from collectors.formats import Input, reader
from collectors.formats.series_table import CELLS_LIMIT, LINE_CHARACTERS, SERIES_LIMIT, Table, Type, not_read, sample_of
from collectors.formats.text_lines import lines as text_lines
from collectors.records import Device, Record, pci_address

NAME_CHARACTERS = 200
PREFIXES = ("DCGM_FI_", "DCGM_EXP_")
MARKS = (b"\nDCGM_FI_", b"\nDCGM_EXP_", b"\n# HELP DCGM_", b"\n# TYPE DCGM_")
DISTINGUISHING = ("xid", "clock_event", "health_watch")  # labels that make one name several metrics
MOST = (1 << 63) - 1

_NAME = re.compile(r"[A-Z0-9_]{1,150}")


@dataclass(slots=True)
class ExporterSeries:
    """What a text holds; ``skipped``: lines that are none of it, ``over``: series beyond the limit."""

    tables: list[Table] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    skipped: int = 0
    over: int = 0


def gather(lines: Iterable[str]) -> ExporterSeries:
    """Read the exporter's lines; a line that is damaged costs itself."""
    series, counters, seen = _Gathering(), set[str](), 0
    for line in lines:
        if line.startswith("# TYPE "):
            counters |= _declared(line)
        elif line.startswith(PREFIXES):
            seen += 1
            if seen > SERIES_LIMIT:
                series.over += 1
            else:
                series.add(line, counters)
    return ExporterSeries(list(series.tables.values()), list(series.devices.values()), series.skipped, series.over)


@dataclass(slots=True)
class _Gathering:
    tables: dict[tuple[str | None, Type], Table] = field(default_factory=dict)
    devices: dict[tuple[str | None, str], Device] = field(default_factory=dict)
    cells: int = 0
    skipped: int = 0
    over: int = 0

    def add(self, line: str, counters: set[str]) -> None:
        """Take one series in."""
        try:
            sample = sample_of(line)
            if not _NAME.fullmatch(sample.name):
                raise ValueError(sample.name)
            node, device = _owner(sample.labels)
        except ValueError:
            self.skipped += 1
            return
        type: Type = "<i8" if sample.name in counters else "<f4"
        table = self.tables.setdefault((node, type), Table(node, type))
        self.put(table, device, _metric(sample.name, sample.labels), sample.value)
        if _names_a_gpu(sample.labels) and (node, device) not in self.devices:
            self.devices[node, device] = _described(node, device, sample.labels)

    def put(self, table: Table, device: str, metric: str, value: float) -> None:
        """Set a cell, unless the tables are full."""
        more = table.growth(device, metric)
        if self.cells + more > CELLS_LIMIT:
            self.over += 1
        elif math.isfinite(value) and abs(value) < MOST:
            self.cells += more
            table.put(device, metric, int(value) if table.type == "<i8" else value)


def _declared(line: str) -> set[str]:
    """Return the metric that a TYPE line declares a counter."""
    words = line[:LINE_CHARACTERS].split()
    return {words[2]} if len(words) == 4 and words[3] == "counter" else set()


def _owner(labels: Mapping[str, str]) -> tuple[str | None, str]:
    """Return the node that a series names, and its device: a GPU, an instance of one, a switch or its port."""
    node = labels.get("hostname") or labels.get("Hostname") or None
    gpu = labels.get("UUID") or (f"gpu{labels['gpu']}" if labels.get("gpu") else "")
    if gpu and (instance := labels.get("GPU_I_ID")):
        gpu = f"{gpu}/{instance}"
    switch = "/".join(filter(None, (labels.get("nvswitch"), labels.get("nvlink"))))
    return node and node[:NAME_CHARACTERS], (gpu or switch)[:NAME_CHARACTERS]


def _metric(name: str, labels: Mapping[str, str]) -> str:
    given = [
        f'{label}="{labels[label]}"' for label in DISTINGUISHING if label in labels and name.startswith("DCGM_EXP_")
    ]
    return (f"{name}{{{','.join(given)}}}" if given else name)[:NAME_CHARACTERS]


def _names_a_gpu(labels: Mapping[str, str]) -> bool:
    """Whether a series is of a whole GPU, by its UUID."""
    return bool(labels.get("UUID")) and "GPU_I_ID" not in labels


def _described(node: str | None, device: str, labels: Mapping[str, str]) -> Device:
    """Return a GPU as the labels describe it: number, PCI address, model."""
    index = labels.get("gpu", "")
    driver = labels.get("DCGM_FI_DRIVER_VERSION")
    return Device(
        node=node,
        type="gpu",
        id=device,
        index=int(index) if index.isdecimal() and len(index) < 10 else None,
        pci=_pci(labels.get("pci_bus_id", "")),
        name=labels.get("modelName", "")[:NAME_CHARACTERS],
        attributes={"driver_version": driver[:NAME_CHARACTERS]} if driver else {},
    )


def _pci(text: str) -> str | None:
    try:
        return pci_address(text) if text else None
    except ValueError:
        return None


def _sniff(head: bytes, _source: str) -> int:
    whole = b"\n" + head
    return 95 if any(mark in whole for mark in MARKS) else 0


@reader(
    "dcgm_text",
    made_by="curl http://127.0.0.1:9400/metrics",
    gives="what each GPU does: tensor activity, power, clocks, throttling, errors counted",
    sniff=_sniff,
)
def read(input: Input) -> Iterator[Record]:
    """Yield each GPU's names and, for every node, one record of gauges and one of counters, all of one instant."""
    series = gather(text for _, text in text_lines(input.stream))
    for device in series.devices:
        owned = {"source": input.source, "at": input.at, "node": device.node or input.node}
        yield msgspec.structs.replace(device, **owned)
    for table in series.tables:
        if table.cells:
            yield table.samples("dcgm", input)
    yield from not_read(input, series.over, series.skipped)
