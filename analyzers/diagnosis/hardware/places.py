"""Where an event happened: the node as the topology names it, and which ranks the device serves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property

from analyzers.diagnosis.hardware.process_names import HOST_SERVICE, JOB_PROCESS
from analyzers.knowledge import xids
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import (
    Device,
    FlightRecorderDump,
    KernelEvent,
    LogEvent,
    Placement,
    ProcessState,
    Samples,
    StackDump,
)

OF_A_LINK = 74
_ADDRESS = re.compile(r"[\d.]+|[\da-fA-F]*:[\da-fA-F:.]*")
_NUMBERS = re.compile(r"\d+")


class Places:
    """Answers which node and which ranks an event is about; no rank where that would be a guess."""

    def __init__(self, window: Window, topology: Topology) -> None:
        self._window = window
        self._topology = topology

    @property
    def count(self) -> int:
        """How many nodes the job is known to have."""
        return len(self._by_node)

    def node(self, name: str | None) -> str | None:
        """Return the topology's name of a node: "gpu-07" and "gpu-07.cluster.local" are one where only one fits."""
        if name is None or name in self._by_node:
            return name
        short = name.partition(".")[0]
        fitting = self._by_short_name.get(short, [])
        return fitting[0] if len(fitting) == 1 else name

    def ranks_on(self, name: str | None) -> tuple[int, ...]:
        """Return the ranks placed on a node."""
        return tuple(self._by_node.get(self.node(name) or "", ()))

    def ranks_of_device(self, event: KernelEvent, pids: frozenset[int] = frozenset()) -> tuple[int, ...]:
        """Return the ranks a GPU serves: by process, by placement, by its place on the node, or the node's only rank."""
        ranks = self.ranks_on(event.node)
        by_pid = {self._by_pid[key] for pid in pids if (key := (self.node(event.node), pid)) in self._by_pid}
        if len(by_pid) == 1:
            return tuple(by_pid)
        if placed := self._by_gpu.get((self.node(event.node), event.pci)):
            return tuple(sorted(placed))
        addresses = sorted(self._addresses.get(self.node(event.node), ()))
        # Ranks take GPUs in PCI order only where every rank has its own GPU and every GPU of the node is known.
        if event.pci in addresses and len(addresses) == len(ranks):
            return (ranks[addresses.index(event.pci)],)
        return ranks if len(ranks) == 1 else ()

    def ranks_of_process(self, event: KernelEvent) -> tuple[int, ...]:
        """Return the rank of the process that an event names."""
        found = self._by_pid.get((self.node(event.node), event.pid or -1))
        return () if found is None else (found,)

    def is_strangers(self, event: KernelEvent) -> bool:
        """Whether an event names a process of another program, on a node where the process of every rank is known.

        A service of the host meets a GPU that has failed as the job does: its name shows nothing.
        """
        name = (event.process or "").strip("'")
        if event.pid is None or not name or "unknown" in name or JOB_PROCESS.search(name) or HOST_SERVICE.match(name):
            return False
        node = self.node(event.node)
        known = self._with_pid.get(node, set())
        return bool(known) and known.issuperset(self.ranks_on(node)) and (node, event.pid) not in self._by_pid

    def is_unused(self, event: KernelEvent) -> bool:
        """Whether an event is of a GPU that no rank uses, on a node where the job's log shows a GPU for each of its ranks.

        A link that fails is not: its other end may be a GPU of the job.
        """
        if event.pci is None or event.code is None or event.code in xids.NVLINK5 or event.code == OF_A_LINK:
            return False
        node = self.node(event.node)
        ranks, own = self.ranks_on(node), self._own.get(node, set())
        return 0 < len(ranks) <= len(own) and event.pci not in own and (node, event.pid) not in self._by_pid

    def is_elsewhere(self, event: KernelEvent) -> bool:
        """Whether an event is of a node on which the job has no rank, in a file, where the hosts of all ranks are listed.

        One host may have several names: only a name of the form that the list uses can be missing from it.
        """
        if event.node is None or not self._hosts:
            return False
        name = _short(event.node)
        return name not in self._hosts and (self._named_alike or _form(name) in self._forms)

    @cached_property
    def _hosts(self) -> frozenset[str]:
        """Return the short names of all nodes of the job where lists place as many ranks as they state; else nothing.

        A node that the job's own lines name, or whose agent sent anything, is one of it, too.
        """
        lists = [one for one in self._window.records_of(Placement) if one.ranks is not None and one.world_size]
        placed = {rank for one in lists if one.ranks is not None for rank in one.ranks.ranks()}
        size = self._topology.world_size
        if self._window.live or size is None or not placed.issuperset((*range(size), *self._topology.ranks)):
            return frozenset()
        beside = (
            one.node
            for one in self._window.records
            if one.node and (one.rank is not None or one.received_at is not None or isinstance(one, LogEvent))
        )
        names = {*(name for one in lists for name in one.nodes), *self._topology.nodes.values(), *beside}
        return frozenset(map(_short, names))

    @cached_property
    def _forms(self) -> frozenset[str]:
        return frozenset(map(_form, self._hosts))

    @cached_property
    def _named_alike(self) -> bool:
        """Whether a kernel log names a host as the list does: then all kernel logs use the list's names."""
        return any(event.node and _short(event.node) in self._hosts for event in self._window.records_of(KernelEvent))

    @cached_property
    def _by_node(self) -> dict[str, list[int]]:
        placed: dict[str, list[int]] = defaultdict(list)
        for rank in self._topology.ranks:
            if (node := self._topology.nodes.get(rank)) is not None:
                placed[node].append(rank)
        return dict(placed)

    @cached_property
    def _by_short_name(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = defaultdict(list)
        for name in sorted(self._by_node):
            names[name.partition(".")[0]].append(name)
        return dict(names)

    @cached_property
    def _by_pid(self) -> dict[tuple[str | None, int], int]:
        found: dict[tuple[str | None, int], int] = {}
        for record in self._window.records:
            if isinstance(record, FlightRecorderDump | StackDump | ProcessState | LogEvent):
                node = record.node or (self._topology.nodes.get(record.rank) if record.rank is not None else None)
                if record.rank is not None and record.pid is not None and node is not None:
                    found[self.node(node), record.pid] = record.rank
            elif isinstance(record, Placement) and record.ranks is not None and record.pids:
                for rank, name, pid in zip(record.ranks.ranks(), record.nodes, record.pids, strict=False):
                    found[self.node(name), pid] = rank
        return found

    @cached_property
    def _with_pid(self) -> dict[str | None, set[int]]:
        """Return the ranks of each node whose process is known."""
        found: dict[str | None, set[int]] = defaultdict(set)
        for (node, _), rank in self._by_pid.items():
            found[node].add(rank)
        return found

    @cached_property
    def _addresses(self) -> dict[str | None, set[str]]:
        """Return the GPUs of each node; they count only where the driver listed them itself."""
        seen: dict[str | None, set[str]] = defaultdict(set)
        for event in self._window.records_of(KernelEvent):
            if event.event == "gpu_identity" and event.pci is not None:
                seen[self.node(event.node)].add(event.pci)
        for device in self._gpus:
            if device.pci is not None:
                seen[self.node(device.node)].add(device.pci)
        return dict(seen)

    @cached_property
    def _own(self) -> dict[str | None, set[str]]:
        """Return the GPUs of each node that the job's log shows its processes to use."""
        own: dict[str | None, set[str]] = defaultdict(set)
        for device in self._gpus:
            if device.pci is not None and is_of_log(device):
                own[self.node(device.node)].add(device.pci)
        return dict(own)

    @cached_property
    def _gpus(self) -> list[Device]:
        return [device for device in self._window.records_of(Device) if device.type == "gpu"]

    @cached_property
    def _by_gpu(self) -> dict[tuple[str | None, str | None], set[int]]:
        """Return the ranks on each GPU, by node and PCI address, as placements and the GPUs' own processes show."""
        pci: dict[tuple[str | None, str], str | None] = {}
        for gpu in self._gpus:
            names = (gpu.id,) if gpu.index is None else (gpu.id, str(gpu.index))
            pci.update({(self.node(gpu.node), name): gpu.pci for name in names})
        found: dict[tuple[str | None, str | None], set[int]] = defaultdict(set)
        for node, name, rank in (*self._placed_devices(), *self._gpu_processes()):
            if (address := pci.get((node, name))) is not None:
                found[node, address].add(rank)
        return dict(found)

    def _placed_devices(self) -> Iterator[tuple[str | None, str, int]]:
        for placement in self._window.records_of(Placement):
            if placement.ranks is not None:
                for rank, node, device in zip(
                    placement.ranks.ranks(), placement.nodes, placement.devices, strict=False
                ):
                    yield self.node(node), device, rank

    def _gpu_processes(self) -> Iterator[tuple[str | None, str, int]]:
        """Yield the ranks among the processes that NVML saw on each GPU; the device is "UUID/PID" there."""
        for sample in self._window.records_of(Samples):
            for device in sample.devices if sample.scope == "gpu_process" else ():
                gpu, _, pid = device.rpartition("/")
                node = self.node(sample.node)
                if pid.isdecimal() and (rank := self._by_pid.get((node, int(pid[:18])))) is not None:
                    yield node, gpu, rank


def is_of_log(record: object) -> bool:
    """Whether a GPU is known only from the lines of a job that uses it."""
    return isinstance(record, Device) and "shown_by" in record.attributes


def _short(name: str) -> str:
    """Return the first label of a host's name; an address has none."""
    return name if _ADDRESS.fullmatch(name) else name.partition(".")[0].lower()


def _form(name: str) -> str:
    """Return a name without its numbers: "gpu-07" and "gpu-12" are of one form."""
    return _NUMBERS.sub("#", name)
