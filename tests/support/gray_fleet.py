"""Nodes of GPUs under load as their tools report them, healthy but for what a test changes; written and judged."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from analyzers.model.topology import infer
from analyzers.model.verdict import Verdict
from analyzers.model.window import Window
from analyzers.verdict.judge import judge
from collectors.formats import Input
from collectors.formats.dcgm.dcgm_text import read as read_dcgm
from collectors.formats.nvidia_smi.nvidia_smi import read as read_smi
from collectors.records import Device, Record, Samples
from service.packaged_knowledge import load

BEGIN_AT = 1_790_848_800.0  # "Thu Oct  1 10:00:00 2026", as if it were UTC
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
CLOCK_SETTING, POWER_CAP = "Applications Clocks Setting", "SW Power Cap"
SLOWDOWN, WARM, HOT, BRAKE = "HW Slowdown", "SW Thermal Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown"
BITS = {"Idle": 0x1, CLOCK_SETTING: 0x2, POWER_CAP: 0x4, SLOWDOWN: 0x8, WARM: 0x20, HOT: 0x40, BRAKE: 0x80}


@dataclass(frozen=True)
class GpuState:
    """One GPU at one time."""

    model: str = H100
    load: int = 98
    clock: int = 1750
    temperature: int = 66
    power: float = 610.0
    limit: float = 700.0
    generation: int = 5
    generation_max: int = 5
    width: int = 16
    width_max: int = 16
    reasons: frozenset[str] = frozenset()
    corrected: int = 0
    uncorrected: int = 0
    uncorrected_ever: int = 0
    remapped: int = 0
    replays: int = 0
    crc: int = 0
    recoveries: int = 0


IDLE = GpuState(load=0, clock=345, temperature=31, power=70.0, generation=1, reasons=frozenset({"Idle"}))
Change = Callable[[int, int, int], dict[str, object]]


def nothing(_node: int, _gpu: int, _report: int) -> dict[str, object]:
    """Change nothing: all are healthy."""
    return {}


def on(node: int, gpu: int, since: int = 0, **changes: object) -> Change:
    """Change one GPU from a report on."""

    def change(at_node: int, at_gpu: int, report: int) -> dict[str, object]:
        return changes if (at_node, at_gpu) == (node, gpu) and report >= since else {}

    return change


def both(*changes: Change) -> Change:
    """Apply several changes."""
    return lambda *place: {name: value for change in changes for name, value in change(*place).items()}


@dataclass(frozen=True)
class GrayFleet:
    """``change``: (node, GPU, report) → what differs from a healthy GPU. ``left_out``: lines with these words are not written."""

    nodes: int = 2
    gpus: int = 8
    reports: int = 6
    seconds: float = 60.0
    change: Change = nothing
    base: GpuState = field(default_factory=GpuState)
    left_out: Sequence[str] = ()
    names: Sequence[str] = ()

    def state(self, node: int, gpu: int, report: int) -> GpuState:
        """Return a GPU; clocks and temperatures of healthy ones differ a little."""
        wobble = (7 * node + 5 * gpu + 3 * report) % 5 - 2
        base = replace(self.base, clock=self.base.clock + 15 * wobble, temperature=self.base.temperature + 2 * wobble)
        return replace(base, **self.change(node, gpu, report))  # type: ignore[arg-type]

    def name(self, node: int) -> str:
        """Return a node's name."""
        return self.names[node] if self.names else f"gpu-{node:04d}"

    def report(self, node: int, report: int) -> str:
        """Return what nvidia-smi -q prints on a node."""
        at = datetime.fromtimestamp(BEGIN_AT + report * self.seconds, UTC).strftime("%a %b %d %H:%M:%S %Y")
        head = f"\n==============NVSMI LOG==============\n\nTimestamp    : {at}\nAttached GPUs   : {self.gpus}\n"
        parts = [smi(self.state(node, gpu, report), node, gpu) for gpu in range(self.gpus)]
        lines = (head + "\n".join(parts)).splitlines(keepends=True)
        return "".join(line for line in lines if not any(word in line for word in self.left_out))

    def scrape(self, node: int, report: int) -> str:
        """Return what dcgm-exporter gives on a node."""
        lines = [line for gpu in range(self.gpus) for line in dcgm(self.state(node, gpu, report), self.name(node), gpu)]
        return "".join(f"{line}\n" for line in lines if not any(word in line for word in self.left_out))

    def records(self, tool: str = "smi") -> Iterator[Record]:
        """Yield what the readers give for every report; of an agent (nvml), what it sends."""
        if tool == "nvml":
            yield from self.sent()
            return
        for node in range(self.nodes):
            for number in range(self.reports):
                text = self.report(node, number) if tool == "smi" else self.scrape(node, number)
                data, at = text.encode(), BEGIN_AT + number * self.seconds
                source = f"{self.name(node)}/{tool}-{number}.txt"
                given = Input(source, io.BytesIO(data), data[:65536], node=self.name(node), at=at)
                yield from (read_smi if tool == "smi" else read_dcgm)(given)

    def devices(self, node: int) -> list[Device]:
        """Return a node's GPUs as its agent reports them."""
        states = [self.state(node, gpu, 0) for gpu in range(self.gpus)]
        return [
            Device(
                source="nvml", type="gpu", id=f"GPU-{node:04x}{gpu:04x}", index=gpu, pci=pci(gpu), name=one.model,
                attributes={"pcie_generation_max": f"{one.generation_max}", "pcie_width_lanes_max": f"{one.width_max}"},
            )
            for gpu, one in enumerate(states)
        ]  # fmt: skip

    def samples(self, node: int, begin_at: float = BEGIN_AT) -> list[Samples]:
        """Return a node's readings as its agent sends them: gauges, counters and its links."""
        every = [[self.state(node, gpu, report) for report in range(self.reports)] for gpu in range(self.gpus)]
        ticks = np.array([begin_at + report * self.seconds for report in range(self.reports)]).tobytes()
        names = tuple(f"GPU-{node:04x}{gpu:04x}" for gpu in range(self.gpus))
        gauges: dict[str, Callable[[GpuState], float]] = {
            "gpu_utilization_percent": lambda one: one.load, "power_milliwatts": lambda one: 1000 * one.power,
            "power_limit_milliwatts": lambda one: 1000 * one.limit, "sm_clock_mhz": lambda one: one.clock,
            "gpu_temperature_celsius": lambda one: one.temperature, "pcie_generation": lambda one: one.generation,
            "pcie_width_lanes": lambda one: one.width,
        }  # fmt: skip
        counters: dict[str, Callable[[GpuState], float]] = {
            "throttle_reasons_mask": lambda one: sum(BITS[name] for name in one.reasons),
            "ecc_sbe_volatile_total": lambda one: one.corrected, "ecc_dbe_volatile_total": lambda one: one.uncorrected,
            "ecc_dbe_aggregate_total": lambda one: one.uncorrected_ever, "pcie_replays_total": lambda one: one.replays,
            "remapped_rows_uncorrectable_total": lambda one: one.remapped,
        }  # fmt: skip
        links: dict[str, Callable[[GpuState], float]] = {
            "active": lambda _one: 1, "crc_flit_errors_total": lambda one: one.crc, "symbol_errors_total": lambda one: 10**9,
        }  # fmt: skip

        def table(
            scope: str, type: Literal["<f4", "<i8"], given: dict[str, Callable[[GpuState], float]], end: str
        ) -> Samples:
            values = [[[take(one) for one in gpu] for take in given.values()] for gpu in every]
            return Samples(
                source="nvml", at=begin_at, scope=scope, type=type, devices=tuple(f"{name}{end}" for name in names),
                metrics=tuple(given), ticks=ticks, values=np.array(values, type).tobytes(),
            )  # fmt: skip

        return [table("gpu", "<f4", gauges, ""), table("gpu", "<i8", counters, ""), table("nvlink", "<i8", links, "/3")]

    def sent(self) -> Iterator[Record]:
        """Yield all that the nodes' agents send."""
        for node in range(self.nodes):
            for record in (*self.devices(node), *self.samples(node)):
                yield msgspec.structs.replace(
                    record, node=self.name(node), received_at=BEGIN_AT + self.reports * self.seconds
                )

    def write(self, folder: Path) -> Path:
        """Write each node's reports, as one file a node."""
        for node in range(self.nodes):
            text = "".join(self.report(node, number) for number in range(self.reports))
            (folder / f"{self.name(node)}.txt").write_text(text)
        return folder

    def verdict(self, tool: str = "smi", *beside: Record) -> Verdict:
        """Return the verdict on every report, and on other records."""
        return verdict_on([*self.records(tool), *beside])


