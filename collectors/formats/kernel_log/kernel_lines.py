"""The event in one line of kernel text: an Xid, a lost GPU, a PCIe or link error, a stuck or killed process, a failing disk.

``event(text)`` returns the fields of a ``KernelEvent`` or None. It knows neither the line's time nor its neighbours.
Forms were taken from driver and kernel sources and from logs in the open; where they differ by version all are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from collectors.formats.kernel_log import gpu_lines, memory_lines, nic_lines, storage_lines
from collectors.records import pci_address

Fields = dict[str, Any]

OFF_BUS_XID = 79
NVLINK5_XIDS = range(144, 151)
NVLINK_XID = 74
ERR_FATAL = 2
CLEANUP_XID = 45
TASKS_SHOWN = "tasks_shown"  # no event: sysrq asked for the stacks of the tasks that wait just now
HOST_BRIDGE = "0000:00:00"  # no GPU has this address: who writes a line as an example does
OF_GPUS = frozenset({"xid", "off_bus", "gpu_lost", "gpu_uncorrected", "gpu_reset"})
OOM_INVOKED = "oom_invoked"  # who asked for memory; the line of the kill, some dozens below it, says more
LOOK_LIMIT = 2048  # characters looked at: bounds what a pattern can cost on a hostile line
TEXT_LIMIT = 600  # characters kept of a line; a hung task's name or a garbled line may be longer
REGISTERS_LIMIT = 16

_PCI = gpu_lines.PCI
_PORT = r"((?:ib|eth|en|mlx|bond|rdma|roce|hsn)[A-Za-z0-9._@-]{0,30})"  # not veth, cali, docker, br-: those come and go


def worth_a_look(text: str) -> bool:
    """Whether a line may report an event, quickly: nearly all lines of a kernel log hold none of the words."""
    return any(word in text for word in WORDS)


def is_example(text: str) -> bool:
    """Whether a driver's line is about an address that no GPU has, as in documents and tests."""
    return HOST_BRIDGE in text and "NVRM: " in text


def event(text: str) -> Fields | None:
    """Return what this line reports, as the fields of a kernel event, or None for a line that reports nothing here."""
    text = text[:LOOK_LIMIT].lstrip()
    by_process = _BY_PROCESS.match(text) is not None
    for words, pattern, read in _READINGS:
        if by_process and read not in (_segfault, _oom_invoked):
            continue
        if any(word in text for word in words) and (found := pattern.match(text)):
            fields = read(found)
            if fields is None or (fields["event"] in OF_GPUS and fields.get("pci") == HOST_BRIDGE):
                return None
            return {"text": text[:TEXT_LIMIT].strip(), **fields}
    return None


_PID = re.compile(r"^pid='?(\d{1,10}|<unknown>)'?(?:,\s*|$)")
_ORIGIN = re.compile(r"caused by previous Xid (\d{1,5})\b")
_NAME = re.compile(r"^name='?([^,']*)'?(?:,\s*|$)")
_AFTER_NAME = re.compile(r"^name='?.{0,15}'?(?:,\s*|$)")  # the longest a name can be: it may hold commas itself
_SEVERITY = re.compile(r"\b(link[ -]?fatal|non-?fatal|fatal)\b", re.IGNORECASE)
_LINK = re.compile(r"\blink\s*(-?\d{1,5})", re.IGNORECASE)
_REGISTERS = re.compile(r"[(\[]\s*((?:0x[0-9a-fA-F]{1,16}[\s,]*){1,32})[)\]]")


def _xid(found: re.Match[str]) -> Fields | None:
    code, rest = int(found[2]), (found[3] or "").strip()
    if code == 0:
        return None
    fields: Fields = {"event": "xid", "code": code, "pci": pci_address(found[1])}
    if pid := _PID.match(rest):
        fields["pid"] = int(pid[1]) if pid[1].isdigit() else None
        rest = rest[pid.end() :]
    if name := _NAME.match(rest):
        fields["process"] = name[1] if name[1] not in ("", "<unknown>") else None
    if code == CLEANUP_XID and (origin := _ORIGIN.search(rest)):
        fields["code"] = code = int(origin[1])  # a channel is torn down after it: the fault that the line is about
    if code in NVLINK5_XIDS or code == NVLINK_XID:
        fields |= _nvlink(code, _AFTER_NAME.sub("", rest))
    return fields


