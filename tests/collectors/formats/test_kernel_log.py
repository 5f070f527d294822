"""The kernel log is read in every form it is kept in, recognised without a GPU's line, and never believed blindly."""

from __future__ import annotations

import io
import json
import os
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.formats import Damaged, Input, recognise
from collectors.formats.kernel_log import kernel_log, kernel_times
from collectors.records import KernelEvent, Record, Unread
from tests.support.bounds import in_time

AT = 1_755_500_000.0  # 18 August 2025, 06:53:20 UTC
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
JUNE_2_2025 = 1_748_865_601.0  # 12:00:01 UTC


def read(text: str | bytes, *, at: float | None = AT, node: str | None = None) -> list[Record]:
    """Everything the reader makes of a file."""
    data = text.encode() if isinstance(text, str) else text
    return list(kernel_log.read(Input(source="kern.log", stream=io.BytesIO(data), head=data[:65536], at=at, node=node)))


def events(text: str, **known: object) -> list[KernelEvent]:
    """The kernel events of a text."""
    return [record for record in read(text, **known) if isinstance(record, KernelEvent)]  # type: ignore[arg-type]


def sample(name: str) -> bytes:
    """A real log, read where it lies."""
    root = os.environ.get("FAULTHOUND_CORPUS")
    if not root:
        pytest.skip(f"FAULTHOUND_CORPUS is not set: {name} is not read")
    return (Path(root) / "samples" / name).read_bytes()


def journal(message: object, **more: object) -> str:
    """One line of ``journalctl -o json``."""
    entry = {
        "__REALTIME_TIMESTAMP": "1748865601000000",
        "_TRANSPORT": "kernel",
        "_HOSTNAME": "n7",
        "_BOOT_ID": "b0",
        "MESSAGE": message,
    }
    return json.dumps({**entry, **more})


def test_a_real_dmesg_gives_its_gpu_and_its_xids() -> None:
    """Five Xid 119 lines with time, process and pid, and the identity that maps the address to a UUID."""
    found = [record for record in read(sample("dmesg-with-xid-119.log")) if isinstance(record, KernelEvent)]
    assert [(event.event, event.code) for event in found] == [("gpu_identity", None), *[("xid", 119)] * 5]
    assert found[0].gpu_uuid == "GPU-509665ad-b600-ac93-3616-d754b23d636d"
    assert {event.pci for event in found} == {"0000:9b:00"}
    assert [event.at for event in found[1:]] == [1740327858.0, 1740327864.0, 1740327870.0, 1740328032.0, 1740328213.0]
    assert [(event.pid, event.process) for event in found[1:4:2]] == [(2024380, "nvidia-smi"), (2024380, "nvidia-smi")]
    assert found[1].source == "kern.log:3"


def test_a_real_syslog_gives_the_flaps_of_its_port() -> None:
    """Six carriers lost and six gained, on the host that the lines name, in the year of the file."""
    found = [record for record in read(sample("1dev_6flap_syslog"), at=AT) if isinstance(record, KernelEvent)]
    assert [event.event for event in found] == ["link_down"] * 6 + ["link_up"] * 6
    assert {(event.device, event.node) for event in found} == {("ib6", "jplc7eb7-vm-0")}
    assert found[0].at == 1_755_411_481.0