def verdict_on(records: Sequence[Record]) -> Verdict:
    """Return the verdict on records."""
    window = Window.build(records)
    return judge(window, infer(window), load())


def named(verdict: Verdict) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return who is named: kind, name, devices."""
    return [(one.kind, one.id, one.devices) for one in verdict.culprits]


def pci(gpu: int) -> str:
    """Return a GPU's address, as records have it."""
    return f"0000:{0x18 + gpu:02x}:00"


def smi(state: GpuState, node: int, gpu: int) -> str:
    """Return one GPU's part of a report."""
    reasons = "".join(f"        {name:30}: {'Active' if name in state.reasons else 'Not Active'}\n" for name in BITS)
    return f"""\
GPU 00000000:{0x18 + gpu:02X}:00.0
    Product Name                          : {state.model}
    GPU UUID                              : GPU-{node:04x}{gpu:04x}
    PCI
        GPU Link Info
            PCIe Generation
                Max                       : {state.generation_max}
                Current                   : {state.generation}
            Link Width
                Max                       : {state.width_max}x
                Current                   : {state.width}x
        Replays Since Reset               : {state.replays}
    Clocks Event Reasons
{reasons}    Utilization
        GPU                               : {state.load} %
    ECC Errors
        Volatile
            DRAM Correctable              : {state.corrected}
            DRAM Uncorrectable            : {state.uncorrected}
        Aggregate
            DRAM Uncorrectable            : {state.uncorrected_ever}
    Remapped Rows
        Uncorrectable Error               : {state.remapped}
        Pending                           : No
        Remapping Failure Occurred        : No
    Temperature
        GPU Current Temp                  : {state.temperature} C
    GPU Power Readings
        Instantaneous Power Draw          : {state.power:.2f} W
        Current Power Limit               : {state.limit:.2f} W
    Clocks
        SM                                : {state.clock} MHz
"""