def _nvlink(code: int, rest: str) -> Fields:
    """Read the unit, severity word, link and registers of an NVLink Xid, each where it is present."""
    fields: Fields = {}
    severity = _SEVERITY.search(rest)
    if severity:
        fields["severity"] = _severity_word(severity[1])
        if code in NVLINK5_XIDS and (unit := rest[: severity.start()].strip(" ,:")):
            fields["unit"] = unit[:64]
    elif code in NVLINK5_XIDS and (unit_word := re.match(r"[A-Z][A-Z0-9_/]{2,40}\b", rest)):
        fields["unit"] = unit_word[0]
    if link := _LINK.search(rest):
        fields["link"] = int(link[1])
    if registers := _REGISTERS.search(rest):
        values = re.findall(r"0x[0-9a-fA-F]+", registers[1])[:REGISTERS_LIMIT]
        fields["status"] = tuple(int(value, 16) for value in values)
    return fields


def _severity_word(word: str) -> str:
    squeezed = word.lower().replace("-", "").replace(" ", "")
    return {"linkfatal": "link fatal", "nonfatal": "nonfatal"}.get(squeezed, "fatal")


def _sxid(found: re.Match[str]) -> Fields | None:
    rest = found[4] or ""
    if re.match(r"\s*(?:Severity \d|Data \{)", rest):
        return None  # the second and third lines of the same error
    severity, link = _SEVERITY.search(rest), _LINK.search(rest)
    return {
        "event": "sxid",
        "device": found[1],
        "pci": pci_address(found[2]),
        "code": int(found[3]),
        "severity": _severity_word(severity[1]) if severity else None,
        "link": int(link[1]) if link else None,
    }


def _off_bus(found: re.Match[str]) -> Fields:
    return {"event": "off_bus", "code": OFF_BUS_XID, "pci": pci_address(found[1])}


def _identity(found: re.Match[str]) -> Fields:
    return {"event": "gpu_identity", "pci": pci_address(found[1]), "gpu_uuid": found[2]}


def _aer(found: re.Match[str]) -> Fields:
    """Read AER's severity as corrected, nonfatal or fatal; the device is the reporting driver's name."""
    words = found["severity"].lower()
    severity = "corrected" if words.startswith("correct") else "nonfatal" if re.search("non-?fatal", words) else "fatal"
    pci = found["late"] or found["pci"]  # "received: 0000:9b:00.0" names the failing device, not the port above it
    return {"event": "aer", "severity": severity, "device": found["driver"], "pci": pci_address(pci) if pci else None}


def _dpc(found: re.Match[str]) -> Fields:
    """Read why a port contained an error (DPC Status, bits 2:1 of PCIe 6.2.11): 2 is a fatal one that its device sent."""
    severity = "fatal" if int(found["status"], 16) >> 1 & 3 == ERR_FATAL else "nonfatal"
    pci = found["late"] or found["pci"]
    return {"event": "aer", "severity": severity, "device": found["driver"], "pci": pci_address(pci) if pci else None}


def _driver_link(found: re.Match[str]) -> Fields:
    down = found["state"].lower() == "down"
    pci = pci_address(found["pci"]) if found["pci"] else None
    return {"event": "link_down" if down else "link_up", "device": found["port"], "pci": pci}


def _carrier(found: re.Match[str]) -> Fields:
    return {"event": "link_down" if found[2].lower() == "lost" else "link_up", "device": found[1]}


def _oom(found: re.Match[str]) -> Fields:
    scope = "cgroup" if found["memcg"] else "global"
    return {"event": "oom_kill", "pid": int(found["pid"]), "process": found["name"], "severity": scope}


def _oom_invoked(found: re.Match[str]) -> Fields:
    return {"event": OOM_INVOKED, "process": found["name"]}


def _soft_lockup(found: re.Match[str]) -> Fields:
    process, pid = found["name"], found["pid"]
    return {
        "event": "soft_lockup",
        "seconds": float(found["seconds"]),
        "process": process,
        "pid": int(pid) if pid else None,
    }


def _hung_task(found: re.Match[str]) -> Fields:
    return {"event": "hung_task", "process": found[1], "pid": int(found[2]), "seconds": float(found[3])}


