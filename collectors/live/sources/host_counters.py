"""The node's counters in /proc and /sys: processors, memory, pressure, disks, files, temperatures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from collectors.live import Readings
from collectors.live.sources.reporting import Row, tick
from collectors.live.sources.system_files import integer, names, number, pairs, text

DISKS_LIMIT = 64
NODES_LIMIT = 64  # of memory (NUMA)
SENSORS_LIMIT = 128

_CPU_STATES = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
_CPU_COUNTS = {
    "ctxt": "context_switches_total",
    "processes": "forks_total",
    "procs_running": "running_tasks",
    "procs_blocked": "blocked_tasks",
}
_LOADS = ("load_one_minute", "load_five_minutes", "load_fifteen_minutes")
_MEMORY_KIB = {
    "MemTotal": "total_kib", "MemFree": "free_kib", "MemAvailable": "available_kib", "Buffers": "buffers_kib",
    "Cached": "cached_kib", "SwapTotal": "swap_total_kib", "SwapFree": "swap_free_kib", "Dirty": "dirty_kib",
    "Writeback": "writeback_kib", "AnonPages": "anonymous_kib", "Shmem": "shared_kib", "SUnreclaim": "unreclaimable_kib",
    "Mlocked": "locked_kib", "Committed_AS": "committed_kib", "HardwareCorrupted": "hardware_corrupted_kib",
    "HugePages_Total": "huge_pages", "HugePages_Free": "huge_pages_free",
}  # fmt: skip
_MEMORY_COUNTS = {
    "oom_kill": "oom_kills_total", "pgmajfault": "major_faults_total", "pswpin": "swapped_in_pages_total",
    "pswpout": "swapped_out_pages_total", "allocstall_normal": "allocation_stalls_normal_total",
    "allocstall_movable": "allocation_stalls_movable_total", "compact_stall": "compaction_stalls_total",
}  # fmt: skip
_DISK_FIELDS = (  # in /proc/diskstats after the name; a sector has 512 bytes, whatever the disk's own are
    "reads_total", "reads_merged_total", "read_sectors_total", "read_ms_total",
    "writes_total", "writes_merged_total", "written_sectors_total", "write_ms_total",
    "in_flight", "busy_ms_total", "waiting_ms_total",
)  # fmt: skip
_NOT_DISKS = ("loop*", "ram*", "zram*", "sr*", "fd*", "nbd*")
_LOAD = re.compile(r"([0-9]{1,9}\.[0-9]{2}) ([0-9]{1,9}\.[0-9]{2}) ([0-9]{1,9}\.[0-9]{2}) ")
_TOTAL = re.compile(r"^(some|full) .*\btotal=([0-9]{1,19})$", re.MULTILINE)


def processors(proc: Path) -> Iterable[Readings]:
    """Yield the time that all processors spent in each state, in ticks, and the load averages."""
    content = text(proc / "stat") or ""
    times = content.partition("\n")[0].split()
    row: dict[str, int | None] = {}
    if times[:1] == ["cpu"]:
        row |= {f"{state}_ticks_total": integer(value) for state, value in zip(_CPU_STATES, times[1:], strict=False)}
    yield from tick("cpu", {"": row | _renamed(pairs(content), _CPU_COUNTS)})
    if loads := _LOAD.match(text(proc / "loadavg") or ""):
        yield from tick("load", {"": dict(zip(_LOADS, map(float, loads.groups()), strict=True))}, "<f4")


def memory(proc: Path) -> Iterable[Readings]:
    """Yield the uses of memory, and the counts of shortages."""
    used = _renamed(pairs(text(proc / "meminfo")), _MEMORY_KIB)
    yield from tick("memory", {"": used | _renamed(pairs(text(proc / "vmstat")), _MEMORY_COUNTS)})


def memory_nodes(sys: Path) -> Iterable[Readings]:
    """Yield the memory of each NUMA node, and how many pages came from another one."""
    folder = sys / "devices/system/node"
    rows: dict[str, Row] = {}
    for name in [name for name in names(folder) if re.fullmatch(r"node\d{1,4}", name)][:NODES_LIMIT]:
        lines = (text(folder / name / "meminfo") or "").splitlines()  # "Node 0 MemFree:  12345 kB"
        used = pairs("\n".join(line.split(maxsplit=2)[-1] for line in lines if line.startswith("Node ")))
        counted = pairs(text(folder / name / "numastat"))
        rows[name] = _renamed(used, _MEMORY_KIB) | {f"{key}_pages_total": value for key, value in counted.items()}
    yield from tick("numa", rows)


def pressure(proc: Path) -> Iterable[Readings]:
    """Yield how long some or all tasks waited for a processor, memory or a disk (PSI), in microseconds since boot."""
    rows: dict[str, Row] = {}
    for name in ("cpu", "io", "irq", "memory"):
        found = _TOTAL.findall(text(proc / "pressure" / name) or "")
        rows[name] = {f"{who}_us_total": integer(total) for who, total in found}
    yield from tick("pressure", {name: row for name, row in rows.items() if row})


def disks(proc: Path, sys: Path) -> Iterable[Readings]:
    """Yield the transfers of each whole disk."""
    whole = {name for name in names(sys / "block") if not any(fnmatchcase(name, pattern) for pattern in _NOT_DISKS)}
    lines = [line.split() for line in (text(proc / "diskstats") or "").splitlines()]
    found = [words for words in lines if len(words) > 3 and words[2] in whole][:DISKS_LIMIT]
    rows = {words[2]: dict(zip(_DISK_FIELDS, map(integer, words[3:]), strict=False)) for words in found}
    yield from tick("disk", rows)


def open_files(proc: Path) -> Iterable[Readings]:
    """Yield how many file descriptors are in use, and the limit."""
    words = (text(proc / "sys/fs/file-nr") or "").split()
    if len(words) == 3:
        yield from tick("files", {"": {"open_files": integer(words[0]), "open_files_limit": integer(words[2])}})


def temperatures(sys: Path) -> Iterable[Readings]:
    """Yield the temperatures of hwmon's sensors in thousandths of a degree; of cores only their package's."""
    folder = sys / "class/hwmon"
    rows: dict[str, Row] = {}
    for chip in names(folder):
        name = text(folder / chip / "name") or chip
        for file in names(folder / chip):
            found = re.fullmatch(r"(temp\d{1,3})_input", file)
            label = (text(folder / chip / f"{found[1]}_label") or found[1]) if found else "Core"
            if found and not label.startswith("Core") and len(rows) < SENSORS_LIMIT:
                read = {"temperature_millicelsius": number(folder / chip / file)}
                rows[f"{chip}/{name}/{label}"[:128]] = read
    yield from tick("temperature", rows)


def _renamed(values: Mapping[str, int], new: Mapping[str, str]) -> dict[str, int | None]:
    return {new[name]: value for name, value in values.items() if name in new}
