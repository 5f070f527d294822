"""Kernel logs: /dev/kmsg records, dmesg in its forms, journald's JSON, and syslog text that carries kernel lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import msgspec

from collectors.formats import Input, reader
from collectors.formats.kernel_log import kernel_lines, kernel_times, mcelog, memory_lines
from collectors.formats.quotations import is_quoted
from collectors.formats.text_lines import lines
from collectors.records import KernelEvent, Record, Unread, pci_address

EVENTS_LIMIT = 500_000  # events of one file; a driver that prints without end must not fill the memory
SNIFF_LINES = 300
PIECES_LINES = 8  # a message that the driver prints in pieces lies within so many lines
TRACE_LINES = 60  # lines of a hung task's stack that are looked at
CARRIER_TAGS = ("systemd-networkd", "NetworkManager")  # user-space services that report a port's carrier

_REPEATED = re.compile(r"message repeated (\d{1,9}) times: \[ ?(.*)\]\s*$", re.DOTALL)
_LAST_REPEATED = re.compile(r"last message repeated (\d{1,9}) times?\b")
_BOOT = re.compile(r"-- Boot ([0-9a-f]{32}) --")
_GPU_NAMED = re.compile(
    r"NVRM:\s+(?:The NVIDIA )?GPU (?:at )?((?:PCI:)?[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)"
)
_LOST_PIECE = re.compile(r"NVRM:\s+(?:GPU has )?fallen off the bus\b")
_TRACE = re.compile(  # older kernels write the address first; ARM "[<80a8>] (callee) from [<8015>] (caller+0x14/0x3c)"
    r"^\s*(?:\[<[0-9a-f]{8,16}>\] )?(?:\([\w.]{1,100}\) from \[<[0-9a-f]{8,16}>\] \()?(?:\? )?"
    r"([A-Za-z_][\w.]{0,100})\+0x[0-9a-f]+/0x[0-9a-f]+\)?(?: \[(\w{1,40})\])?"
)
_CUT_FRAME = re.compile(
    r"^\s*\[<[0-9a-f]{8,16}>\] (?:\? )?([A-Za-z_][\w.]{3,100})(?:\+0x[0-9a-f/x]{0,16})?$"
)  # a paste's end
_TRACE_HEAD = re.compile(
    r"^\s*(?:Call Trace|<TASK>|</TASK>|task:|Workqueue:|\"echo 0|RIP:|R[A-D]X:|ORIG_RAX|CPU:)|"
    r"[Tt]ainted|^\S.{0,40}\sD\s+[0-9a-fx ]{8,80}$|"
    r"^\s*[0-9a-f]{8,16}(?: [0-9a-f]{8,16}){0,7}\s*$"  # words of the stack, which kernels before 4.11 print
)
_WAITS_FOR = (  # what a blocked task waits for, by its stack: file systems of other machines first
    ("nfs", re.compile(r"nfs|\brpc_|xprt_|\bsunrpc\b")),
    (
        "lustre",
        re.compile(r"lustre|ptlrpc|\bll_|osc_|cl_sync|cl_lock|ldlm_|\b(?:obdclass|mgc|mdc|lmv|lov|osc|llite|lnet)\b"),
    ),
    ("ceph", re.compile(r"ceph")),
    ("gpfs", re.compile(r"mmfs|gpfs|cxi")),
    ("cifs", re.compile(r"cifs|\bsmb2_")),
    ("beegfs", re.compile(r"beegfs|[Ff]hgfs")),
    ("weka", re.compile(r"weka")),
    ("zfs", re.compile(r"\b(?:zfs|spl|zio|dmu|txg|arc|spa)_|\bzfs\b")),
    ("9p", re.compile(r"\bp9_|v9fs|9pnet")),
    ("fuse", re.compile(r"fuse_")),
    (
        "gpu driver",
        re.compile(
            r"\b(?:amdgpu|nouveau|i915|amdkfd|drm_kms_helper|ttm)\b|amdgpu_|nouveau_|i915_|drm_atomic|dma_fence_"
        ),
    ),
    ("nvidia", re.compile(r"_nv\d+rm|nvidia|uvm_|nv_")),
    ("block", re.compile(r"blk_|ext4_|xfs_|jbd2_|btrfs_|submit_bio")),
)
UNKNOWN_WAIT = len(_WAITS_FOR)
_SERVICES = re.compile(  # a log with their lines is a machine's, not a program's
    r"kernel|systemd(?:-\w+)?|NetworkManager|sshd|CRON|cron|dockerd|containerd|kubelet|rsyslogd|dbus-daemon|chronyd|"
    r"nvidia-[\w-]+|nv-fabricmanager|audit|sudo|slurmd|earlyoom"
)
_KERNEL_WORDS = re.compile(
    r"Linux version|Command line:|NVRM|nvidia|pci |pcieport|Call Trace|systemd\[|usb |nvme|audit:|IPv6:|ACPI|BIOS|mlx5|EXT4|XFS|"
    r"clocksource|CPU\d*:|CPU: |Tainted|eth\d|random:|x86/|smpboot|docker0|veth|INFO: task|segfault|Memory:|cgroup|nfs:"
)
OF_JOBS = (
    " NCCL WARN ",
    " NCCL INFO ",
    "_mlx5_log.c:",
    " UCX ",
)  # in brackets, their stamps look like dmesg's, and they name the same cards
ANYONES = ("", "dmesg iso", kernel_times.ODD)  # such a prefix is that of many a program, too
_BARE = (
    "NVRM: ",
    "nvidia-nvswitch",
    "XID ",
    "pcieport 0",
    "amdgpu 0",
    "|  ",  # nvidia-smi's table
    "xe 0",
    "i915 0",
    "nvidia: probe of ",
    "infiniband ",
    "bnxt_",
    "irdma 0",
    "efa 0",
    "NETDEV WATCHDOG: ",
    "habanalabs 0",
    "[drm:",
    "[drm] *ERROR*",
    "[drm] GPU HANG",
    "[drm ERROR :",
    "amdgpu: ",
    "drmn0: ",
    "BUG: kernel NULL pointer",
    "BUG: unable to handle",
    "RIP: ",
    "IP: [<",
    "Kernel panic - not syncing",
    "watchdog: BUG: soft lockup",
    "BUG: soft lockup - CPU#",
    "INFO: task ",
    "Out of memory: Killed process ",
    "Memory cgroup out of memory: Killed process ",
    "Out of memory: Kill process ",
    "Memory cgroup out of memory: Kill process ",
    "nfs: server ",
    "LustreError: ",
    "Lustre: ",
    "LNet: ",
    "LNetError: ",
    "CIFS: VFS: ",
    "EXT4-fs ",
    "XFS (",
    "blk_update_request: ",
    "Killed process ",
    "earlyoom: sending SIG",
    "sending SIGTERM to process ",
    "sending SIGKILL to process ",
    "oom-kill:constraint=",
    "mlx5_core 0",
    "mce: [Hardware Error]",
    "EDAC MC",
)  # driver lines pasted without their prefix
_QUOTED = re.compile(  # of the node problem detector, whatever it says; of others, what is a driver's
    r"""(?:kernel-monitor(?:, [\w.-]{1,63})?\s{1,8}(?=\S)|(?:["'|=]|Message:|kernel: \[[ \d.]{1,20}\]|["'\w\]]: |\s{2}) ?"""
    r"""(?=(?:NVRM: Xid \(|XID \d{1,3}\b.{0,200}? detected on )))"""
)
_OF_FILE_OR_HOST = (
    re.compile(  # what grep writes before the lines of several files, and pdsh before those of several hosts
        r"(?:/?(?:[\w.@+-]{1,80}/){0,8}[\w.-]{0,40}?(?:log|messages|dmesg)[\w.-]{0,20}:(?:\d{1,9}:)?|"
        r"(?P<host>[A-Za-z0-9][\w.-]{0,62}): )(?=\S)"
    )
)
_OF_PROGRAM = re.compile(
    r"\s{0,12}(?:\{[\"&]|\"\w{1,30}\": |\w{1,30}=|\[?\d{4}[-/]\d\d[-/]\d\d[T ]|[IWEF]\d{4} \d\d:|"
    r"(?=[\w./-]{0,63}[\d-])[\w./-]{1,63}: |(?:dmesg|kernel|journalctl): |(?:[\w() ]{1,40} )?Warning\s{1,8}\w{1,60}\s|time=|"
    r"\d\d:\d\d:\d\d(?:\.\d{1,9})?\s{2})"
)
"""A line of the kernel within one of another program, such as gpud or kubectl: a string, a column, or behind a colon."""
_JOURNAL = re.compile(rb'^\x1e?\{.{0,4096}"(?:__REALTIME_TIMESTAMP|__MONOTONIC_TIMESTAMP|_TRANSPORT)"', re.DOTALL)


def sniff(head: bytes, _source: str) -> int:
    """Score how surely these bytes are a kernel log: by the prefixes of their lines, with or without a GPU's line."""
    if _JOURNAL.match(head):
        return 95
    shown = [line for line in head.decode("utf-8", "replace").splitlines()[:SNIFF_LINES] if line.strip()]
    shown = [line for line in shown if not any(mark in line for mark in OF_JOBS)]
    parsed = [kernel_times.split(line) for line in shown if not line.startswith((" ", "-- "))]
    marked = [line.form or "bare" for line in parsed if line.form or line.text.startswith(_BARE)]
    if not marked or len(marked) * 2 < len(parsed):
        return 0
    forms = {form: marked.count(form) for form in marked}
    serving = any(line.form and _SERVICES.fullmatch(line.tag) for line in parsed)
    return _certainty(max(sorted(forms), key=lambda form: forms[form]), shown, serving=serving)


def _certainty(form: str, shown: list[str], *, serving: bool) -> int:
    if form == "kmsg":
        return 90
    kernel_words = any(_KERNEL_WORDS.search(line) for line in shown)
    if form in ("syslog", "tag"):
        return 75 if serving else 0
    if form == "bare":
        return 60
    if form in ("dmesg", "dmesg -T", "dmesg -H", "dmesg -x"):
        return 80 if kernel_words else 40
    return 60 if kernel_words else 0


@reader(
    "kernel_log",
    made_by="dmesg, dmesg -T, journalctl -k -o json, cat /dev/kmsg, /var/log/kern.log or syslog",
    gives="Xid and SXid, GPUs lost, PCIe, NVLink and network link errors, OOM kills, lockups, hung tasks, disk errors",
    sniff=sniff,
    by_line=True,
)
def read(input: Input) -> Iterator[Record]:
    """Yield the events of a kernel log in its order; lines that report nothing give nothing."""
    parser = Parser(input)
    count = 0
    for number, line in lines(input.stream):
        for record in parser.feed(number, line):
            yield record
            count += 1
        if count >= EVENTS_LIMIT:
            reason = f"{count} kernel events by line {number}: the rest of the file was not read (bound {EVENTS_LIMIT}); cut it"
            yield Unread(source=input.source, reason=reason, outcome="limit")
            return
    yield from parser.end()


@dataclass(slots=True)
class Parser:
    """What must be remembered from line to line: messages in pieces, a hung task's stack, repeats, the boot.

    The live collector feeds it too: ``hung`` is an event that waits for its stack.
    """

    input: Input
    boot_id: str | None = None
    named_gpu: tuple[int, str] | None = None  # line number, PCI address of "The NVIDIA GPU …"
    hung: KernelEvent | None = None  # held back until its stack was seen
    hung_until: int = 0
    waits_for: int = UNKNOWN_WAIT
    are_shown: bool = False  # the tasks that wait are shown because sysrq asked: none of them need be blocked for long
    last: KernelEvent | None = field(default=None)
    mcelog_left: int = 0  # further lines that a report of mcelog may have
    invoked: KernelEvent | None = None  # that the kernel looks for a process to kill: its line about the kill says more
    last_oom: tuple[int, int] = (0, -1)  # line number, pid: the kernel reports one kill in two lines

    @property
    def busy(self) -> bool:
        """True inside a hung task's stack, or a report of mcelog."""
        return self.hung is not None or self.mcelog_left > 0

    def might_take(self, line: str) -> bool:
        """Return, quickly, whether a line may be evidence, for nearly none is."""
        return self.busy or _notable(line)

    def feed(self, number: int, line: str) -> Iterator[KernelEvent]:
        """Take one line; yield the events that are complete with it."""
        if not self.might_take(line):
            return
        if line.startswith((" ", "\t")) and (text := line.lstrip()).startswith(_BARE):
            line = text  # dmesg indents what follows the first line of one message
        severity, self.mcelog_left = mcelog.severity(line, self.mcelog_left)
        if severity:
            source = f"{self.input.source}:{number}"
            yield KernelEvent(event="mce", severity=severity, text=line.strip(), source=source, node=self.input.node)
            return
        if boot := _BOOT.match(line):
            self.boot_id = boot[1]
        split = kernel_times.split(line)
        if (
            not split.form
            and (of := _OF_FILE_OR_HOST.match(line))
            and (within := kernel_times.split(line[of.end() :])).form
        ):
            split = replace(within, host=within.host or of["host"])
        if split.form in ANYONES and (quoted := _carried(line[: kernel_lines.LOOK_LIMIT])):
            split = replace(split, text=line[quoted.end() :].rstrip("\"'}] ,"), form="quoted")
        elif not split.form and not line.startswith(_BARE) and not line.rstrip().endswith("(rev ff)"):
            if self.hung is not None and _TRACE.match(line):
                yield from self._trace(number, split)
            return
        if split.form == "kmsg" and line.startswith(" "):
            return
        if self.hung is not None:
            yield from self._trace(number, split)
        event = self._event(number, split)
        if event is None:
            return
        if event.event == "hung_task":
            if event.seconds is None and (number < self.hung_until or self.are_shown):
                return  # the second line of a report
            self.hung, self.hung_until, self.waits_for = event, number + TRACE_LINES, UNKNOWN_WAIT
            return
        self.last = event
        yield event

    def end(self) -> Iterator[KernelEvent]:
        """Yield what was still held back."""
        yield from self._release()
        if self.invoked is not None:
            yield self.invoked
            self.invoked = None

    def _trace(self, number: int, line: kernel_times.KernelLine) -> Iterator[KernelEvent]:
        frame = _TRACE.match(line.text) or _CUT_FRAME.match(line.text)
        if frame:
            words = " ".join(filter(None, frame.groups()))
            rows = (row for row, (_, pattern) in enumerate(_WAITS_FOR) if pattern.search(words))
            self.waits_for = min(self.waits_for, next(rows, UNKNOWN_WAIT))
        if number > self.hung_until or not (frame or _TRACE_HEAD.search(line.text)):
            yield from self._release()

    def _release(self) -> Iterator[KernelEvent]:
        if self.hung is not None:
            device = None if self.waits_for == UNKNOWN_WAIT else _WAITS_FOR[self.waits_for][0]
            self.last = msgspec.structs.replace(self.hung, device=device)
            self.hung = None
            yield self.last

    def _event(self, number: int, line: kernel_times.KernelLine) -> KernelEvent | None:
        text, repeats = line.text, 1
        if repeated := _REPEATED.match(text):
            text, repeats = repeated[2], int(repeated[1])
        elif (again := _LAST_REPEATED.match(text)) and self.last is not None:
            return self._stamped(number, line, {"repeats": max(int(again[1]), 1)}, self.last)
        fields = self._in_pieces(number, text) or kernel_lines.event(text)
        if fields is None or not _trusted(line, fields) or self._same_kill(number, fields):
            return None
        if fields["event"] == kernel_lines.OOM_INVOKED:
            self.invoked = self._stamped(number, line, fields, KernelEvent(event=fields["event"]))
            return None
        if fields["event"] == kernel_lines.TASKS_SHOWN:
            self.are_shown = True
            return None
        times = max(repeats, 1) * fields.pop("repeats", 1)
        return self._stamped(number, line, {**fields, "repeats": times}, KernelEvent(event=fields["event"]))

    def _same_kill(self, number: int, fields: kernel_lines.Fields) -> bool:
        if fields["event"] != "oom_kill":
            return False
        self.invoked = None
        before, pid = self.last_oom
        self.last_oom = (number, fields["pid"])
        return pid == fields["pid"] and number - before <= TRACE_LINES

    def _in_pieces(self, number: int, text: str) -> kernel_lines.Fields | None:
        """Join "The NVIDIA GPU 0000:b3:00.0" and, lines later, "fallen off the bus and is not responding"."""
        if "NVRM" not in text or "Xid" in text:
            return None
        if _LOST_PIECE.match(text) and self.named_gpu is not None and number - self.named_gpu[0] <= PIECES_LINES:
            pci, self.named_gpu = self.named_gpu[1], None
            code = kernel_lines.OFF_BUS_XID
            return {"event": "off_bus", "code": code, "pci": pci, "text": text[: kernel_lines.TEXT_LIMIT].strip()}
        if named := _GPU_NAMED.match(text):
            self.named_gpu = (number, pci_address(named[1]))
        return None

    def _stamped(
        self, number: int, line: kernel_times.KernelLine, fields: kernel_lines.Fields, onto: KernelEvent
    ) -> KernelEvent:
        """Put time, node and source on an event's fields."""
        at = line.at
        if at is None and line.yearless_at is not None:
            at = kernel_times.dated(line.yearless_at, self.input.dated_by)
        return msgspec.structs.replace(
            onto,
            **fields,
            source=f"{self.input.source}:{number}",
            at=at,
            yearless_at=line.yearless_at,
            monotonic_at=line.monotonic_at,
            boot_id=line.boot_id or self.boot_id,
            node=self.input.node or line.host,
        )


def _carried(line: str) -> re.Match[str] | None:
    """Find a kernel's line that a program reports in one of its own; in a sentence, a sample or a document it is quoted."""
    found = _QUOTED.search(line) if _OF_PROGRAM.match(line) else None
    return None if found is None or is_quoted(line, found.end()) else found


def _notable(line: str) -> bool:
    """Whether a line is worth splitting, decided in a microsecond: in a log of 100 MB hardly any is."""
    if (
        kernel_lines.worth_a_look(line)
        or "last message repeated" in line
        or line.startswith(("-- Boot", *mcelog.HEADINGS))
    ):
        return True
    return line.startswith(("{", "\x1e{")) and '"MESSAGE":[' in line.replace(" ", "")  # the text is in byte values


def _trusted(line: kernel_times.KernelLine, fields: kernel_lines.Fields) -> bool:
    """Only the kernel's own lines are evidence: any user may write "NVRM: Xid" to syslog under another tag."""
    if line.tag == kernel_times.KERNEL:
        return True
    return (line.tag in CARRIER_TAGS and fields["event"] in ("link_down", "link_up")) or (
        line.tag in memory_lines.SERVICES and fields["event"] == "oom_kill"
    )