@pytest.mark.parametrize(
    ("line", "at", "monotonic_at", "node"),
    [
        (f"4,1234,98765432,-;{XID}", None, 98.765432, None),
        (f"4,1234,98765432,-,caller=T12;{XID}", None, 98.765432, None),
        (f"[12345.678901] {XID}", None, 12345.678901, None),
        (f"[    5.000001] [T1234] {XID}", None, 5.000001, None),
        (f"<4>[    5.000001] {XID}", None, 5.000001, None),
        (f"kern  :warn  : [    5.000001] {XID}", None, 5.000001, None),
        (f"[Mon Jun  2 12:00:01 2025] {XID}", JUNE_2_2025, None, None),
        (f"2025-06-02T12:00:01,000000+00:00 {XID}", JUNE_2_2025, None, None),
        (f"Jun  2 12:00:01 h1 kernel: {XID}", JUNE_2_2025, None, "h1"),
        (f"Jun  2 12:00:01 h1 kernel: [12345.678901] {XID}", JUNE_2_2025, 12345.678901, "h1"),
        (f"<4>Jun  2 12:00:01 h1 kernel: {XID}", JUNE_2_2025, None, "h1"),
        (f"2025-06-02T14:00:01.000000+02:00 h1 kernel: {XID}", JUNE_2_2025, None, "h1"),
        (f"2025-06-02T12:00:01+0000 h1 kernel: {XID}", JUNE_2_2025, None, "h1"),
        (f"2025-06-02T12:00:01Z h1 kernel: {XID}", JUNE_2_2025, None, "h1"),
        (f"Mon 2025-06-02 12:00:01 UTC h1 kernel: {XID}", JUNE_2_2025, None, "h1"),
        (f"<4>1 2025-06-02T12:00:01Z h1 kernel - - - {XID}", JUNE_2_2025, None, "h1"),
        (f"1748865601.000000 h1 kernel: {XID}", JUNE_2_2025, None, "h1"),
        (f"[12345.678901] h1 kernel: {XID}", None, 12345.678901, "h1"),
        (f"[2025-06-02T12:00:01.000000+00:00] {XID}", JUNE_2_2025, None, None),
        (f"kernel: [12345.678901] {XID}", None, 12345.678901, None),
        (journal(XID), JUNE_2_2025, None, "n7"),
        (journal(list(XID.encode())), JUNE_2_2025, None, "n7"),
        ("\x1e" + journal(XID, _SOURCE_MONOTONIC_TIMESTAMP="5000001"), JUNE_2_2025, 5.000001, "n7"),
        (XID, None, None, None),
    ],
)
def test_every_form_gives_the_same_event(
    line: str, at: float | None, monotonic_at: float | None, node: str | None
) -> None:
    """The prefix decides when and where; the event is the same in all forms, and each form alone is recognised."""
    (event,) = events(line)
    assert (event.event, event.code, event.pci, event.pid) == ("xid", 79, "0000:05:00", None)
    assert (event.at, event.monotonic_at, event.node) == (at, monotonic_at, node)
    assert event.source == "kern.log:1"
    assert recognise(line.encode(), "x").name == "kernel_log"  # type: ignore[union-attr]


def test_a_lost_gpu_told_in_pieces_is_one_event_of_code_79() -> None:
    """The two- and three-line forms name the address first and the loss later."""
    first = "[1.000000] NVRM: The NVIDIA GPU 0000:b3:00.0"
    last = "[1.000002] NVRM: fallen off the bus and is not responding to commands."
    middle = "[1.000001] NVRM: (PCI ID: 10de:26b5) installed in this system has"
    for lines in (
        [first, middle, last],
        [first, last],
        ["[1.000000] NVRM: GPU 0000:b3:00.0:", "[1.000001] NVRM: GPU has fallen off the bus."],
    ):
        assert [(event.event, event.code, event.pci) for event in events("\n".join(lines))] == [
            ("off_bus", 79, "0000:b3:00")
        ]
    assert events(last) == []


KILLED = "Memory cgroup out of memory: Killed process 812 (python3) total-vm:9kB, anon-rss:8kB"


@pytest.mark.parametrize(
    ("prefix", "dated"),
    [
        ("Jun  2 12:00:01 n7 kernel: [4213.1] ", True),
        ("Jun  2 12:00:01 n7 kernel: [ 4213] ", True),
        ("2025-06-02T12:00:01Z n7 kernel: [4213.123456789] ", True),
        ("[4213.12] ", False),
        ("02.06.2025-12h00 n7 kernel: ", False),
        ("02/Jun/2025 12:00:01 n7 kernel: [4213.1] ", False),
        ("Mon 2 Jun 12h00 CEST n7 kernel: ", False),
    ],
)
def test_a_line_with_an_odd_stamp_is_read(prefix: str, dated: bool) -> None:
    """Of a stamp in another form the line has no instant, and is no less the kernel's."""
    text = f"{prefix}{KILLED}\n"
    found = recognise(text.encode(), "kern.log")
    (one,) = events(text)

    assert found is not None
    assert found.name == "kernel_log"
    assert (one.event, one.pid, one.at is not None) == ("oom_kill", 812, dated)


@pytest.mark.parametrize(
    "line",
    ["[rank3] 12 ms in kernel: add_", "5 nodes said kernel: nvidia", "step 4 kernel: 3.1 ms", "[7.5] loss of memory"],
)
def test_a_programs_own_line_is_no_kernel_line(line: str) -> None:
    """The control: a number before it, or the word alone, is anyone's."""
    found = recognise(f"{line}\n".encode() * 9, "job.log")

    assert found is None or found.name != "kernel_log"


def test_an_oom_kill_told_in_two_lines_is_one_event() -> None:
    """The kernel reports constraint and victim apart; another victim is another event."""
    reported = [
        "[3.000000] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/a,task=python3,pid=42,uid=0",
        "[3.000000] Memory cgroup out of memory: Killed process 42 (python3) total-vm:1kB",
        "[3.000000] Memory cgroup out of memory: Killed process 43 (python3) total-vm:1kB",
    ]
    assert [event.pid for event in events("\n".join(reported))] == [42, 43]


