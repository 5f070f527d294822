"""The hardware analyzer names the device that failed, not those that only echo it; ordinary lines name nobody."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.knowledge import Knowledge, xids
from analyzers.model.topology import Topology
from collectors.formats import Input
from collectors.formats.kernel_log.kernel_log import read
from collectors.records import KernelEvent, LogEvent, Record, StackDump
from tests.support.kernel_findings import KNOWLEDGE, NOW, judge, log, named, stamped


def xid(seconds: float, code: int, rest: str, pci: str = "0000:9b:00") -> str:
    """A dmesg line of one Xid."""
    return f"[{seconds:.6f}] NVRM: Xid (PCI:{pci}): {code}, {rest}"


LINK_DOWN = "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
PEER_DOWN = "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x025001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
REMOTE_FATAL = "RLW_SRC_TRACK Fatal XC0 i0 Link -1 (0x000000e2 0x00000001 0x00000000 0x00000000 0x00000000 0x00000000)"
REMOTE_PASSING = (
    "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)"
)


def test_a_real_log_with_xid_119_names_its_gpu_and_asks_for_a_reset() -> None:
    """The GPU of the real log is the one suspect, whoever's process was waiting for it."""
    root = os.environ.get("FAULTHOUND_CORPUS")
    if not root:
        pytest.skip("FAULTHOUND_CORPUS is not set: the real log is not read")
    data = (Path(root) / "samples" / "dmesg-with-xid-119.log").read_bytes()
    findings = judge(read(Input(source="dmesg", stream=io.BytesIO(data), head=data[:65536], node="gpu-7")))
    assert named(findings) == [("device", "gpu-7", "0000:9b:00")]
    assert findings[0].fault_class == "xid_119"
    assert xids.action_for(findings[0].fault_class, KNOWLEDGE) == "reset_gpu"
    assert findings[0].onset == 1740327858.0
    assert all(evidence.source.startswith("dmesg:") for evidence in findings[0].suspects[0].evidence)


def test_a_real_log_of_a_flapping_port_names_the_link() -> None:
    """ib6 lost its carrier six times; the link is suspected, and nobody's machine."""
    root = os.environ.get("FAULTHOUND_CORPUS")
    if not root:
        pytest.skip("FAULTHOUND_CORPUS is not set: the real log is not read")
    data = (Path(root) / "samples" / "1dev_6flap_syslog").read_bytes()
    for at in (NOW, None):
        findings = judge(read(Input(source="syslog", stream=io.BytesIO(data), head=data[:65536], at=at)))
        assert named(findings) == [("link", "jplc7eb7-vm-0", "ib6")]
        assert (findings[0].cause, findings[0].fault_class) == ("network", "link_flapping")
        assert "6 times" in findings[0].suspects[0].why
        assert bool(findings[0].missing) == (at is None)  # without a year it says so


@pytest.mark.parametrize("remote", [REMOTE_FATAL, REMOTE_PASSING], ids=["fatal", "nonfatal"])
@pytest.mark.parametrize("lead", [-3, 0, 4])
def test_one_149_among_sixty_three_145s_is_the_cause(remote: str, lead: int) -> None:
    """The device whose link went down is the only suspect; the other sixty-three are rejected with a reason."""
    records: list[Record] = []
    for number in range(64):
        host = f"n{number // 4:02d}"
        pci = f"0000:{0x10 + number % 4:02x}:00"
        line = f"NVRM: Xid (PCI:{pci}): {149 if number == 37 else 145}, {LINK_DOWN if number == 37 else remote}"
        second = 100 if number == 37 else 100 + lead + number % 3
        records += log(stamped(second, line, host), node=None, name=f"{host}-{number}.log")
    findings = judge(records)
    assert named(findings) == [("device", "n09", "0000:11:00")]
    assert findings[0].fault_class == "nvlink5_149_fatal"
    assert xids.action_for(findings[0].fault_class, KNOWLEDGE) == "reset_gpu"
    assert len(findings[0].rejected) == 63
    assert all(suspect.why for suspect in findings[0].rejected)


def test_a_149_whose_registers_blame_the_peer_is_an_echo_of_the_peer() -> None:
    """Both ends report the link; the one that says the other side went down is no suspect."""
    findings = judge(
        log(stamped(10, f"NVRM: Xid (PCI:0000:05:00): 149, {PEER_DOWN}", "n1"), node=None, name="a")
        + log(stamped(11, f"NVRM: Xid (PCI:0000:06:00): 149, {LINK_DOWN}", "n2"), node=None, name="b")
    )
    assert named(findings) == [("device", "n2", "0000:06:00")]


