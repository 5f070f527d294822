"""Findings about hosts: stuck and killed processes, machine checks, panics, disks, and servers that stopped answering."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from analyzers.diagnosis.hardware.memory import worn_memory
from analyzers.diagnosis.hardware.occurrences import Occurrence, coalesce, of_kind
from analyzers.diagnosis.hardware.pcie import worst_below
from analyzers.diagnosis.hardware.places import Places
from analyzers.diagnosis.hardware.process_names import FILE_SERVER, HOST_SERVICE, JOB_LIBRARY, JOB_PROCESS
from analyzers.model.finding import Cause, Finding, Kind, Suspect, Symptom
from collectors.records import KernelEvent

EVIDENCE_LIMIT = 8
STORAGE = frozenset({"nfs", "lustre", "ceph", "gpfs", "cifs", "beegfs", "weka", "9p", "fuse", "zfs"})
MANY_LINK_ERRORS = 100  # corrected at once; fewer are common on healthy GPUs
OUTAGE_SECONDS = 60.0  # a file server that answers again sooner stalled no process for long


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an occurrence of an event claims. ``kind`` code and storage name no machine."""

    fault_class: str
    cause: Cause
    kind: Kind
    strength: float
    summary: str
    symptom: Symptom = "hardware"


_NIC_SILENT = _Rule("nic_silent", "network", "device", 0.45, "a network card did not answer its driver in time")
_RESETS = _Rule(
    "gpus_reset_together",
    "platform",
    "platform",
    0.5,
    "the driver reset several GPUs of one machine: the driver, its firmware or the program, which they share",
)
_RULES: dict[tuple[str, str | None], _Rule] = {
    ("soft_lockup", None): _Rule("soft_lockup", "machine", "node", 0.5, "a processor was stuck in the kernel"),
    ("hard_lockup", None): _Rule("soft_lockup", "machine", "node", 0.7, "a processor stopped taking interrupts"),
    ("rcu_stall", None): _Rule(
        "soft_lockup", "machine", "node", 0.4, "a processor was stuck in the kernel (RCU stall)"
    ),
    ("mce", "uncorrected"): _Rule("machine_check", "machine", "node", 0.8, "an uncorrected hardware error of the host"),
    ("mce", "fatal"): _Rule("machine_check", "machine", "node", 0.9, "a fatal hardware error of the host"),
    ("panic", None): _Rule("kernel_panic", "machine", "node", 0.85, "the kernel panicked"),
    ("kernel_bug", None): _Rule("kernel_panic", "machine", "node", 0.7, "the kernel hit a bug"),
    ("io_error", None): _Rule("disk_error", "machine", "node", 0.45, "a disk failed to answer"),
    ("fs_error", None): _Rule("disk_error", "machine", "node", 0.5, "a local file system failed"),
    ("aer", "fatal"): _Rule("pcie_fatal", "machine", "device", 0.7, "a fatal PCIe error"),
    ("aer", "nonfatal"): _Rule("pcie_nonfatal", "machine", "device", 0.35, "an uncorrected PCIe error"),
    ("gpu_uncorrected", None): _Rule(
        "gpu_uncorrected", "machine", "device", 0.7, "an uncorrectable hardware error of its GPU"
    ),
    ("gpu_rows_spent", None): _Rule(
        "gpu_rows_spent", "machine", "device", 0.7, "a row of its GPU's memory failed and could not be remapped"
    ),
    ("gpu_counted", None): _Rule(
        "gpu_counted", "machine", "device", 0.4, "nvidia-smi counts uncorrected errors since the driver was loaded"
    ),
    ("gpu_unread", None): _Rule(
        "gpu_unread", "machine", "device", 0.4, "nvidia-smi could not read a count of uncorrected errors (ERR!)"
    ),
    ("gpu_reset", None): _Rule("gpu_reset", "unknown", "device", 0.45, "the driver reset a GPU that did not answer"),
    ("gpu_page_fault", None): _Rule(
        "gpu_page_fault", "code", "code", 0.4, "a process used GPU memory that was not mapped", "crash"
    ),
    ("gpu_lost", None): _Rule("gpu_lost", "machine", "device", 0.7, "the driver lost a GPU, or could not start it"),
    ("gpu_needs_reset", None): _Rule("gpu_needs_reset", "machine", "device", 0.7, "a GPU asks for a reset"),
    ("fabric_not_ready", None): _Rule(
        "devices_absent",
        "platform",
        "platform",
        0.5,
        "the fabric of NVLink is not ready: CUDA starts on none of its GPUs",
    ),
    ("driver_mismatch", None): _Rule(
        "devices_absent", "platform", "platform", 0.5, "the driver's module and its library are of different versions"
    ),
    ("gsp_timeout", None): _Rule(
        "gsp_timeout", "machine", "node", 0.55, "the system processor of a GPU did not answer, or the GPU needs a reset"
    ),
    ("gpu_link_errors", None): _Rule(
        "gpu_link_errors",
        "machine",
        "device",
        0.6,
        "a link between GPUs corrected very many errors, and a GPU of its node was reset",
    ),
    ("mlx5", "fatal"): _Rule("nic_health", "network", "device", 0.7, "the network card reports itself unhealthy"),
    ("mlx5", "silent"): _NIC_SILENT,
    ("nic", "silent"): _NIC_SILENT,
    ("nic", "refused"): _Rule(
        "fabric_refused", "platform", "platform", 0.4, "the driver of a network card was refused what it asked for"
    ),
    ("driver_refused", None): _Rule(
        "devices_absent",
        "platform",
        "platform",
        0.5,
        "the driver could not start on a GPU: an address space that was not assigned, its version, or the device",
    ),
    ("driver_failed", None): _Rule(
        "driver_failed",
        "platform",
        "platform",
        0.45,
        "a GPU's driver got no answer from it: the driver, its firmware or the GPU",
    ),
    ("hung_task", "driver"): _Rule(
        "driver_failed", "platform", "platform", 0.45, "a process was blocked in the driver of a GPU"
    ),
    ("oom_kill", None): _Rule("oom_kill", "code", "code", 0.6, "the kernel killed a process for memory", "crash"),
    ("oom_invoked", None): _Rule(
        "oom_kill",
        "code",
        "code",
        0.5,
        "the kernel had no memory left for a process, and looked for one to kill",
        "crash",
    ),
    ("segfault", None): _Rule("segfault", "code", "code", 0.4, "a process of the job crashed", "crash"),
    ("hung_task", "storage"): _Rule(
        "hung_task_storage", "storage", "storage", 0.5, "a process was blocked in a file system"
    ),
    ("hung_task", "local"): _Rule("hung_task", "machine", "node", 0.4, "a process was blocked in the kernel"),
    ("nfs_not_responding", None): _Rule(
        "storage_unreachable", "storage", "storage", 0.5, "a file server stopped answering"
    ),
}


