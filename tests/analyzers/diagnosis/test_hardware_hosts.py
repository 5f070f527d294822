"""Ports, hosts and file servers in the kernel log: what counts, what is everyday life, and what it asks for."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest

from analyzers.diagnosis.hardware.hardware import analyze
from analyzers.knowledge import xids
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import KernelEvent, LogEvent, ProcessState, Record, Steps
from tests.support.kernel_findings import FOLDER, KNOWLEDGE, NOW, judge, log, named, stamped


def test_a_port_that_lost_its_link_once_is_everyday_life() -> None:
    """One alert gives nothing, two within five minutes a suspect, two within an hour nothing."""
    down = "mlx5_core 0000:5d:00.0 ib3: Link down"
    assert judge(log(f"[100.000000] {down}")) == []
    assert named(judge(log(f"[100.000000] {down}", f"[390.000000] {down}"))) == [("link", "n1", "ib3")]
    assert judge(log(f"[100.000000] {down}", f"[3000.000000] {down}")) == []
    once_told_twice = [
        "Sep 21 10:00:00 n1 kernel: mlx5_core 0000:5d:00.0 ib3: Link down",
        "Sep 21 10:00:00 n1 systemd-networkd[9]: ib3: Lost carrier",
    ]
    assert judge(log(*once_told_twice)) == []


def test_an_error_of_the_host_and_the_fatal_one_that_it_became_are_one_fault() -> None:
    """Two rules of one class: the surer one's words, and the lines of both."""
    fatal = "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 7: be00000000800090"
    killed = "Memory failure: 0x1a2b3: Sending SIGBUS to python:77 due to hardware memory corruption"
    (found,) = judge(log(f"[100.000000] {fatal}", f"[100.200000] {killed}"))

    assert (found.fault_class, found.suspects[0].strength) == ("machine_check", 0.9)
    assert len(found.suspects[0].evidence) == 2


def test_ports_of_many_nodes_flapping_at_once_are_the_switch() -> None:
    """No node is blamed for what its switch did."""
    records: list[Record] = []
    for number in range(4):
        lines = [stamped(second, "mlx5_core 0000:5d:00.0 ib3: Link down", f"n{number}") for second in (10, 40)]
        records += log(*lines, node=None, name=f"n{number}")
    findings = judge(records)
    assert [(finding.fault_class, finding.cause) for finding in findings] == [("switch_flapping", "network")]
    assert named(findings) == [("switch", None, None)]
    assert len(findings[0].rejected) == 4


@pytest.mark.parametrize(
    ("lines", "fault_class", "cause", "action"),
    [
        (
            ["watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:4242]"],
            "soft_lockup",
            "machine",
            "reboot_node",
        ),
        (["Memory cgroup out of memory: Killed process 4242 (python3) total-vm:1kB"], "oom_kill", "code", "none"),
        (["nvme nvme0: I/O 258 QID 4 timeout, aborting"], "disk_error", "storage", "probe"),
        (["{1}[Hardware Error]: event severity: fatal"], "machine_check", "machine", "evict"),
        (["Kernel panic - not syncing: Fatal exception"], "kernel_panic", "machine", "reboot_node"),
        (["nfs: server fs01 not responding, still trying"], "storage_unreachable", "storage", "none"),
        (
            [
                "INFO: task python3:4242 blocked for more than 120 seconds.",
                "Call Trace:",
                " rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]",
            ],
            "hung_task_storage",
            "storage",
            "none",
        ),
        (
            [
                "INFO: task python3:4242 blocked for more than 120 seconds.",
                "Call Trace:",
                " nv_open+0x1e/0xa0 [nvidia]",
            ],
            "hung_task",
            "machine",
            "probe",
        ),
        (["python3[4242]: segfault at 7f ip 00 sp 00 error 4 in libnccl.so.2[7f+10]"], "segfault", "code", "none"),
        (
            ["mlx5_core 0000:5d:00.0: device's health compromised - reached miss count"],
            "nic_health",
            "network",
            "evict",
        ),
        (
            ["pcieport 0000:02:00.0: AER: Uncorrected (Fatal) error received: 0000:9b:00.0"],
            "pcie_fatal",
            "machine",
            "reboot_node",
        ),
        (
            ["nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"],
            "sxid_20034",
            "machine",
            "reboot_node",
        ),
    ],
)
def test_what_befalls_a_host_has_its_cause_and_action(
    lines: list[str], fault_class: str, cause: str, action: str
) -> None:
    """Each kind of line gives one finding with the cause and the action that docs/xid.md lists."""
    findings = judge(log(*(f"[{100 + n}.000000] {line}" for n, line in enumerate(lines))))
    assert [(finding.fault_class, finding.cause) for finding in findings] == [(fault_class, cause)]
    assert xids.action_for(fault_class, KNOWLEDGE) == action
    assert f"`{fault_class.replace('20034', 'N')}`" in (FOLDER.parents[1] / "docs" / "xid.md").read_text()