@pytest.mark.parametrize(
    ("frame", "waits_for"),
    [
        ("rpc_wait_bit_killable+0x1e/0xa0 [sunrpc]", "nfs"),
        ("ll_file_read+0x1/0x2 [lustre]", "lustre"),
        ("_nv012454rm+0x437/0x4b0 [nvidia]", "nvidia"),
        ("futex_wait+0x1/0x2", None),
    ],
)
def test_a_hung_task_says_what_its_stack_waits_for(frame: str, waits_for: str | None) -> None:
    """The stack below the line is read as far as it goes; the event keeps its own line and order."""
    log = [
        "INFO: task python3:42 blocked for more than 120 seconds.",
        "      Tainted: P OE 5.15",
        "Call Trace:",
        " __schedule+0x2cd/0x890",
        f" {frame}",
        XID,
    ]
    found = events("\n".join(f"[5.000000] {line}" for line in log))
    assert [(event.event, event.device) for event in found] == [("hung_task", waits_for), ("xid", None)]
    assert found[0].source == "kern.log:1"
    assert [event.event for event in events(f"[5.000000] {log[0]}")] == ["hung_task"]


def test_repeated_messages_are_folded_into_their_count() -> None:
    """Both of syslog's notations keep the number."""
    inside = "Jun  2 12:00:01 h1 kernel: message repeated 3 times: [ " + XID + "]"
    assert [(event.code, event.repeats) for event in events(inside)] == [(79, 3)]
    after = f"Jun  2 12:00:01 h1 kernel: {XID}\nJun  2 12:00:09 h1 last message repeated 5 times"
    assert [(event.code, event.repeats) for event in events(after.replace("h1 last", "h1 kernel: last"))] == [
        (79, 1),
        (79, 5),
    ]


def test_only_the_kernel_speaks_for_the_hardware() -> None:
    """A user's words under another tag are no fault, and carrier is believed of the network services only."""
    assert events(f"Jun  2 12:00:01 h1 myjob[12]: {XID}") == []
    assert events(journal(XID, _TRANSPORT="stdout", SYSLOG_IDENTIFIER="kernel-ish")) == []
    assert events("Jun  2 12:00:01 h1 myjob[12]: ib6: lost carrier") == []
    assert [event.event for event in events("Jun  2 12:00:01 h1 systemd-networkd[12]: ib6: Lost carrier")] == [
        "link_down"
    ]


def test_a_stamp_without_a_year_is_dated_by_the_file() -> None:
    """December in a file of January is last year's; with no date the time within the year is kept, and only that."""
    new_year = 1_767_312_000.0  # 2 January 2026
    (event,) = events(f"Dec 31 23:59:00 h1 kernel: {XID}", at=new_year)
    assert event.at == 1_767_225_540.0
    (undated,) = events(f"Jun  2 12:00:01 h1 kernel: {XID}", at=None)
    assert (undated.at, undated.yearless_at) == (None, 153 * 86400 + 12 * 3600 + 1)
    assert kernel_times.dated(59 * 86400, AT) == 1_709_164_800.0  # 29 February: the latest leap year
    assert kernel_times.dated(0.0, 1e30) is None


def test_the_given_node_wins_over_the_line() -> None:
    """A hosts file knows better than a line's short name."""
    assert events(f"Jun  2 12:00:01 h1 kernel: {XID}", node="h1.cluster")[0].node == "h1.cluster"


DMESG = [
    "Linux version 6.8.0",
    "Command line: BOOT_IMAGE=/vmlinuz",
    "pci 0000:00:00.0: [8086:09a2] type 00",
    "usb 1-1: new device",
]


@pytest.mark.parametrize(
    "prefix",
    ["[{:12.6f}] ", "6,{:.0f},12,-;", "Jun  2 12:00:{:02.0f} h1 kernel: ", "[Mon Jun  2 12:00:{:02.0f} 2025] "],
)
def test_a_log_without_any_gpu_line_is_a_kernel_log_that_reports_nothing(prefix: str) -> None:
    """A healthy machine's log is recognised, and gives neither events nor complaints."""
    text = "".join(prefix.format(number) + line + "\n" for number, line in enumerate(DMESG * 8))
    assert recognise(text.encode(), "x").name == "kernel_log"  # type: ignore[union-attr]
    assert read(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        '[rank7]: Traceback (most recent call last):\n[rank7]:   File "train.py", line 3, in <module>\n',
        "2025-06-02 12:00:01,123 INFO step 12 loss 2.31\n" * 20,
        "[2025-06-02 12:00:01,123] [INFO] [logging.py:96:log_dist] step=12\n" * 20,
        "[rank0]:[E602 12:00:01.123456789 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout\n"
        * 9,
        "W0602 12:00:01.123000 140 torch/distributed/run.py:792] *****\n" * 9,
        "iteration 1 | we saw NVRM: Xid (PCI:0000:05:00): 79 in the log\n" * 9,
        '{"step": 1, "loss": 2.3}\n' * 9,
        '{"message": "GPU down", "level": "error", "timestamp": "2025-06-02T12:00:01Z"}\n' * 9,
        "Jun  2 12:00:01 h1 python3[12]: step 1 loss 2.0\n" * 9,
        'Process 12: python train.py\nPython v3.11.7\n\nThread 12 (idle): "MainThread"\n',
        "Thread 1 (Thread 0x7f (LWP 12)):\n#0  0x00 in poll ()\n",
        "\x80\x02}q\x00X\x07\x00\x00\x00version",
        "#include <stdio.h>\nint main() { return 0; }\n",
        "| GPU  Name        Persistence-M| Bus-Id        Disp.A |\n" * 9,
    ],
)
def test_other_texts_are_not_claimed(text: str) -> None:
    """Job logs, stacks, JSON, tables and nothing at all are left to others."""
    assert kernel_log.sniff(text.encode(), "x") == 0