def _segfault(found: re.Match[str]) -> Fields:
    return {"event": "segfault", "process": found["name"], "pid": int(found["pid"]), "device": found["device"]}


def _named(name: str, severity: str | None = None) -> Callable[[re.Match[str]], Fields]:
    """Build a reading for a pattern whose only content is that it occurred, and on what (group ``device``)."""

    def read(found: re.Match[str]) -> Fields:
        device = found.groupdict().get("device")
        return {"event": name, **({"severity": severity} if severity else {}), **({"device": device} if device else {})}

    return read


def _corrected(found: re.Match[str]) -> Fields:
    return {"event": "mce", "severity": "corrected", "device": found["device"], "repeats": int(found["count"])}


def _unrecovered(found: re.Match[str]) -> Fields | None:
    return {"event": "aer_unrecovered", "device": found["driver"], "pci": pci_address(found["pci"])}


def _machine_check(found: re.Match[str]) -> Fields:
    """Read a bank's status: corrected, or not; where nothing used the value, no exception stopped the processor."""
    status = int(found["status"], 16)
    if not status & _UNCORRECTED:
        return {"event": "mce", "severity": "corrected"}
    if status & _CONTEXT_CORRUPT:
        return {"event": "mce", "severity": "fatal"}
    return {"event": "mce", "severity": "uncorrected" if found["stopped"] else "recoverable"}


def _ghes(found: re.Match[str]) -> Fields:
    word = found[1].lower()
    return {"event": "mce", "severity": "corrected" if word in ("corrected", "info") else word}