def test_many_145s_without_their_origin_name_nobody_and_ask_for_its_log() -> None:
    """The consequences alone do not tell whose link failed."""
    records: list[Record] = []
    for number in range(20):
        host = f"n{number:02d}"
        records += log(stamped(50, f"NVRM: Xid (PCI:0000:05:00): 145, {REMOTE_FATAL}", host), node=None, name=host)
    findings = judge(records)
    assert named(findings) == []
    assert findings[0].missing
    assert len(findings[0].rejected) == 20


def test_a_fault_an_hour_earlier_explains_nothing() -> None:
    """An echo follows within half a minute; a 145 an hour after a 149 stands for itself."""
    findings = judge(log(xid(1000, 149, LINK_DOWN, "0000:05:00"), xid(4600, 145, REMOTE_FATAL, "0000:06:00")))
    assert sorted(named(findings)) == [("device", "n1", "0000:05:00"), ("device", "n1", "0000:06:00")]


def test_a_fault_that_the_driver_repeats_within_seconds_is_one_event() -> None:
    """Twelve lines of one fault, seconds apart, are one piece of evidence that says how often; a minute later is another."""
    lines = [xid(100 + 4 * number, 119, "Timeout after 6s") for number in range(12)]
    (finding,) = judge(log(*lines, xid(500, 119, "Timeout after 6s")))
    reported = [evidence.text for evidence in finding.suspects[0].evidence]
    assert len(reported) == 2
    assert ["(12 times)" in text for text in reported] == [True, False]


def test_an_ordinary_day_names_nobody() -> None:
    """A thousand application faults and clean-ups over eight GPUs give no finding."""
    lines = []
    for number in range(1000):
        code = (13, 31, 43, 45, 45, 45)[number % 6]
        pci = f"0000:{0x10 + number * 7 % 8:02x}:00"
        lines.append(xid(1000 + number * 86.4, code, f"pid={2000 + number}, name=python3, Ch 00000008", pci))
    assert judge(log(*lines)) == []


def test_the_xids_of_a_teardown_name_nobody() -> None:
    """Every GPU of two nodes ends with 43, 45, 13 and 31 in the same seconds: echoes."""
    records: list[Record] = []
    for host in ("n1", "n2"):
        lines = [
            xid(500 + gpu * 0.01, code, f"pid={900 + gpu}, name=python3, Ch 1", f"0000:{gpu:02x}:00")
            for gpu in range(8)
            for code in (43, 45, 13, 31)
        ]
        records += log(*lines, node=host, name=host)
    assert judge(records) == []


def test_a_gpu_that_faults_in_several_processes_is_worth_a_probe_only() -> None:
    """31 on one GPU in four processes and nowhere else: weakly suspected, tested, never evicted."""
    lines = [xid(1000 * (n + 1), 31, f"pid={50 + n}, name=python3, Ch 0000000a") for n in range(4)]
    findings = judge(log(*lines))
    assert named(findings) == [("device", "n1", "0000:9b:00")]
    assert findings[0].suspects[0].strength <= 0.5
    assert xids.action_for(findings[0].fault_class, KNOWLEDGE) == "probe"
    spread = [xid(1000 * (n + 1), 31, f"pid={50 + n}, name=python3, Ch 1", f"0000:{n % 4:02x}:00") for n in range(16)]
    assert judge(log(*spread)) == []
    one_process = [xid(1000 * (n + 1), 31, "pid=50, name=python3, Ch 1") for n in range(9)]
    assert judge(log(*one_process)) == []


@pytest.mark.parametrize(
    "lines",
    [
        ["NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."],
        ["NVRM: GPU 0000:05:00.0: GPU has fallen off the bus."],
        [
            "NVRM: The NVIDIA GPU 0000:05:00.0",
            "NVRM: (PCI ID: 10de:2330) installed in this system has",
            "NVRM: fallen off the bus and is not responding to commands.",
        ],
    ],
    ids=["with code", "without code", "in three lines"],
)
def test_a_lost_gpu_is_named_with_and_without_its_code(lines: list[str]) -> None:
    """A GPU that left the bus asks for a restart of its node; link errors of the others are its echoes."""
    after = xid(
        103,
        74,
        "pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0)",
    )
    findings = judge(log(*(f"[{100 + n}.000000] {line}" for n, line in enumerate(lines)), after))
    assert named(findings) == [("device", "n1", "0000:05:00")]
    assert findings[0].suspects[0].strength >= 0.95
    assert xids.action_for(findings[0].fault_class, KNOWLEDGE) == "reboot_node"
    assert [suspect.device for suspect in findings[0].rejected] == ["0000:9b:00"]


