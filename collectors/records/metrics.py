"""What a node samples, in columns, and the devices that the samples are of."""

from __future__ import annotations

from typing import Annotated, Literal

from collectors.records.record import FEW, MANY, Integer, Name, Record, Text

NOT_READ = -(1 << 63)
"""The integer that stands in a counter's column where there was no reading; a gauge has NaN there."""


class Samples(Record, frozen=True, kw_only=True, tag="samples"):
    """Readings of several devices at several instants: raw little-endian values, shape (devices, metrics, ticks).

    Gauges are float32 (``<f4``), counters int64 (``<i8``): a byte counter does not fit a float. A counter is what the
    source counts since boot, never a rate. ``at`` and ``monotonic_at`` are the first tick's.
    """

    scope: Name  # gpu dcgm infiniband network socket cpu memory pressure disk mount process clock …
    type: Literal["<f4", "<i8"] = "<f4"
    # UUID, "mlx5_0/1", "eth0", "10.0.0.1:4242>10.0.0.2:5000"; "": the node.
    devices: Annotated[tuple[Name, ...], MANY] = ()
    # "power_watts", "pcie_replays_total": the unit last; a counter ends in _total.
    metrics: Annotated[tuple[Name, ...], FEW] = ()
    ticks: bytes = b""  # <f8: UTC seconds
    monotonic_ticks: bytes = b""  # <f8: seconds since boot
    values: bytes = b""


class Device(Record, frozen=True, kw_only=True, tag="device"):
    """A device of a node: what it is, and which names it has. Taken while it answers: a lost GPU has no names."""

    type: Name  # gpu infiniband ethernet nvswitch
    id: Name  # what Samples.devices calls it
    index: Integer | None = None
    pci: Name | None = None  # "0000:9b:00", as KernelEvent has it
    name: Name = ""
    serial: Name | None = None
    attributes: Annotated[dict[Name, Name], FEW] = {}  # driver_version, vbios_version, firmware, link_rate, numa_node…


class DeviceState(Record, frozen=True, kw_only=True, tag="device_state"):
    """A device changed how it answers, or was asked for the first time."""

    device: Name
    # nvidia-smi reports: memory_pending (a row or page waits for the GPU's reset) memory_failed fabric_not_ready
    # memory_counted (uncorrected errors since the driver was loaded)
    state: Name  # ok lost reset_required unreadable no_permission no_answer absent (was here since boot, is no longer enumerated)
    index: Integer | None = None
    pci: Name | None = None
    text: Text = ""  # the library's own words


def pci_address(text: str) -> str:
    """Return "0000:9b:00": domain, bus, device in lower case, the function dropped, a missing domain zero."""
    parts = text.removeprefix("PCI:").split(".")[0].lower().split(":")
    domain, bus, device = ["0000", *parts][-3:]
    return f"{int(domain, 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}"