_DISK_OF_LINES = _Rule("disk_error", "storage", "node", 0.45, "a local disk, or the file system on it, failed")
"""Where lines alone were read: what failed is the storage of that node, and no test of its GPUs shows more of it."""
_SERVED = re.compile(r"(?:rbd|nbd|drbd)\d")
"""A block device that other machines serve: of Ceph, of NBD, of DRBD."""
_REMOVABLE = re.compile(r"(?:sr|fd)\d{1,3}")
"""A drive of discs: no job writes there, and one with a bad disc, or a virtual one of a console, reports errors for ever."""
_SERVED_DISK = _Rule(
    "storage_unreachable",
    "storage",
    "storage",
    0.5,
    "a disk that other machines serve failed, or the file system on it",
)
_IN_DRIVER = _Rule(
    "driver_failed", "platform", "platform", 0.55, "the kernel failed in the code of a driver or of a file system"
)
_OF_KERNEL = frozenset({"kernel_bug", "panic", "soft_lockup"})
_SAYS_MORE = frozenset(
    {"gpu_reset", "gpu_lost", "gpu_uncorrected", "gpu_rows_spent", "gpu_page_fault", "xid", "off_bus"}
)
WORN = _Rule(
    "memory_wearing", "machine", "node", 0.55, "a memory module corrects errors at a rate that asks for its replacement"
)