def dcgm(state: GpuState, node: str, gpu: int) -> Iterator[str]:
    """Yield one GPU's series."""
    labels = f'gpu="{gpu}",UUID="GPU-{node}-{gpu:04x}",pci_bus_id="00000000:{0x18 + gpu:02X}:00.0"'
    labels += f',modelName="{state.model}",Hostname="{node}"'
    values = {
        "GPU_UTIL": state.load, "SM_CLOCK": state.clock, "GPU_TEMP": state.temperature, "POWER_USAGE": state.power,
        "POWER_MGMT_LIMIT": state.limit, "PCIE_LINK_GEN": state.generation, "PCIE_MAX_LINK_GEN": state.generation_max,
        "PCIE_LINK_WIDTH": state.width, "PCIE_MAX_LINK_WIDTH": state.width_max,
        "CLOCK_THROTTLE_REASONS": sum(BITS[name] for name in state.reasons), "ECC_SBE_VOL_TOTAL": state.corrected,
        "ECC_DBE_VOL_TOTAL": state.uncorrected, "UNCORRECTABLE_REMAPPED_ROWS": state.remapped,
        "PCIE_REPLAY_COUNTER": state.replays, "NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": state.crc,
        "NVLINK_RECOVERY_ERROR_COUNT_TOTAL": state.recoveries,
    }  # fmt: skip
    for name, value in values.items():
        yield f"DCGM_FI_DEV_{name}{{{labels}}} {value}"