_OWNER = (  # "pcieport 0000:02:00.0: "
    r"(?:(?P<driver>[\w-]{1,32}) (?P<pci>[0-9a-f:]{7,13}\.\d): |[\w-]{1,32}(?: [\w.:-]{1,40})?: )?"
)
_AER_SEVERITY = r"(?P<severity>[Cc]orrect\w+|[Uu]ncorrect\w+ ?\([\w-]+\)|Non-?[Ff]atal|Fatal)"
_AER_FROM = r" error(?: message)? received(?:: | from )(?P<late>[0-9a-f:]{7,13}\.\d)"
_NAMED_PORT = r"(?P<port>(?:ib|eth|en|mlx|bond|rdma|roce|hsn)[A-Za-z0-9._@-]{0,30})"
_LINK_STATE = r"(?: NIC)?:? (?:NIC )?Link (?:is )?(?P<state>[Uu]p|[Dd]own|DOWN|UP)\b"
_NIC = (  # "mlx5_core 0000:5d:00.0 ", "e1000e: ", "igb 0000:01:00.0 eno1: igb: "
    r"(?:[\w-]{1,20}:? )?(?:(?P<pci>[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d):? )?(?:[\w.@-]{1,32}: ){0,3}"
)
_HARDWARE = r"(?:mce: )?(?:\{\d{1,10}\})?(?:\[Hardware Error\]:\s{1,4})?"
_WATCHDOG = r"(?:NMI )?(?:watchdog: )?"
_UNCORRECTED, _CONTEXT_CORRUPT = 1 << 61, 1 << 57  # of a bank's status, as of Intel's and AMD's manuals
_MACHINE_CHECK = (
    rf"{_HARDWARE}(?:Machine check: Processor context corrupt|Uncorrected hardware memory error|Uncorrected, software|"
    r"CPUs not responding to MCE)|EDAC [\w ]{1,32}: \d+ UE\b|Memory failure: 0x"
)
_KILLED = (
    r"(?P<memcg>Memory cgroup )?(?:[\w() ]{1,60}: )?Kill(?:ed)? process (?P<pid>\d{1,10}),? \((?P<name>[^)]{0,64})\)"
)
# The line names two cgroups before the task. Its end is the kernel's own, unless the kernel cut it (at 976 characters).
_OOM_SUMMARY = (
    r"oom-kill:(?P<memcg>constraint=CONSTRAINT_MEMCG)?.{0,800},task=(?P<name>.{0,64}?),"
    r"pid=(?P<pid>\d{1,10})(?:,uid=\d{1,10})?\s*\Z"
)
_FAULTED = (
    r"(?:traps: )?(?!process '|Task in )(?P<name>.{1,15})\[(?P<pid>\d{1,10})\](?: trap)?:? (?:segfault at|general protection)"
    r"(?:.{0,120}? in (?P<device>[\w.+-]{1,80})\[)?"
)
_GSP_SILENT = (
    r"NVRM: .{0,100}?(?:GSP RM heartbeat timed out|GSP RPC timeout detected|waiting for RPC response from GSP|"
    r"_kgspIsHeartbeatTimedOut: Heartbeat timed out|_kgspLogRpcTimeout: |GSP-CrashCat Report|"
    r"rpcRecvPoll timedout for fn|\[NV_ERR_RESET_REQUIRED\])"
)
# Words (one of them is in the text, or the pattern is not tried), pattern, reading. The first that matches decides.
# Every pattern begins where the text begins: the rest of a line may hold a name that a user chose.
_PATTERNS: tuple[tuple[tuple[str, ...], str, Callable[[re.Match[str]], Fields | None]], ...] = (
    (("SXid",), r"nvidia-(nvswitch\d+):? SXid \(" + _PCI + r"\):? (\d{1,6})(?:,(.*))?", _sxid),
    (
        ("Xid (",),
        r"NVRM:\s+Xid \("
        + _PCI
        + r"\):\s*(\d{1,5})(?:,(?! (?:which|this|that|it|and|or|but|so|the)\b)(.*)|[\s\W]{0,8}$)",
        _xid,
    ),
    (
        (" detected on ",),
        r"XID (?P<code>\d{1,3})(?:\.\d{1,3})?\b.{0,200}? detected on (?:GPU )?" + _PCI,
        lambda found: {"event": "xid", "code": int(found["code"]), "pci": pci_address(found[2])},
    ),
    (
        ("GSP", "_kgsp", "rpcRecvPoll timedout", "NV_ERR_RESET_REQUIRED"),
        _GSP_SILENT,
        _named("gsp_timeout"),
    ),
    (("NVRM:",), r"NVRM:\s+GPU at " + _PCI + r":\s+(GPU-[0-9a-fA-F-]{8,40})", _identity),
    (("fallen off the bus",), r"NVRM:\s+GPU (?:at )?" + _PCI + r":?,? (?:GPU )?has fallen off the bus", _off_bus),
    (("fallen off the bus",), r"NVRM:\s+The NVIDIA GPU " + _PCI + r"[\s\S]{0,200}fallen off the bus", _off_bus),
    (
        ("RmInitAdapter failed", "rm_init_adapter failed"),
        r"NVRM:\s+(?:RmInitAdapter failed!|rm_init_adapter failed for)",
        _named("gpu_lost"),
    ),
    *gpu_lines.ROWS,
    (("NVRM: API mismatch",), r"NVRM: API mismatch: the client has the version", _named("driver_mismatch")),
    (
        ("RmInitAdapter failed",),
        r"NVRM:\s+GPU (?:at )?" + _PCI + r": RmInitAdapter failed",
        gpu_lines.of_gpu("gpu_lost"),
    ),
    (("PCIe Bus Error",), _OWNER + r"(?:AER: )?PCIe Bus Error: severity=(?P<severity>[^,]+)(?P<late>)", _aer),
    (("AER:",), _OWNER + "AER: (?:Multiple )?" + _AER_SEVERITY + _AER_FROM, _aer),
    (
        ("AER: can't recover",),
        r"(?P<driver>[\w-]{1,32}) (?P<pci>[0-9a-f:]{7,13}\.\d): AER: can't recover",
        _unrecovered,
    ),
    (
        ("DPC: containment",),
        _OWNER
        + r"DPC: containment event, status:0x(?P<status>[0-9a-f]{1,4})\b(?:.{0,40} received from (?P<late>[0-9a-f:]{7,13}\.\d))?",
        _dpc,
    ),
    *memory_lines.ROWS,
    ((" invoked oom-killer: ",), r"(?P<name>[\s\S]{1,15}?) invoked oom-killer: gfp_mask=0x", _oom_invoked),
    (("Killed process", "Kill process"), _KILLED, _oom),  # up to Linux 4.20 the first line says that it will
    (("oom-kill:",), _OOM_SUMMARY, _oom),
    (
        ("soft lockup",),
        _WATCHDOG
        + r"(?:BUG: )?soft lockup - CPU#\d+ stuck for (?P<seconds>\d{1,7})s!(?: \[(?P<name>.{0,64}):(?P<pid>\d{1,10})\])?",
        _soft_lockup,
    ),
    (
        ("hard LOCKUP",),
        _WATCHDOG + r"(?:CPU ?\d+:? )?(?:Watchdog )?(?:detected )?hard LOCKUP on cpu",
        _named("hard_lockup"),
    ),
    (
        ("stall",),
        r"(?:rcu: )?(?:INFO: )?rcu\w{0,32} (?:self-detected stall|detected (?:expedited )?stalls? on CPUs)",
        _named("rcu_stall"),
    ),
    (
        ("blocked for more than",),
        r"INFO: task (.{1,64}):(\d{1,10}) blocked for more than (\d{1,7}) seconds",
        _hung_task,
    ),
    (  # the line below it, where a paste begins there
        ("hung_task_timeout_secs",),
        r"\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message",
        _named("hung_task"),
    ),
    (  # the head of its stack, where a paste begins there
        ("state:D",),
        r"task:(?P<name>.{1,64}?) +state:D +stack: *\d{1,9} +pid: ?(?P<pid>\d{1,10}) ",
        lambda found: {"event": "hung_task", "process": found["name"], "pid": int(found["pid"])},
    ),
    (("Show Blocked State",), r"sysrq: Show Blocked State", _named(TASKS_SHOWN)),
    (("segfault at", "general protection"), _FAULTED, _segfault),
    (("carrier",), _PORT + r": ([Ll]ost|[Gg]ained) carrier", _carrier),
    ((" Link ",), _NIC + _NAMED_PORT + _LINK_STATE, _driver_link),
    (
        ("link status",),
        r"(?:bonding: )?(?P<port>bond[\w.]{0,20}): .{0,60}link status definitely (?P<state>up|down)(?P<pci>)",
        _driver_link,
    ),
    *nic_lines.ROWS,
    (("event severity",), _HARDWARE + r"event severity: (fatal|recoverable|corrected|info)", _ghes),
    (
        ("Machine check: Proc", "Uncorrected hardware", "Uncorrected, soft", " UE", "Memory failure", "MCE"),
        _MACHINE_CHECK,
        _named("mce", "uncorrected"),
    ),
    (
        ("Machine Check",),
        _HARDWARE
        + r"CPU \d{1,5}: Machine Check(?P<stopped> Exception)?: [0-9a-f]{1,16} Bank \d{1,3}: (?P<status>[0-9a-f]{16})\b",
        _machine_check,
    ),
    (
        (" CE ",),
        r"EDAC [\w ]{1,32}: (?P<count>\d{1,6}) CE (?:[\w ]{1,60} )?(?:error )?on (?P<device>\S{1,80}) \(",
        _corrected,
    ),
    (
        ("Machine check events", "EDAC", "[Hardware Error]: Corr"),
        _HARDWARE + r"(?:Machine check events logged|Corrected error)|EDAC [\w ]{1,32}: \d+ CE\b",
        _named("mce", "corrected"),
    ),
    *(((word,), pattern, _named(name)) for word, pattern, name in storage_lines.ROWS),
    (("Kernel panic",), r"Kernel panic - not syncing", _named("panic")),
    (
        ("kernel BUG", "BUG: ", "Oops: ", "general protection fault"),
        r"kernel BUG at|BUG: (?:unable to handle|kernel NULL|Bad page)|(?:Internal error: )?Oops: |general protection fault",
        _named("kernel_bug"),
    ),
    (("nvidia-peermem",), r"nvidia-peermem.*ERROR", _named("peermem")),
)
# Lines of the kernel that begin with the name of the process that caused them, 15 characters of the user's choice, or with a
# subsystem and that name (kernel/futex, mm/mmap.c).
_BY_PROCESS = re.compile(
    r"(?:futex_wake_op|mmap): |"
    r"(?!INFO: task )(?:traps: )?[\s\S]{1,15}?(?: invoked oom-killer:|: page allocation |: vmalloc |: unhandled signal |"
    r"(?:\[\d{1,10}\]| ?\(\d{1,10}\)|/\d{1,10})[: ])"
)
_READINGS = tuple((words, re.compile(pattern), read) for words, pattern, read in _PATTERNS)
WORDS = tuple(dict.fromkeys(word for words, _, _ in _READINGS for word in words))
