"""One line of kernel text gives the fields it states, and noise gives nothing."""

from __future__ import annotations

import io

import pytest

from collectors.formats import Input
from collectors.formats.kernel_log import kernel_log
from collectors.records import KernelEvent, Record, pci_address


def read(text: str) -> list[Record]:
    """Everything the reader makes of a text."""
    data = text.encode()
    return list(kernel_log.read(Input(source="kern.log", stream=io.BytesIO(data), head=data)))


def events(text: str) -> list[KernelEvent]:
    """The kernel events of a text."""
    return [record for record in read(text) if isinstance(record, KernelEvent)]


LINES: list[tuple[str, dict[str, object]]] = [
    (
        "mce: [Hardware Error]: CPU 11: Machine Check Exception: 5 Bank 1: bf80000000100134",
        {"event": "mce", "severity": "fatal"},
    ),
    (
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 12: fc00000000800400",
        {"event": "mce", "severity": "recoverable"},
    ),
    (
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: f Bank 7: bd80000000100134",
        {"event": "mce", "severity": "uncorrected"},
    ),
    (
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 9: 8c00004000010090",
        {"event": "mce", "severity": "corrected"},
    ),
    (
        "NVRM: Xid (PCI:0000:03:00): 45, pid=12, name=python3, Ch 00000008, errorString, caused by previous Xid 119",
        {"event": "xid", "code": 119, "pid": 12, "pci": "0000:03:00"},
    ),
    ("NVRM: Xid (PCI:0000:03:00): 45, pid=12, name=python3, Ch 00000008", {"event": "xid", "code": 45}),
    ("NVRM: GPU 0000:4e:00.0: RmInitAdapter failed! (0x62:0x65:2461)", {"event": "gpu_lost", "pci": "0000:4e:00"}),
    (
        "amdgpu 0000:9d:00.0: {1}socket: 6, die: 1, 2 new uncorrectable hardware errors detected in umc block",
        {"event": "gpu_uncorrected", "pci": "0000:9d:00"},
    ),
    ("amdgpu 0000:c1:00.0: amdgpu: GPU reset begin!", {"event": "gpu_reset", "pci": "0000:c1:00"}),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", {"event": "xid", "code": 14, "pci": "0000:03:00"}),
    (
        "NVRM: Xid (PCI:0000:03:00): 31, pid=12, name=python3, Ch 00000008",
        {"code": 31, "pid": 12, "process": "python3"},
    ),
    ("NVRM: Xid (PCI:0000:03:00): 119, pid=1, name=nvc:[driver], Timeout", {"process": "nvc:[driver]"}),
    ("NVRM: Xid (PCI:0000:03:00.0): 94", {"code": 94, "pci": "0000:03:00"}),
    ("NVRM: Xid (PCI:0008:C1:00): 62, 2ae1", {"code": 62, "pci": "0008:c1:00"}),
    (
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x0)",
        {"code": 145, "unit": "RLW_RXPIPE", "severity": "nonfatal", "link": 13, "status": (0x0409A0C2, 8, 0)},
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link -1 (0x021425c6 0x00000000)",
        {"unit": "NETIR_LINK_EVT", "severity": "fatal", "link": -1, "status": (0x021425C6, 0)},
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR Link Fatal XC 1 i 2 Link 01 [0x0000000a]",
        {"unit": "NETIR", "severity": "link fatal", "link": 1, "status": (10,)},
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 150, MSE Degraded Fatal XC0 i0 Link -1",
        {"unit": "MSE Degraded", "severity": "fatal", "status": ()},
    ),
    (
        "NVRM: Xid (PCI:0000:c5:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error on link 6(0x10000, 0x0, 0x0)",
        {"code": 74, "link": 6, "status": (0x10000, 0, 0)},
    ),
    ("NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.", {"event": "off_bus", "code": 79, "pci": "0000:18:00"}),
    (
        "NVRM: GPU at PCI:0000:18:00: GPU-509665ad-b600-ac93-3616-d754b23d636d",
        {"event": "gpu_identity", "pci": "0000:18:00"},
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        {"event": "sxid", "code": 12028, "severity": "nonfatal", "link": 32, "device": "nvswitch3"},
    ),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        {"code": 20034, "severity": "fatal"},
    ),
    (
        "pcieport 0000:02:00.0: AER: Uncorrected (Fatal) error received: 0000:9b:00.0",
        {"event": "aer", "severity": "fatal", "pci": "0000:9b:00"},
    ),
    (
        "nvidia 0000:9b:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
        {"event": "aer", "severity": "nonfatal", "pci": "0000:9b:00", "device": "nvidia"},
    ),
    ("nvidia 0000:9b:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer", {"severity": "corrected"}),
    (
        "mlx5_core 0000:5d:00.0: Port module event[error]: module 0, Cable error, High Temperature",
        {"event": "mlx5", "severity": "error", "pci": "0000:5d:00"},
    ),
    ("mlx5_core 0000:5d:00.0: Detected insufficient power on the PCIe slot (27W).", {"event": "pcie_power"}),
    ("mlx5_core 0000:5d:00.0 ib3: Link down", {"event": "link_down", "device": "ib3", "pci": "0000:5d:00"}),
    ("mlx5_core 0000:5d:00.0 eth2: Link up", {"event": "link_up", "device": "eth2"}),
    ("ixgbe 0000:01:00.0 eth0: NIC Link is Down", {"event": "link_down", "device": "eth0"}),
    (
        "Memory cgroup out of memory: Killed process 4242 (python3) total-vm:1kB",
        {"event": "oom_kill", "pid": 4242, "process": "python3", "severity": "cgroup"},
    ),
    ("Out of memory: Killed process 4242 (python3) total-vm:1kB", {"event": "oom_kill", "severity": "global"}),
    (
        "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:4242]",
        {"event": "soft_lockup", "seconds": 27.0, "process": "python3", "pid": 4242},
    ),
    (
        "INFO: task pt_main_thread:4242 blocked for more than 120 seconds.",
        {"event": "hung_task", "seconds": 120.0, "process": "pt_main_thread", "pid": 4242},
    ),
    (
        "python3[4242]: segfault at 7f ip 00 sp 00 error 4 in libnccl.so.2[7f+10]",
        {"event": "segfault", "process": "python3", "pid": 4242, "device": "libnccl.so.2"},
    ),
    ("nfs: server fs01 not responding, still trying", {"event": "nfs_not_responding", "device": "fs01"}),
    ("nvme nvme0: I/O 258 (I/O Cmd) QID 4 timeout, aborting", {"event": "io_error", "device": "nvme0"}),
    ("blk_update_request: I/O error, dev nvme1n1, sector 123", {"event": "io_error", "device": "nvme1n1"}),
    ("EXT4-fs error (device nvme0n1p1): ext4_find_entry:1", {"event": "fs_error", "device": "nvme0n1p1"}),
    ("XFS (dm-0): Corruption detected. Unmount and run xfs_repair", {"event": "fs_error", "device": "dm-0"}),
    ("mce: Uncorrected hardware memory error in user-access at 123", {"event": "mce", "severity": "uncorrected"}),
    ("Kernel panic - not syncing: Fatal exception", {"event": "panic"}),
    ("BUG: unable to handle page fault for address: ffff", {"event": "kernel_bug"}),
]


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_each_kind_of_line_gives_its_fields(line: str, expected: dict[str, object]) -> None:
    """What the line says is in the record, under the names that records.py lists."""
    (event,) = events(f"[1.000000] {line}")
    assert {name: getattr(event, name) for name in expected} == expected
    assert event.text == line