def findings(
    events: Sequence[KernelEvent], places: Places, *, alone: bool = False, of_lines: bool = False
) -> Iterator[Finding]:
    """Yield one finding per class and host; what is blamed on storage, or befell many at once, is one for all together.

    ``alone``: nothing but kernel logs was read, so that no name of a job's process is known. ``of_lines``: nothing but lines of
    logs was read, and no live agent.
    """
    unreachable = _unreachable(events)
    grouped: dict[tuple[_Rule, str], list[Occurrence]] = defaultdict(list)
    occurrences = worst_below(_without_resets(coalesce(events)))
    local = [one for one in occurrences if one.event.event != "hung_task" or not _waits_for_storage(one, unreachable)]
    shared = _befell_many(local, places.count)
    yield from map(_shared_finding, shared)
    excused = {id(one) for cluster in shared for one in cluster}
    together = _reset_together(occurrences)
    of_file_systems = {one.machine for one in occurrences if one.event.event == "fs_error"}
    in_driver = {one.machine for one in occurrences if one.event.event == "at_module"}
    for occurrence in occurrences:
        rule = _RESETS if id(occurrence) in together else _rule(occurrence, unreachable, alone=alone)
        if occurrence.event.event in _OF_KERNEL and occurrence.machine in in_driver:
            rule = _IN_DRIVER
        if rule is not None and rule.fault_class == _DISK_OF_LINES.fault_class:
            if occurrence.machine in of_file_systems:  # its disk and what is on it are one failure
                rule = _RULES["fs_error", None]
            rule = _of_disk(rule, occurrence.event, of_lines=of_lines)
        if rule is not None and id(occurrence) not in excused:
            where = "" if rule.kind == "storage" else occurrence.machine
            grouped[rule, f"{where} {occurrence.event.pci or ''}" if rule.kind == "device" else where].append(
                occurrence
            )
    for worn in worn_memory(events) if alone else ():
        grouped[WORN, worn[0].machine] += worn
    alike = sorted(grouped.items(), key=lambda item: (item[0][0].fault_class, item[0][1]))
    yield from _one_a_host(_finding(rule, occurred, places) for (rule, _), occurred in alike)


def _one_a_host(found: Iterable[Finding]) -> Iterator[Finding]:
    """Join what the rules of one class say of one host: an uncorrected error and the fatal one that it became are one fault."""
    joined: dict[tuple[str, str], Finding] = {}
    for number, finding in enumerate(found):
        (one,) = finding.suspects
        of_host = finding.cause == "machine" and one.kind == "node"
        key = (finding.fault_class, one.node or "") if of_host else (finding.fault_class, f"/{number}")
        joined[key] = _both(joined[key], finding) if key in joined else finding
    yield from joined.values()


def _both(one: Finding, other: Finding) -> Finding:
    weaker, surer = sorted((one, other), key=lambda each: each.suspects[0].strength)
    evidence = (*surer.suspects[0].evidence, *weaker.suspects[0].evidence)[:EVIDENCE_LIMIT]
    onsets = [each.onset for each in (one, other) if each.onset is not None]
    return replace(surer, suspects=(replace(surer.suspects[0], evidence=evidence),), onset=min(onsets, default=None))


def _of_disk(rule: _Rule, event: KernelEvent, *, of_lines: bool) -> _Rule | None:
    if _REMOVABLE.fullmatch(event.device or ""):
        return None
    if _SERVED.match(event.device or ""):
        return _SERVED_DISK
    return _DISK_OF_LINES if of_lines else rule