def test_garbage_between_lines_costs_only_itself() -> None:
    """Truncated, binary and half-written lines are passed over; the lines around them stand."""
    good = f"[1.000000] {XID}"
    text = "\n".join(
        [good, "[1.0000", "NVRM: Xid (PCI:", "\x00\xff\x00", journal(XID)[:40], "{" * 5000, '{"MESSAGE":' * 2000, good]
    )
    assert [event.source for event in events(text)] == ["kern.log:1", "kern.log:8"]
    assert len(read(b"\xff\xfe" + good.encode("utf-8") + b"\n" + good.encode())) == 1


def test_the_events_of_one_file_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver that prints without end gives so many events, then one record that says where reading stopped."""
    monkeypatch.setattr(kernel_log, "EVENTS_LIMIT", 10)
    found = read(f"[1.000000] {XID}\n" * 50)
    assert len(found) == 11
    assert isinstance(found[-1], Unread)
    assert found[-1].outcome == "limit"
    assert "bound 10" in found[-1].reason


@pytest.mark.parametrize(
    "piece",
    [
        "rcu ",
        "NVRM: The NVIDIA GPU 0000:05:00 ",
        "LustreError: ",
        "nvme0: timeout, ",
        "bond0: ",
        "AER: ",
        "oom-kill:task=",
        "EDAC 1 ",
        "INFO: task a:",
        "0x1 ",
        "Link ",
        "mlx5_0 ib0 ",
    ],
)
def test_a_hostile_line_costs_no_more_than_its_bound(piece: str) -> None:
    """Text made to provoke backtracking is looked at only so far."""
    line = f"[1.000000] NVRM: Xid (PCI:0018:01:00): 149, NETIR {piece * 6000}"
    began = time.perf_counter()
    read("\n".join([line, f"[1.000000] {piece * 6000}"] * 5))
    assert in_time(time.perf_counter() - began, 2.0)


@pytest.mark.system
@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.text(max_size=60),
            st.binary(max_size=40).map(lambda data: data.decode("latin-1")),
            st.builds(
                lambda code, text: f"[1.000000] NVRM: Xid (PCI:0000:05:00): {code}, {text}",
                st.integers(-5, 10**7),
                st.text(max_size=30),
            ),
            st.builds(lambda stamp: f"Feb {stamp} 25:61:61 h kernel: {XID}", st.integers(0, 99)),
            st.builds(lambda year: f"{year:04d}-13-45T99:99:99+99:99 h kernel: {XID}", st.integers(0, 9999)),
            st.builds(journal, st.none() | st.text(max_size=20) | st.lists(st.integers(-1, 300), max_size=5)),
            st.builds(
                lambda pairs: json.dumps({"_TRANSPORT": "kernel", **pairs}),
                st.dictionaries(
                    st.sampled_from(["MESSAGE", "__REALTIME_TIMESTAMP", "_HOSTNAME", "_BOOT_ID"]),
                    st.none() | st.integers() | st.text(max_size=5),
                ),
            ),
        ),
        max_size=8,
    ),
    st.none() | st.floats(),
)
@example(["4,1,99999999999999999999,-;" + XID], None)
@example([f"[99999999999.000000] {XID}", f"[Mon Feb 31 12:00:01 2025] {XID}"], AT)
def test_no_text_makes_the_reader_raise(lines: list[str], at: float | None) -> None:
    """Any lines give records or nothing; what comes out can be written and read back."""
    data = "\n".join(lines).encode("utf-8", "surrogatepass")
    kernel_log.sniff(data, "x")
    try:
        found = read(data, at=at)
    except Damaged:
        return
    for record in found:
        assert msgspec.json.encode(record)
