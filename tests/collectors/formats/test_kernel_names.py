"""A name that a user chose, inside a kernel's line, reports nothing: only what the kernel wrote does."""

from __future__ import annotations

import json

import pytest

from collectors.formats.kernel_log import kernel_lines
from collectors.records import KernelEvent
from tests.collectors.formats.test_kernel_lines import LINES, events

COMM = 15  # characters of a process's name
MORE = (
    "NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=python3, GPU has fallen off the bus.",
    "NVRM: The NVIDIA GPU 0000:9b:00.0 has fallen off the bus",
    "NMI watchdog: Watchdog detected hard LOCKUP on cpu 5",
    "rcu: INFO: rcu_sched self-detected stall on CPU",
    "{1}[Hardware Error]: event severity: fatal",
    "mce: [Hardware Error]: Machine check events logged",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0",
    "Memory failure: 0x1234: recovery action for dirty LRU page",
    "mce: CPUs not responding to MCE broadcast (may include false positives): 3",
    "I/O error, dev nvme0n1, sector 1 op 0x0:(READ)",
    "nfs: server fs01 OK",
    "LustreError: 167-0: fs-MDT0000-mdc-ff: This client was evicted by fs-MDT0000",
    "Lustre: fs-OST0001-osc-ff: Connection to fs-OST0001 (at 10.0.0.1@tcp) was lost; in progress operations",
    "Oops: 0002 [#1] SMP",
    "nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context",
    "bond0: (slave eth0): link status definitely down, disabling slave",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/a,task=python3,pid=1,uid=0",
    "e1000e: eth0 NIC Link is Down",
    "ib0: Link down",
    "ib0: Link Down",
    "Oops: 1",
    "BUG: Bad page",
    "mlx5_0: timeout",
    "EDAC M: 1 UE",
    "I/O error, dev",
)
TEXTS = sorted({line for line, _ in LINES} | set(MORE))

# Lines of the kernel with {} where a user's name stands. Of what is not cut the user chooses up to 255 characters.
WITH_PATHS = (
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,global_oom,task_memcg=/user.slice/{},task=python3,pid=42,uid=7",
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset={},global_oom,task_memcg=/user.slice,task=python3,pid=42,uid=7",
    "Task in /user.slice/{} killed as a result of limit of /user.slice",
    "Memory cgroup stats for /user.slice/{}: cache:0KB rss:1KB",
    "cgroup: fork rejected by pids controller in /user.slice/{}",
    "python3[42]: segfault at 7f ip 00007f0000000000 sp 00007f0000000000 error 4 in {}[7f0000000000+1000]",
    "process '{}' started with executable stack",
    "overlayfs: failed to resolve '{}': -2",
    'audit: type=1400 audit(1.1:1): apparmor="DENIED" operation="open" name="{}" pid=42 comm="x"',
    "UDF-fs: INFO Mounting volume '{}', timestamp 2026/01/01 00:00",
    "LustreError: 42:0:(client.c:1:request()) @@@ failed rc 0/-1 job:'{}'",
)
WITH_COMMS = (
    "{} invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
    "{}: page allocation failure: order:0, mode:0x0",
    "{} (42): drop_caches: 3",
    "{}[42]: segfault at 7f ip 00007f0000000000 sp 00007f0000000000 error 4 in libc.so.6[7f0000000000+1000]",
    "traps: {}[42] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f0000000000+1000]",
    "traps: {}[42] trap invalid opcode ip:7f sp:7f error:0",
    "INFO: task {}:42 blocked for more than 120 seconds.",
    "watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [{}:42]",
    "Out of memory: Killed process 42 ({}) total-vm:1kB",
    "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task_memcg=/a,task={},pid=42,uid=7",
    "XFS (dm-0): {}(42) possible memory allocation deadlock size 1 in kmem_alloc",
    "CPU: 1 PID: 42 Comm: {} Not tainted 6.8.0",
    "Memory failure: 0x12: Sending SIGBUS to {}:42 due to hardware memory corruption",
    "futex_wake_op: {} tries to shift op by -1; fix this program",
    "mmap: {} (42): VmData 4096 exceed data ulimit 1. Update limits or use boot option ignore_rlimit_data.",
)


def reported(text: str, *, device: bool = True) -> list[object]:
    """What a line reports, without the names in it."""
    hidden = {"text": "", "process": None, **({} if device else {"device": None})}
    found = [{**_fields(event), **hidden} for event in events(f"[1.000000] {text}")]
    return [sorted(fields.items(), key=lambda item: item[0]) for fields in found]


def _fields(event: KernelEvent) -> dict[str, object]:
    return {name: getattr(event, name) for name in event.__struct_fields__}


@pytest.mark.parametrize("line", WITH_PATHS)
def test_a_path_that_reads_like_an_event_is_none(line: str) -> None:
    """The line gives what it gives with an innocent path."""
    innocent = reported(line.format("x"), device=False)
    for text in TEXTS:
        for name in (text, f"a {text}", f"{text},task=x,pid=1,uid=0", f",task=x,pid=1,uid=0 {text}"):
            assert reported(line.format(name[:255]), device=False) == innocent


@pytest.mark.parametrize("line", WITH_COMMS)
def test_a_process_that_is_named_like_an_event_is_none(line: str) -> None:
    """Every piece of every line that fits into a process's name is tried."""
    innocent = [kernel_lines.event(line.format("python3"))]
    for text in TEXTS:
        for at in range(len(text)):
            found = kernel_lines.event(line.format(text[at : at + COMM]))
            assert _anonymous(found) == _anonymous(innocent[0]), text[at : at + COMM]


def _anonymous(fields: dict[str, object] | None) -> dict[str, object] | None:
    return fields and {**fields, "text": "", "process": None}


def test_a_name_in_an_nvlink_xid_is_no_severity() -> None:
    """The process's name stands before the driver's own words."""
    line = "NVRM: Xid (PCI:0018:01:00): 145, pid=1, name={}, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)"
    expected = {"unit": "RLW_RXPIPE", "severity": "nonfatal", "link": 13}
    for name in ("python3", "fatal", "a, Fatal", "x', link 5", "link fatal", "a,Fatal link 7"):
        found = kernel_lines.event(line.format(name)) or {}
        assert {key: found.get(key) for key in expected} == expected, name


def test_a_summary_that_the_kernel_cut_names_no_process() -> None:
    """A path so long that the line ends inside it could end as the line would."""
    cut = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task_memcg=/" + "a" * 1000
    assert kernel_lines.event(f"{cut[:950]},task=x,pid=1,uid=0") is None


def test_journald_says_who_wrote() -> None:
    """An identifier is its writer's word; the transport and the unit are journald's."""
    entry = {"__REALTIME_TIMESTAMP": "1748865601000000", "_TRANSPORT": "syslog", "_HOSTNAME": "n7"}
    for text, identifier in (
        ("NVRM: Xid (PCI:0000:05:00): 79, x", "kernel"),
        ("ib6: Lost carrier", "systemd-networkd"),
    ):
        said = {**entry, "MESSAGE": text, "SYSLOG_IDENTIFIER": identifier}
        assert events(json.dumps(said)) == []
        assert events(json.dumps({**said, "_SYSTEMD_UNIT": "user@1000.service"})) == []
    unit = {"_SYSTEMD_UNIT": "systemd-networkd.service", "SYSLOG_IDENTIFIER": "systemd-networkd"}
    (event,) = events(json.dumps({**entry, **unit, "MESSAGE": "ib6: Lost carrier"}))
    assert event.event == "link_down"
