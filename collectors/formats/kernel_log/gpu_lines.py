"""Kernel lines of the drivers of GPUs about their devices, and lspci's of a GPU that no longer answers, as rows.

Formats: Linux 5.4 to 6.12 (``amdgpu_ras.c``, ``amdgpu_device.c``, ``gmc_v*.c``), pciutils 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from collectors.records import pci_address

PCI = r"(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}(?:\.[0-7])?|[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"


def of_gpu(name: str) -> Callable[[re.Match[str]], dict[str, Any]]:
    """Build a reading for a pattern whose first group is a GPU's address."""
    return lambda found: {"event": name, "pci": pci_address(found[1])}


def _gpu_page_fault(found: re.Match[str]) -> dict[str, Any]:
    pid = found["pid"]
    fields: dict[str, Any] = {"event": "gpu_page_fault", "pci": pci_address(found[1])}
    return fields | ({"pid": int(pid), "process": found["name"].strip() or None} if pid and int(pid) else {})


def _driver_refused(_: re.Match[str]) -> dict[str, Any]:
    return {"event": "driver_refused"}  # of no device: what all of them need is wrong


def _driver_failed(_: re.Match[str]) -> dict[str, Any]:
    return {"event": "driver_failed"}  # of a device that the line does not name


_OF_DRM = (  # "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ", FreeBSD's "[drm ERROR :amdgpu_job_timedout] ", "amdgpu: "
    r"(?:(?:\[drm(?::\w{3,80}(?:\.\w{1,16}){0,3}(?: \[\w{2,20}\])?| ERROR :\w{3,80})?\](?: \*ERROR\*)? |"
    r"amdgpu(?: [0-9a-f:.]{7,13})?: |drmn\d{1,2}: |(?:kfd )?kfd: |amdkfd: ){1,3})"
)
_FAILURES = (  # amdgpu_job.c, amdgpu_mes.c, amdgpu_ib.c, amdgpu_psp.c, amdgpu_device.c, kfd_device_queue_manager.c, i915
    ("timeout, signaled seq", r"ring \S{1,40} timeout, signaled seq"),
    (" timeout, but soft recovered", r"ring \S{1,40} timeout, but soft recovered"),
    (" test failed", r"(?:amdgpu: )?ring \S{1,40} test failed"),
    ("IB test failed on", r"(?:.{0,20})IB test failed on"),
    ("MES failed to respon", r"MES failed to respon(?:se|d)\b"),
    ("MES might be in", r"MES might be in unrecoverable state"),
    ("MES ring buffer is full", r"MES ring buffer is full"),
    ("legacy queue", r"failed to (?:un)?map legacy queue"),
    (" queue from MES", r"failed to remove hardware queue from MES"),
    (" queue to MES", r"failed to add hardware queue to MES"),
    ("Waiting for fences timed out", r"Waiting for fences timed out"),
    ("_init of IP block <", r"(?:hw|sw|late)_init of IP block <\w{1,20}> failed"),
    ("PSP ", r"PSP (?:create ring|load \w{1,12}|firmware loading) failed"),
    ("KCQ ", r"KCQ (?:enable|disable)\w? failed"),
    ("KIQ ", r"KIQ \w{2,20} failed"),
    ("preemption", r"cp queue (?:pipe .{0,20}queue .{0,20})?preemption (?:timed? ?out|failed)"),
    ("GPU reset begin", r"GPU reset begin!"),
    ("GPU HANG: ecode", r"GPU HANG: ecode "),
    ("SMU: I'm not done", r"SMU: I'm not done with your"),
    ("failed to write reg", r"(?:amdgpu: )?failed to write reg [0-9a-f]{3,8} wait reg"),
)


def _link_errors(found: re.Match[str]) -> dict[str, Any]:
    return {
        "event": "gpu_link_errors",
        "pci": pci_address(found[1]),
        "repeats": int(found["count"]),
        "severity": "corrected",
    }