def _without_resets(occurrences: list[Occurrence]) -> list[Occurrence]:
    """Leave out what a line of the same machine explains: a reset, and a silent GSP or driver beside an Xid or a lost GPU."""
    reset = {one.machine for one in occurrences if one.event.event == "gpu_reset"}
    linked = {  # machines whose link errors explain the reset
        one.machine
        for one in occurrences
        if one.event.event == "gpu_link_errors" and one.count >= MANY_LINK_ERRORS and one.machine in reset
    }
    explained = {one.key for one in occurrences if one.event.event in {"gpu_uncorrected", "gpu_rows_spent", "gpu_lost"}}
    named = {one.machine for one in occurrences if one.event.event in {"xid", "off_bus", "gpu_lost"}}
    by_address = {one.machine for one in occurrences if one.event.event in _SAYS_MORE and one.event.pci is not None}
    said = {one.machine for one in occurrences if one.event.event in _SAYS_MORE}
    return [
        one
        for one in occurrences
        if (one.event.event != "gpu_reset" or not (one.key in explained or one.machine in linked))
        and (one.event.event != "gpu_link_errors" or (one.machine in linked and one.count >= MANY_LINK_ERRORS))
        and (one.event.event not in {"gsp_timeout", "driver_refused"} or one.machine not in named)
        and (one.event.event != "driver_failed" or one.machine not in said)
        and (one.event.event != "gpu_lost" or one.event.pci is not None or one.machine not in by_address)
    ]


def _reset_together(occurrences: Sequence[Occurrence]) -> set[int]:
    """Return the resets of machines on which the driver reset several GPUs: no GPU of them is singled out."""
    resets = [one for one in occurrences if one.event.event == "gpu_reset"]
    devices: dict[str, set[str]] = defaultdict(set)
    for one in resets:
        devices[one.machine].add(one.event.pci or "")
    return {id(one) for one in resets if len(devices[one.machine]) > 1}


def _rule(occurrence: Occurrence, unreachable: list[Occurrence], *, alone: bool) -> _Rule | None:
    event = occurrence.event
    if event.event in {"oom_kill", "oom_invoked", "segfault"}:
        killed = alone and event.event != "segfault" and HOST_SERVICE.match(event.process or "") is None
        return _RULES[event.event, None] if killed or _of_the_job(event) else None
    if event.event == "hung_task":
        if alone and event.device is None and not _waits_for_storage(occurrence, unreachable):
            return None  # its stack is left out or cut: it may wait for a file system as well
        where = "driver" if event.device == "gpu driver" else "local"
        return _RULES["hung_task", "storage" if _waits_for_storage(occurrence, unreachable) else where]
    if event.event == "nic" and event.severity == "refused" and not alone:
        return None
    if event.event == "nfs_not_responding" and occurrence not in unreachable:
        return None
    return _RULES.get((event.event, event.severity)) or _RULES.get((event.event, None))


def _of_the_job(event: KernelEvent) -> bool:
    """A host kills and loses daemons every day; what looks like a training process concerns the job."""
    return bool(JOB_PROCESS.search(event.process or "") or JOB_LIBRARY.search(event.device or ""))


def _waits_for_storage(occurrence: Occurrence, unreachable: list[Occurrence]) -> bool:
    if occurrence.event.device in STORAGE or FILE_SERVER.match(occurrence.event.process or ""):
        return True
    stuck = occurrence.event.seconds or 0.0
    return occurrence.event.device is None and any(
        other.machine == occurrence.machine and other.at.within(occurrence.at, stuck + 300.0, 300.0)
        for other in unreachable
    )


def _unreachable(events: Sequence[KernelEvent]) -> list[Occurrence]:
    """Return the outages of file servers that lasted: nothing within a minute shows that the server answers again."""
    back = coalesce(of_kind(events, "nfs_responding"))
    return [
        outage
        for outage in coalesce(of_kind(events, "nfs_not_responding"))
        if not any(
            other.key == outage.key and (gap := other.at.after(outage.at)) is not None and 0 <= gap <= OUTAGE_SECONDS
            for other in back
        )
    ]


