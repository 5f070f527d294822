"""GPUs by the driver's library: gauges, counters, and whether they still answer.

The library stays open, because opening it takes long. A reset of a GPU (``nvidia-smi --gpu-reset``) needs it closed: stop the
agent for that.

A call may never return. The agent then kills this process, and the next one would hang at the same GPU. So the first run of
a process, and each that reads all names anew, keeps in the cursor which GPU it is asking. A process whose predecessor ended
at a GPU leaves that GPU out for ten minutes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any

from collectors.live import Cursor, NothingToCollect, Readings, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.nvml_identity import Gpu, GpuNames
from collectors.live.sources.nvml_library import ABSENT, UNINITIALIZED, DeviceCalls, Nvml
from collectors.live.sources.nvml_values import COUNTER_METRICS, GAUGE_METRICS, LINK_METRICS, read, read_link
from collectors.records import DeviceState, KernelEvent

DEVICES_SECONDS = 3600.0
RETRY_SECONDS = 600.0  # after which a GPU at which a process hung is asked again: at worst another process hangs
LINKS_SECONDS = 60.0  # an NVLink is a device of its own, and a node has up to 144
EVENTS_LIMIT = 1000  # of one run
EVENTS_WAIT_MS = 1
SOURCE = "nvml"


@collector(
    "gpu",
    gives="GPUs by NVML: utilization, power, temperatures, clocks, throttling, ECC, PCIe, NVLink, processes, Xids",
    every_seconds=10.0,
    limit_seconds=20.0,
    own_process=True,
)
class GpuCollector:
    """Reads every GPU at every run; keeps library, handles and names between runs."""

    def __init__(self, host: Host) -> None:
        """Load nothing yet: the first run loads the driver's library."""
        self._host = host
        self._nvml: Nvml | None = None
        self._gpus: list[Gpu] = []
        self._avoided: set[int] = set()  # indices of GPUs at which an earlier process hung
        self._events: Any = None
        self._devices_at = self._links_at = float("-inf")

    def __call__(self, _request: Request | None) -> Iterator[Yielded]:
        """Yield the GPUs' names where due, then their values, states, processes and Xids."""
        now = self._host.clock.monotonic()
        if self._nvml is None:
            self._nvml = Nvml(self._host.option("gpu", "library", None))
            self._devices_at = self._links_at = float("-inf")
        try:
            yield from self._run(self._nvml, now)
        except self._nvml.api.NVMLError as error:
            text = self._nvml.words(error.value)
            self._close()
            raise RuntimeError(f"NVML fails as a whole: {text}; the next run starts it anew") from error

    def _run(self, nvml: Nvml, now: float) -> Iterator[Yielded]:
        careful = now - self._devices_at >= (RETRY_SECONDS if self._avoided else DEVICES_SECONDS)
        if careful:
            yield from self._devices(nvml)
        links_due = now - self._links_at >= LINKS_SECONDS
        yield from self._values(nvml, careful=careful, with_links=links_due)
        if careful:
            self._devices_at = now
        if links_due:
            self._links_at = now
        yield from self._xids(nvml)

    def _devices(self, nvml: Nvml) -> Iterator[Yielded]:
        if not self._gpus:
            self._resume()
        else:
            self._avoided.clear()  # the retry is due
        known, count = self._gpus, nvml.count()
        if not count and not known:
            self._close()
            raise NothingToCollect("the NVIDIA driver knows no GPU")
        naming, states = GpuNames.read(nvml, known, self._host.roots.proc), {gpu.id: gpu.state for gpu in known}
        gpus = []
        for index in range(count):
            if index in self._avoided:
                gpu = naming.remember(Gpu(index))
            else:
                yield self._cursor(asking=index)
                gpu, device = naming.ask(nvml, index)
                if device is not None:
                    yield device
            gpu.state = states.get(gpu.id, "")
            gpus.append(gpu)
        self._gpus = gpus
        for lost in (gpu for gpu in known if gpu.id not in {here.id for here in gpus}):
            text = "the driver enumerated it earlier in this boot and no longer does"
            yield DeviceState(source=SOURCE, device=lost.id, index=lost.index, pci=lost.pci, state="absent", text=text)
        self._listen(nvml)
        yield self._cursor()

    def _cursor(self, asking: int | None = None) -> Cursor:
        """Keep the GPUs' names for a time when they cannot be read, and which GPU is being asked."""
        names = [[gpu.index, gpu.id, gpu.pci] for gpu in self._gpus]
        value = {"boot_id": self._host.boot_id, "gpus": names, "asking": asking, "avoided": sorted(self._avoided)}
        return Cursor(value)

    def _resume(self) -> None:
        """Take the names from before a restart, and the GPU that did not answer then, if it was in this boot."""
        kept = self._host.cursor("gpu")
        if not isinstance(kept, dict) or kept.get("boot_id") is None or kept["boot_id"] != self._host.boot_id:
            return
        self._gpus = [Gpu(index, id, pci) for index, id, pci in kept.get("gpus", ())]
        self._avoided = set(kept.get("avoided", ()))
        if kept.get("asking") is not None:
            self._avoided.add(kept["asking"])

    def _values(self, nvml: Nvml, *, careful: bool, with_links: bool) -> Iterator[Yielded]:
        rows: list[dict[str, int | None]] = []
        links: dict[str, list[int | None]] = {}
        processes: dict[str, int | None] = {}
        unusable = 0
        for gpu in self._gpus:
            if gpu.index in self._avoided:
                rows.append({})
                yield from self._state(gpu, "unreadable", "a call to it did not return; it is left out for ten minutes")
                continue
            if careful:
                yield self._cursor(asking=gpu.index)
            asking = DeviceCalls(nvml, gpu.index, gpu.handle)
            asking.open()
            gpu.handle = asking.handle
            rows.append(read(asking))
            processes |= {f"{gpu.id}/{process.pid}": process.usedGpuMemory for process in _processes(asking)}
            if with_links:
                links |= {f"{gpu.id}/{link}": read_link(asking, link) for link in gpu.links}
            unusable += not asking.answered and bool(asking.errors.keys() & {UNINITIALIZED, *ABSENT})
            yield from self._state(gpu, *asking.state())
        if careful:
            yield self._cursor()
        yield from _tables([gpu.id for gpu in self._gpus], rows, links, processes)
        if unusable == len(self._gpus):
            self._close()  # the driver was unloaded or exchanged: the next run begins anew

    def _state(self, gpu: Gpu, state: str, text: str) -> Iterator[Yielded]:
        if state == gpu.state:
            return
        if state == "ok" and gpu.state:
            self._devices_at = float("-inf")  # it answers again, perhaps as another GPU: read all names at the next run
        gpu.state = state
        yield DeviceState(source=SOURCE, device=gpu.id, index=gpu.index, pci=gpu.pci, state=state, text=text)

    def _listen(self, nvml: Nvml) -> None:
        """Ask the driver to queue the Xids of every GPU that has a handle; where it refuses, the kernel's log has them."""
        if self._events is not None:
            return
        xid = nvml.constant("nvmlEventTypeXidCriticalError")
        try:
            self._events = nvml.api.nvmlEventSetCreate()
        except nvml.api.NVMLError:
            return
        for gpu in self._gpus:
            DeviceCalls(nvml, gpu.index, gpu.handle).call("nvmlDeviceRegisterEvents", xid, self._events)

    def _xids(self, nvml: Nvml) -> Iterator[Yielded]:
        by_handle = {_address(gpu.handle): gpu for gpu in self._gpus if gpu.handle is not None}
        for _ in range(EVENTS_LIMIT if self._events is not None else 0):
            try:
                event = nvml.api.nvmlEventSetWait(self._events, EVENTS_WAIT_MS)
            except nvml.api.NVMLError:
                return  # a timeout, usually: no further event
            if event.eventType != nvml.constant("nvmlEventTypeXidCriticalError"):
                continue
            gpu = by_handle.get(_address(event.device), Gpu(-1))
            yield KernelEvent(
                event="xid",
                source=SOURCE,
                text=f"NVML reports Xid {event.eventData} on GPU {gpu.pci or 'unknown'}",
                code=int(event.eventData),
                pci=gpu.pci,
                gpu_uuid=gpu.id or None,
            )

    def _close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
        self._nvml, self._events = None, None
        for gpu in self._gpus:
            gpu.handle = None


def _processes(asking: DeviceCalls) -> Sequence[Any]:
    # By name: with a driver older than the bindings, their own choice of a form fails without an NVMLError.
    forms = ("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
    return next((found for form in forms if (found := asking.call(form)) is not None), ())


def _address(handle: Any) -> int | None:
    """Return a handle's address: two handles of one GPU are two objects."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _tables(
    devices: list[str],
    rows: list[dict[str, int | None]],
    links: dict[str, list[int | None]],
    processes: dict[str, int | None],
) -> Iterator[Readings]:
    """Yield gauges and counters separately; a GPU that did not answer has a row without values."""
    gauges = [[row.get(metric) for metric in GAUGE_METRICS] for row in rows]
    yield Readings("gpu", devices, GAUGE_METRICS, gauges, "<f4")
    counters = [[row.get(metric) for metric in COUNTER_METRICS] for row in rows]
    yield Readings("gpu", devices, COUNTER_METRICS, counters, "<i8")
    if links:
        yield Readings("nvlink", tuple(links), LINK_METRICS, tuple(links.values()), "<i8")
    if processes:
        used = [[memory] for memory in processes.values()]
        yield Readings("gpu_process", tuple(processes), ("memory_used_bytes",), used, "<i8")