@pytest.mark.parametrize(
    "line",
    [
        "mlx5_core 0000:5d:00.0: mlx5_cmd_out_err:834:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3)",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 30 Sub-engine instance 00",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Data {0x00000000, 0x00000000}",
        "NVRM: Xid (PCI:0000:05:00): garbled",
        "NVRM: Xid (PCI:0000:05:00): 0, nothing",
        "NVRM: GPU Board Serial Number: 1650124014249",
        "docker0: port 1(veth12) entered disabled state",
        "cali12345: Link is Down",
        "veth99: lost carrier",
    ],
)
def test_lines_that_report_nothing_give_nothing(line: str) -> None:
    """Noise of monitors, second lines of the same error, containers' ports and garbled codes are passed over."""
    assert read(f"[1.000000] {line}") == []


def test_addresses_are_normalised() -> None:
    """Domain, bus and device in lower case, whatever the line leaves out."""
    given_forms = ["PCI:0000:9B:00", "0000:9b:00.0", "9b:00", "00000000:9B:00.0", "PCI:0000:9b:0"]
    assert {pci_address(text) for text in given_forms} == {"0000:9b:00"}


@pytest.mark.parametrize(
    ("line", "pid", "process"),
    [
        ('earlyoom[88]: sending SIGKILL to process 412 uid 1001 "python": badness 982, VmRSS 20123 MiB', 412, "python"),
        (
            'earlyoom[88]: sending SIGTERM to process 412 "python": oom_score 1264, VmRSS 23964 MiB, cmdline "x"',
            412,
            "python",
        ),
        (
            "systemd-oomd[81]: Killed /user.slice/a.scope due to memory pressure for /user.slice being 71.12% > 50.00% for > 20s",
            None,
            "/user.slice/a.scope",
        ),
        (
            "systemd-oomd[81]: Marked /user.slice/a.scope for killing due to memory used (10) / total (11) and swap used (9)",
            None,
            "/user.slice/a.scope",
        ),
        ("systemd[1]: a.scope: systemd-oomd killed 61 process(es) in this unit.", None, "a.scope"),
    ],
)
def test_services_that_kill_for_memory_are_read_as_the_kernels_kills(line: str, pid: int | None, process: str) -> None:
    """They act before the kernel has to; under another tag anyone may write it."""
    found = events(f"Nov 20 09:05:01 n1 {line}\n")

    assert [(event.event, event.node, event.pid, event.process) for event in found] == [
        ("oom_kill", "n1", pid, process)
    ]
    assert events(f"Nov 20 09:05:01 n1 someone[7]: {line.partition(': ')[2]}\n") == []