def test_several_gpus_lost_together_are_their_node() -> None:
    """What eight GPUs of one node share is at fault, not eight GPUs."""
    lines = [xid(100 + gpu, 79, "GPU has fallen off the bus.", f"0000:{gpu:02x}:00") for gpu in range(8)]
    findings = judge(log(*lines))
    assert named(findings) == [("node", "n1", None)]


@pytest.mark.parametrize(
    ("codes", "fault_class", "action"),
    [
        ((48,), "ecc_dbe", "reset_gpu"),
        ((48, 63), "ecc_dbe_remap", "evict"),
        ((48, 64, 45), "ecc_dbe_remap", "evict"),
        ((48, 95), "ecc_dbe", "reset_gpu"),
        ((64,), "xid_64", "reset_gpu"),
        ((95,), "xid_95", "reset_gpu"),
        ((140,), "xid_140", "reset_gpu"),
        ((120,), "xid_120", "reset_gpu"),
        ((79, 119), "xid_79", "reboot_node"),
    ],
)
def test_one_device_gives_one_finding_with_the_fitting_action(
    codes: tuple[int, ...], fault_class: str, action: str
) -> None:
    """Lines about one fault of one GPU are joined and ask for one thing."""
    findings = judge(log(*(xid(100 + n, code, "some words") for n, code in enumerate(codes))))
    assert [finding.fault_class for finding in findings] == [fault_class]
    assert xids.action_for(fault_class, KNOWLEDGE) == action


def test_an_xid_43_alone_is_the_programs() -> None:
    """A channel that was reset after the application's fault names the code, and no device."""
    (found,) = judge(log(xid(100, 43, "pid=50, name=python3, Ch 1")))

    assert (found.cause, found.fault_class) == ("code", "xid_of_program")
    assert {suspect.kind for suspect in found.suspects} == {"code"}


@pytest.mark.parametrize("code", [45, 63, 92, 106, 137, 141, 162, 171, 5, 90, 4711])
def test_codes_that_ask_for_nothing_name_nobody(code: int) -> None:
    """Sympathetic, informational, unused and unknown codes give no finding alone."""
    assert judge(log(xid(100, code, "some words"))) == []


def test_an_xid_154_raises_the_recovery_of_the_fault_beside_it() -> None:
    """The driver asks for a restart: the finding asks for it too; "None" asks for nothing."""
    said = "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
    findings = judge(log(xid(100, 119, "Timeout after 6s"), xid(101, 154, said)))
    assert [xids.action_for(finding.fault_class, KNOWLEDGE) for finding in findings] == ["reboot_node"]
    cleared = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    findings = judge(log(xid(100, 119, "Timeout after 6s"), xid(101, 154, cleared)))
    assert [finding.fault_class for finding in findings] == ["xid_119"]
    assert judge(log(xid(101, 154, cleared))) == []


@pytest.mark.parametrize(
    ("registers", "times", "fault_class"),
    [
        ("0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", 1, "nvlink_74_seating"),
        ("0x0, 0x0, 0x1, 0x0, 0x0, 0x0, 0x0", 1, "nvlink_74_repeated"),
        ("0x0, 0x0, 0x1, 0x0, 0x0, 0x0, 0x0", 3, "nvlink_74_ecc"),
        ("0x1, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0", 3, None),
        ("0x0, 0x0, 0x0, 0x0, 0x100000, 0x0, 0x0", 3, None),
    ],
)
def test_an_xid_74_is_judged_by_its_registers(registers: str, times: int, fault_class: str | None) -> None:
    """Seating asks for a test, ECC for a reset from its third time on one link, and some bits for nothing."""
    lines = [xid(100 * n, 74, f"NVLink: fatal error detected on link 6({registers})") for n in range(1, times + 1)]
    assert [finding.fault_class for finding in judge(log(*lines))] == ([fault_class] if fault_class else [])


def test_a_fault_of_another_day_is_rejected_with_its_reason() -> None:
    """What the kernel log kept from last week is no suspect of today's hang."""
    line = f"[{'Sun Sep 13 10:00:00 2026'}] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."
    sign = LogEvent(event="watchdog_timeout", source="job.log:1", at=1_790_000_000.0)
    findings = judge([*log(line), sign])
    assert named(findings) == []
    assert [suspect.device for finding in findings for suspect in finding.rejected] == ["0000:05:00"]