MODULES = (  # drivers of devices and of file systems, whose own code a kernel's error may lie in
    r"nvidia\w{0,16}|amdgpu|amdkfd|amdttm|nouveau|i915|xe|habanalabs\w{0,8}|neuron|gdrdrv|mlx[45]_\w{2,6}|ib_\w{2,12}|rdma_\w{2,6}|"
    r"irdma|bnxt_(?:en|re)|efa|lustre|ptlrpc|obdclass|osc|mdc|lov|lmv|ldlm|lnet|ko2iblnd|ksocklnd|nfsv?\d?|nfsd|sunrpc|ceph|libceph|"
    r"zfs|spl|mmfs\w{0,4}|tracedev|beegfs|wekafs\w{0,8}|cifs|fuse|overlay"
)

ROWS: tuple[
    tuple[tuple[str, ...], str, Callable[[re.Match[str]], dict[str, Any]]], ...
] = (  # words, pattern, what it reads
    (
        ("uncorrectable hardware errors detected",),
        r"amdgpu " + PCI + r": .{0,60}\b[1-9]\d{0,8} (?:new )?uncorrectable hardware errors detected",
        of_gpu("gpu_uncorrected"),
    ),
    (
        ("uncorrectable hardware error(",),
        r"amdgpu " + PCI + r": .{0,20}uncorrectable hardware error\(",
        of_gpu("gpu_uncorrected"),
    ),
    (  # RAS of a link between GPUs: corrected, and each one sent again
        ("correctable hardware errors detected in",),
        r"amdgpu "
        + PCI
        + r": .{0,60}?\b(?P<count>[1-9]\d{0,8}) new correctable hardware errors detected in xgmi_wafl block",
        _link_errors,
    ),
    (  # lspci: every register reads as ones, for nothing answers
        ("(rev ff)",),
        PCI + r" (?:\"?(?:VGA compatible|3D|Display) controller|Processing accelerators).{0,200}"
        r"(?:NVIDIA|Advanced Micro Devices|AMD).{0,200}\(rev ff\)",
        of_gpu("gpu_lost"),
    ),
    *(  # nvidia-smi's table: a GPU's first row, and what the driver has counted since it was loaded
        (
            (word,),
            r"\| {1,3}\d{1,3} {2}\S.{4,60}?\| {1,4}" + PCI + r" {1,2}(?:On|Off) \| {1,24}[1-9]\d{0,8} {1,4}\|\s*$",
            of_gpu("gpu_counted"),
        )
        for word in (" Off |", " On |")
    ),
    (  # the library gave the table no value
        ("ERR! |",),
        r"\| {1,3}\d{1,3} {2}\S.{4,60}?\| {1,4}" + PCI + r" {1,2}(?:On|Off) \| {1,24}ERR! {1,4}\|\s*$",
        of_gpu("gpu_unread"),
    ),
    (("rror during GPU init",), r"amdgpu " + PCI + r": .{0,20}Fatal error during GPU init", of_gpu("gpu_lost")),
    (("lost from bus",), r"amdgpu " + PCI + r": .{0,20}device lost from bus", of_gpu("gpu_lost")),
    (  # drivers/pci/pci.c: the device answers no read of its configuration
        ("device inaccessible",),
        r"(?:amdgpu|nvidia|nouveau|i915|xe|habanalabs) "
        + PCI
        + r": Unable to change power state from \w{2,7} to D0, device inaccessible",
        of_gpu("gpu_lost"),
    ),
    (("ASIC reset failed",), r"amdgpu " + PCI + r": .{0,20}ASIC reset failed", of_gpu("gpu_lost")),
    (
        ("page fault (",),
        r"amdgpu " + PCI + r": (?:amdgpu: )?\[\w{1,20}\] (?:(?:no-)?retry )?page fault \(.{0,160}?"
        r"(?:process (?P<name>.{0,64}?) pid (?P<pid>\d{1,10}) thread|\))",
        _gpu_page_fault,
    ),
    (  # the cause of a fault alone; a status of zeros is of the next one, which was not decoded
        ("VM_L2_PROTECTION_FAULT_STATUS:",),
        r"amdgpu "
        + PCI
        + r": (?:amdgpu: )?(?P<name>)(?P<pid>)(?:GC)?VM_L2_PROTECTION_FAULT_STATUS:\s?0x0{0,7}[1-9a-fA-F]",
        _gpu_page_fault,
    ),
    (
        ("NOT usable",),
        r"habanalabs " + PCI + r": Failed to initialize (?:hl|accel)\d{1,3}\. Device (?:\S{1,20} )?is NOT usable",
        of_gpu("gpu_lost"),
    ),
    (
        ("GPU reset end with", "GPU Recovery Failed", "GPU reset("),
        r"amdgpu "
        + PCI
        + r": .{0,20}(?:GPU reset end with ret = -|GPU Recovery Failed: -|GPU reset\(\d{1,9}\) failed)",
        of_gpu("gpu_lost"),
    ),
    (
        (" timeout, signaled seq",),
        r"amdgpu " + PCI + r": .{0,20}ring \S{1,40} timeout, signaled seq",
        of_gpu("gpu_reset"),
    ),
    (("GPU reset begin",), r"amdgpu " + PCI + r": .{0,20}GPU reset begin!", of_gpu("gpu_reset")),
    *(
        (
            (word,),
            r"(?:xe|i915) " + PCI + r": (?:\[drm\](?: \*ERROR\*)? )?(?:Tile\d{1,2}: )?(?:GT\d{1,2}: )?" + said,
            of_gpu(name),
        )
        for word, said, name in (
            ("Engine reset: ", r"Engine reset: engine_class=", "gpu_reset"),
            ("Timedout job: ", r"Timedout job: seqno=", "gpu_reset"),
            ("GPU HANG: ", r"GPU HANG: ecode ", "gpu_reset"),
            ("eset request timed out", r"GT\d \[ENGINE \w{2,10}\] \w{2,8} reset request timed out", "gpu_lost"),
            ("to reset chip", r"Failed to reset chip", "gpu_lost"),
            ("declared device ", r"CRITICAL: Xe has declared device \S{1,20} as wedged", "gpu_lost"),
            ("Fault response: ", r"Fault response: Unsuccessful ", "gpu_page_fault"),
        )
    ),
    *(((word,), _OF_DRM + said, _driver_failed) for word, said in _FAILURES),
    *(  # what NVIDIA's module says of a GPU that it does not name
        ((word,), r"NVRM: .{0,160}?" + said, read)
        for word, said, read in (
            ("[NV_ERR_GPU_IS_LOST]", r"\[NV_ERR_GPU_IS_LOST\]", lambda _: {"event": "gpu_lost"}),
            ("Cannot attach gpu", r"Cannot attach gpu", lambda _: {"event": "gpu_lost"}),
            ("WPR2 already up", r"unexpected WPR2 already up", lambda _: {"event": "gpu_lost"}),
            ("GPU is probably locked", r"GPU is probably locked!", _driver_failed),
        )
    ),
    (  # where the processor was: in the code of a module
        ("IP: ", "pc : "),
        r"(?:[RE]?IP|pc ?): (?:[0-9a-f]{4}:)?(?:\[<[0-9a-f]{8,16}>\] )?[\w.]{2,100}\+0x[0-9a-f]{1,6}/0x[0-9a-f]{1,6} "
        r"\[(?P<module>" + MODULES + r")\]",
        lambda found: {"event": "at_module", "device": found["module"]},
    ),
    (
        ("BAR", "I/O region assigned"),
        r"NVRM: (?:This PCI I/O region assigned to your NVIDIA device is invalid|BAR\d is 0M @ 0x0)",
        _driver_refused,
    ),
    (
        (" NVIDIA devices were", " probe routine failed for", "not supported by"),
        r"NVRM: (?:None of the NVIDIA devices were |The NVIDIA (?:probe routine failed for \d|GPU .{0,160}not supported by))",
        _driver_refused,
    ),
    *(
        ((word,), pattern, _driver_refused)
        for word, pattern in (
            (": probe of 0", r"(?:nvidia|amdgpu|xe|i915|habanalabs): probe of " + PCI + r" failed with error -\d"),
            (
                ": probe with driver ",
                r"(?:nvidia|amdgpu|xe|i915|habanalabs) " + PCI + r": probe with driver \w{1,20} failed with error -\d",
            ),
        )
    ),
)