@pytest.mark.parametrize(
    "line",
    [
        "Memory cgroup out of memory: Killed process 4242 (logrotate) total-vm:1kB",
        "pcieport 0000:02:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "mlx5_core 0000:5d:00.0: Detected insufficient power on the PCIe slot (27W).",
        "mlx5_core 0000:5d:00.0: mlx5_cmd_out_err:834:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed, status bad parameter(0x3)",
        "mce: [Hardware Error]: Machine check events logged",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        "cali12345: Link is Down",
    ],
)
def test_everyday_lines_of_a_host_name_nobody(line: str) -> None:
    """Corrected errors, monitors' noise and other people's processes blame nobody, however often they come."""
    assert judge(log(*(f"[{n}.000000] {line}" for n in range(1, 9)))) == []


def test_a_file_server_that_answers_again_stalled_nobody() -> None:
    """An outage of seconds is no finding; one that lasted is storage for all nodes together."""
    lost, back = "nfs: server fs01 not responding, still trying", "nfs: server fs01 OK"
    assert judge(log(f"[100.000000] {lost}", f"[110.000000] {back}")) == []
    records = [record for node in ("n1", "n2") for record in log(f"[100.000000] {lost}", node=node, name=node)]
    findings = judge(records)
    assert [(finding.cause, len(finding.suspects)) for finding in findings] == [("storage", 1)]


def live(at: float, node: str, text: str, boot_id: str = "b1") -> KernelEvent:
    """An event as an agent reads it from the running kernel: its instant is known."""
    [event] = [one for one in log(f"[100.000000] {text}", node=node) if isinstance(one, KernelEvent)]
    return msgspec.structs.replace(event, at=at, boot_id=boot_id)


A_STEP: dict[str, Any] = {"count": 1, "columns": {"step": bytes(8)}}


def stepped(at: float, ranks: int = 4) -> list[Record]:
    """That most ranks reported a step at this instant; the clock of rank 0 is a day ahead."""
    return [Steps(at=at if rank else at + 86_400.0, rank=rank, node=f"n{rank}", **A_STEP) for rank in range(ranks)]


STUCK = "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:4242]"
LOST = "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."


def test_what_passed_while_the_job_went_on_is_no_evidence() -> None:
    """Of two hours ago a lockup names nobody and a lost GPU is still lost; of now both count; a wild clock excuses none."""
    old = [live(NOW - 7_200.0, "n1", STUCK), live(NOW - 7_200.0, "n2", LOST)]
    assert [one.fault_class for one in judge([*old, *stepped(NOW)])] == ["xid_79"]
    for progress in ([], stepped(NOW - 7_150.0)):
        assert {one.fault_class for one in judge([*old, *progress])} == {"xid_79", "soft_lockup"}
    of_its_own = [*stepped(NOW)[:1], Steps(at=NOW - 7_150.0, rank=1, node="n1", **A_STEP), *stepped(NOW)[2:]]
    assert {one.fault_class for one in judge([*old, *of_its_own])} == {"xid_79", "soft_lockup"}, "its node stands still"
    begun = [ProcessState(pid=rank, rank=rank, node=f"n{rank}", at=NOW, started_at=NOW) for rank in range(4)]
    assert {one.fault_class for one in judge([*old, *begun])} == {"xid_79", "soft_lockup"}, "a start is no progress"
    undated = log(f"[100.000000] {STUCK}")
    assert [one.fault_class for one in judge([*undated, *stepped(NOW)])] == ["soft_lockup"], (
        "nobody knows when that was"
    )