def test_ranks_are_named_only_where_the_device_is_known_to_be_theirs() -> None:
    """By process id, or as the node's only rank; eight ranks and one address give none."""
    topology = Topology(ranks=(0, 1, 2), nodes={0: "n1.cluster.local", 1: "n1.cluster.local", 2: "n2"})
    line = xid(100, 119, "pid=777, name=python3, Timeout after 6s")
    assert judge(log(line, node="n1"), topology)[0].suspects[0].ranks == ()
    assert judge(log(line, node="n1"), topology)[0].suspects[0].node == "n1.cluster.local"
    assert judge(log(line, node="n2"), topology)[0].suspects[0].ranks == (2,)
    dump = StackDump(source="s", rank=1, pid=777, node="n1.cluster.local")
    assert judge([*log(line, node="n1"), dump], topology)[0].suspects[0].ranks == (1,)
    listed = [
        f"[1.000000] NVRM: GPU at PCI:0000:{bus}:00: GPU-509665ad-b600-ac93-3616-d754b23d636d" for bus in ("1b", "9b")
    ]
    assert judge(log(*listed, line, node="n1"), topology)[0].suspects[0].ranks == (1,)


def test_renaming_the_nodes_renames_the_suspects() -> None:
    """The answer depends on what nodes did, not on what they are called."""
    line = stamped(10, f"NVRM: Xid (PCI:0000:05:00): 149, {LINK_DOWN}", "NODE")
    other = stamped(11, f"NVRM: Xid (PCI:0000:05:00): 145, {REMOTE_FATAL}", "OTHER")
    for first, second in (("a", "z"), ("z", "a")):
        records = log(line.replace("NODE", first), node=None, name="1") + log(
            other.replace("OTHER", second), node=None, name="2"
        )
        assert named(judge(records)) == [("device", first, "0000:05:00")]


def test_the_order_of_the_logs_does_not_matter() -> None:
    """The same records in any order give the same findings."""
    records = log(
        xid(100, 119, "x"), xid(102, 74, "link 1(0x10000, 0x0)", "0000:05:00"), xid(90, 149, LINK_DOWN, "0000:06:00")
    )
    assert judge(records) == judge(records[::-1])


def test_without_records_or_knowledge_nothing_is_claimed() -> None:
    """An empty window gives nothing; without tables no Xid has a meaning."""
    assert judge([]) == []
    assert judge(log(xid(100, 119, "x"), xid(101, 149, LINK_DOWN)), knowledge=Knowledge()) == []


EVENTS = st.builds(
    KernelEvent,
    event=st.sampled_from(
        ["xid", "off_bus", "sxid", "link_down", "mlx5", "hung_task", "oom_kill", "aer", "nfs_not_responding"]
    ),
    text=st.text(max_size=20),
    code=st.none() | st.sampled_from([13, 31, 45, 48, 63, 74, 79, 94, 95, 119, 144, 145, 149, 150, 154]),
    pci=st.none() | st.sampled_from(["0000:01:00", "0000:02:00", "0000:03:00"]),
    at=st.none() | st.floats(0, 100),
    monotonic_at=st.none() | st.floats(0, 100),
    yearless_at=st.none() | st.floats(0, 100),
    node=st.none() | st.sampled_from(["a", "b"]),
    severity=st.none() | st.sampled_from(["fatal", "nonfatal", "link fatal", "corrected"]),
    status=st.lists(st.integers(0, 2**32), max_size=7).map(tuple),
    pid=st.none() | st.integers(1, 9),
    link=st.none() | st.integers(-1, 3),
    source=st.sampled_from(["a:1", "a:2", "b:1", "", "b"]),
)


@pytest.mark.system
@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, max_size=12))
def test_any_events_give_findings_that_hold_together(events: list[KernelEvent]) -> None:
    """No combination of events crashes; strengths are in bounds, and who is suspected is not rejected in one breath."""
    for finding in judge(events, Topology(ranks=(0, 1), nodes={0: "a", 1: "b"})):
        assert all(0 < suspect.strength <= 1 and suspect.why for suspect in finding.suspects)
        assert all(suspect.evidence for suspect in finding.suspects)
        devices = {(suspect.node, suspect.device) for suspect in finding.suspects if suspect.kind == "device"}
        assert not devices & {(suspect.node, suspect.device) for suspect in finding.rejected}
        assert xids.action_for(finding.fault_class, KNOWLEDGE) in {"evict", "reset_gpu", "reboot_node", "probe", "none"}
