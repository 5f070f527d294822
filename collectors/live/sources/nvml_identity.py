"""The GPUs of a node, by all their names; kept over a restart, because a lost GPU's name cannot be read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.live.sources.nvml_library import DeviceCalls, Nvml
from collectors.records import Device, pci_address


@dataclass(slots=True)
class Gpu:
    """One GPU: its names, its last state, and the library's handle of it."""

    index: int
    id: str = ""  # the UUID; while unknown the PCI address, or the index
    pci: str | None = None
    links: tuple[int, ...] = ()
    state: str = ""
    handle: Any = None


@dataclass(frozen=True, slots=True)
class GpuNames:
    """What identifies GPUs: the earlier names, the driver's list under /proc, and its versions."""

    known: tuple[Gpu, ...]
    addresses: tuple[str, ...]  # in order, of every GPU; empty where the list is incomplete
    system: dict[str, Any]

    @classmethod
    def read(cls, nvml: Nvml, known: Iterable[Gpu], proc: Path) -> GpuNames:
        """Read them, once for all GPUs."""
        addresses = _addresses(proc)
        system = {
            "driver_version": nvml.system("nvmlSystemGetDriverVersion"),
            "nvml_version": nvml.system("nvmlSystemGetNVMLVersion"),
        }
        return cls(tuple(known), addresses if len(addresses) == nvml.count() else (), system)

    def ask(self, nvml: Nvml, index: int) -> tuple[Gpu, Device | None]:
        """Return a GPU with the names it reports; with its earlier names where it reports none."""
        asking = DeviceCalls(nvml, index)
        asking.open()
        gpu = Gpu(index, handle=asking.handle)
        device = _device(asking, gpu, self.system)
        return (gpu, device) if device is not None else (self.remember(gpu), None)

    def remember(self, gpu: Gpu) -> Gpu:
        """Give a GPU its earlier names: by its address, else by its index."""
        if self.addresses:
            # NVML numbers GPUs in the order of their PCI addresses.
            gpu.pci = self.addresses[gpu.index]
            same = next((one for one in self.known if one.pci == gpu.pci), None)
        else:
            same = next((one for one in self.known if one.index == gpu.index), None)
        if same is not None:
            gpu.id, gpu.pci, gpu.links = same.id, same.pci, same.links
        gpu.id = gpu.id or gpu.pci or f"gpu{gpu.index}"
        return gpu


def _device(asking: DeviceCalls, gpu: Gpu, system: dict[str, Any]) -> Device | None:
    """Return a GPU's names; None where not even its UUID can be read."""
    uuid, place = asking.call("nvmlDeviceGetUUID"), asking.call("nvmlDeviceGetPciInfo")
    if not uuid:
        return None
    gpu.id = str(uuid)
    gpu.pci = _pci(place)
    peers = _peers(asking)
    gpu.links = tuple(peers)
    memory = asking.call("nvmlDeviceGetMemoryInfo")
    attributes = {
        **system,
        "vbios_version": asking.call("nvmlDeviceGetVbiosVersion"),
        "minor_number": asking.call("nvmlDeviceGetMinorNumber"),
        "memory_bytes": getattr(memory, "total", None),
        "pcie_generation_max": asking.call("nvmlDeviceGetMaxPcieLinkGeneration"),
        "pcie_width_lanes_max": asking.call("nvmlDeviceGetMaxPcieLinkWidth"),
        "nvlink_peers": " ".join(f"{link}={peer}" for link, peer in peers.items()),
    }
    return Device(
        source="nvml",
        type="gpu",
        id=gpu.id,
        index=gpu.index,
        pci=gpu.pci,
        name=str(asking.call("nvmlDeviceGetName") or ""),
        serial=asking.call("nvmlDeviceGetSerial"),
        attributes={name: str(value) for name, value in attributes.items() if value not in (None, "")},
    )


def _peers(asking: DeviceCalls) -> dict[int, str]:
    """Return the PCI address at the far end of each NVLink, "?" where unknown."""
    peers: dict[int, str] = {}
    for link in range(asking.nvml.constant("NVML_NVLINK_MAX_LINKS") or 0):
        if asking.call("nvmlDeviceGetNvLinkState", link) is None:
            break  # links are numbered without a gap: the first refused one does not exist
        peers[link] = _pci(asking.call("nvmlDeviceGetNvLinkRemotePciInfo", link)) or "?"
    return peers


def _pci(place: Any) -> str | None:
    bus_id = getattr(place, "busId", b"")
    try:
        return pci_address(bus_id.decode("ascii") if isinstance(bus_id, bytes) else str(bus_id))
    except ValueError:
        return None


def _addresses(proc: Path) -> tuple[str, ...]:
    """Return the PCI addresses that the driver lists under /proc, in order."""
    try:
        return tuple(sorted(pci_address(entry.name) for entry in (proc / "driver/nvidia/gpus").iterdir()))
    except (OSError, ValueError):
        return ()