def _finding(rule: _Rule, occurrences: list[Occurrence], places: Places) -> Finding:
    first = occurrences[0]
    nodes = sorted({node for found in occurrences if (node := places.node(found.event.node)) is not None})
    ranks = tuple(sorted({rank for found in occurrences for rank in _ranks(rule, found, places)}))
    detail = first.event.device or first.event.process
    if first.event.pci and rule.kind == "code":
        detail = ", ".join(filter(None, (detail, f"GPU {first.event.pci}")))
    why = f"{rule.summary} ({detail})" if detail else rule.summary
    suspect = Suspect(
        kind=rule.kind,
        strength=rule.strength,
        why=why if len(nodes) < 2 else f"{why}, on {len(nodes)} nodes",
        ranks=ranks,
        node=nodes[0] if len(nodes) == 1 and rule.kind != "storage" else None,
        device=first.event.pci if rule.kind == "device" else None,
        evidence=tuple(found.evidence(rule.summary) for found in occurrences[:EVIDENCE_LIMIT]),
    )
    return Finding(
        analyzer="hardware",
        family="hardware",
        symptom=rule.symptom,
        cause=rule.cause,
        fault_class=rule.fault_class,
        suspects=(suspect,),
        scope=frozenset(ranks or (rank for node in nodes for rank in places.ranks_on(node))),
        onset=min((found.event.at for found in occurrences if found.event.at is not None), default=None),
        first_symptom=suspect.evidence[0],
    )


def _ranks(rule: _Rule, occurrence: Occurrence, places: Places) -> tuple[int, ...]:
    if rule.kind in {"node", "device"}:
        on_node = places.ranks_on(occurrence.event.node)
        return on_node if len(on_node) == 1 else ()
    return places.ranks_of_process(occurrence.event)


STUCK = frozenset({"soft_lockup", "hard_lockup", "rcu_stall", "hung_task"})
MANY_HOSTS, TOGETHER_SECONDS = 3, 60.0


def _befell_many(occurrences: Iterable[Occurrence], nodes: int) -> list[list[Occurrence]]:
    """Return what befell so many hosts within a minute, or all of the job's ``nodes``, each time by itself.

    Only hosts that are named count: of one there may be several logs.
    """
    enough = min(MANY_HOSTS, nodes) if nodes > 1 else MANY_HOSTS
    named = [one for one in occurrences if one.event.node is not None]
    return [found for found in _clusters(named) if len(_hosts(found)) >= enough]


def _shared_finding(occurrences: Sequence[Occurrence]) -> Finding:
    """Blame what the hosts share: power, the hypervisor, a file system that all of them mount."""
    nodes = len(_hosts(occurrences))
    why = f"processors or processes were stuck on {nodes} nodes within a minute: it lies in what they share"
    evidence = tuple(one.evidence("stuck") for one in occurrences[:EVIDENCE_LIMIT])
    return Finding(
        analyzer="hardware", family="hardware", symptom="hardware", cause="platform", fault_class="stuck_together",
        suspects=(Suspect(kind="platform", strength=0.5, why=why, evidence=evidence),), first_symptom=evidence[0],
        onset=min((one.event.at for one in occurrences if one.event.at is not None), default=None),
    )  # fmt: skip


def _hosts(occurrences: Iterable[Occurrence]) -> set[str]:
    """Return the hosts by their first label: "gpu-07" and "gpu-07.cluster.local" are one."""
    return {(one.event.node or "").partition(".")[0] for one in occurrences}


def _clusters(occurrences: Iterable[Occurrence]) -> Iterator[list[Occurrence]]:
    """Group what began within a minute of the first, on clocks that can be compared."""
    cluster: list[Occurrence] = []
    stuck = (one for one in occurrences if one.event.event in STUCK and one.at.seconds is not None)
    for one in sorted(stuck, key=lambda one: (one.at.clock, one.at.seconds or 0.0, one.machine)):
        gap = one.at.after(cluster[0].at) if cluster else None
        if cluster and (gap is None or gap > TOGETHER_SECONDS):
            yield cluster
            cluster = []
        cluster.append(one)
    if cluster:
        yield cluster