@pytest.mark.parametrize(
    "text", [STUCK, "python[20486]: segfault at 0 ip 00007f3c sp 00007ffd error 4 in libtorch.so[7f3c000+1000]"]
)
def test_in_files_what_every_rank_outlives_without_a_failure_is_no_evidence(text: str) -> None:
    """The lines of files have no clock of a boot; a failure in the job's logs, or a rank that stands still, leaves it open."""

    def series(until: float, rank: int) -> Steps:
        at = array("d", [NOW - 900.0, until]).tobytes()
        return Steps(source=f"{rank}.log", rank=rank, count=2, columns={"step": bytes(16), "at": at})

    event = msgspec.structs.replace(live(NOW - 840.0, "n1", text), boot_id=None, monotonic_at=None)
    went_on = [series(NOW, rank) for rank in range(4)]
    failed = LogEvent(event="traceback", exception="RuntimeError", text="RuntimeError: x", source="1.log:9", rank=1)

    assert judge([event, *went_on]) == []
    assert judge([event, *went_on[:3], series(NOW - 840.0, 3)]) != []
    assert judge([event, *went_on, failed]) != []


def test_a_process_that_crashed_before_the_job_began_was_none_of_it() -> None:
    """An agent that starts reads what the kernel wrote since boot; a crash while the job ran is evidence."""
    crashed = live(
        NOW - 7_200.0, "n1", "python[20486]: segfault at 0 ip 00007f3c sp 00007ffd error 4 in libtorch.so[7f3c000+1000]"
    )
    begun = {
        seconds: [
            ProcessState(pid=rank, rank=rank, node=f"n{rank}", at=NOW, started_at=NOW - seconds) for rank in range(4)
        ]
        for seconds in (60.0, 9_000.0)
    }
    assert judge([crashed, *begun[60.0]]) == []
    assert [one.fault_class for one in judge([crashed, *begun[9_000.0]])] == ["segfault"]


def test_nodes_that_are_stuck_together_are_not_the_fault_of_any() -> None:
    """Three nodes within a minute, or both nodes of a job of two; one a minute apart each stands for itself."""
    within = [live(NOW + 10 * number, f"n{number}", STUCK) for number in range(3)]
    [finding] = judge(within)
    assert (finding.fault_class, finding.cause, named([finding])) == (
        "stuck_together",
        "platform",
        [("platform", None, None)],
    )
    apart = [live(NOW + 100 * number, f"n{number}", STUCK) for number in range(3)]
    assert [(one.fault_class, named([one])) for one in judge(apart)] == [
        ("soft_lockup", [("node", f"n{number}", None)]) for number in range(3)
    ]
    one_host = [live(NOW, name, STUCK) for name in ("n1", "n1.cluster.local")] + log(f"[100.000000] {STUCK}", node=None)
    assert {one.fault_class for one in judge(one_host)} == {"soft_lockup"}, "three logs of one host"
    both = Topology(ranks=(0, 1), nodes={0: "n0", 1: "n1"})
    assert [one.fault_class for one in analyze(Window.build(within[:2]), both, KNOWLEDGE)] == ["stuck_together"]
    larger = Topology(ranks=tuple(range(9)), nodes={rank: f"n{rank}" for rank in range(9)})
    reported = list(analyze(Window.build(within[:2]), larger, KNOWLEDGE))
    assert [one.fault_class for one in reported] == ["soft_lockup", "soft_lockup"]
