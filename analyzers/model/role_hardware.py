"""On what hardware the instances of roles run, as agents see it: only equals are compared in speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from analyzers.model.role_instances import Instance, Seat
from collectors.records import Device

MOST_GPUS = 64  # of a node


class NodeGpus:
    """The GPUs of nodes: how many, and of which models."""

    def __init__(self, devices: Iterable[Device] = ()) -> None:
        self._models: dict[str, dict[str, str]] = {}
        for device in devices:
            self.take(device, device.node or "")

    def take(self, device: Device, node: str) -> None:
        """Note one device of a node."""
        if device.type == "gpu" and device.name:
            models = self._models.setdefault(node, {})
            if device.id in models or len(models) < MOST_GPUS:
                models[device.id] = device.name

    def describe(self, node: str | None) -> str | None:
        """Return what a node has, such as ``8 × NVIDIA H20``; None: not known."""
        models = Counter(self._models.get(node or "", {}).values())
        return ", ".join(f"{count} × {model}" for model, count in sorted(models.items())) or None

    def tell(self, instances: Mapping[Seat, Instance]) -> None:
        """Give each instance the hardware of its node; what the job's owner has declared of it is kept."""
        for one in instances.values() if self._models else ():
            if one.hardware is None:
                one.hardware = self.describe(one.node)
