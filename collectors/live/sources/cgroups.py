"""The control groups of training processes: throttled time, memory against its limit, kills. Versions 1 and 2.

A limit is often set on a group above the process's own (a pod, a Slurm job), and its effects are counted there: the groups
above are read too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.reporting import Number
from collectors.live.sources.system_files import integer, pairs, text
from collectors.records import Device

GROUPS_LIMIT = 64
DEPTH_LIMIT = 12  # groups above a process's own

_CPU = {
    "nr_periods": "periods_total",
    "nr_throttled": "throttled_periods_total",
    "throttled_usec": "throttled_us_total",
    "usage_usec": "cpu_us_total",
}
_EVENTS = {"oom": "oom_total", "oom_kill": "oom_kills_total", "max": "at_limit_total", "high": "above_high_total"}


def groups(proc: Path, training: Iterable[TrainingProcess]) -> dict[str, list[TrainingProcess]]:
    """Return the control groups of these processes and those above, with the processes in each."""
    found: dict[str, list[TrainingProcess]] = {}
    for process in training:
        mine: dict[str, None] = {}
        for line in (text(proc / str(process.pid) / "cgroup") or "").splitlines():
            _, controllers, path = [*line.split(":", 2), "", ""][:3]
            if not controllers or {"cpu", "memory"} & set(controllers.split(",")):
                mine |= dict.fromkeys(_upwards(path))
        for path in mine:
            found.setdefault(path, []).append(process)
    return found


def read(sys: Path, path: str) -> dict[str, Number | None]:
    """Return the counters of one control group; the root has none."""
    root, below = sys / "fs/cgroup", path.lstrip("/")
    if (root / "cgroup.controllers").exists():
        return _version_2(root / below)
    return {**_cpu(root / "cpu" / below), **_memory_1(root / "memory" / below)}


def devices(found: dict[str, list[TrainingProcess]]) -> Iterator[Device]:
    """Yield each control group with the ranks in it."""
    for path, processes in found.items():
        ranks = sorted({process.rank for process in processes})
        yield Device(type="cgroup", id=path, name=path, attributes={"ranks": " ".join(map(str, ranks))[:1000]})


def _upwards(path: str) -> Iterator[str]:
    """Yield a group and those above it; none where the path is outside the part of the tree that this program sees."""
    parts = path.strip("/").split("/")
    if ".." in parts:
        return
    for end in range(len(parts), max(len(parts) - DEPTH_LIMIT, 0), -1):
        if above := "/".join(parts[:end]):
            yield f"/{above}"


def _version_2(group: Path) -> dict[str, Number | None]:
    events = pairs(text(group / "memory.events"))
    memory = {"memory_bytes": "memory.current", "memory_limit_bytes": "memory.max", "swap_bytes": "memory.swap.current"}
    return {
        **_cpu(group),
        **{name: events.get(key) for key, name in _EVENTS.items()},
        **{name: integer(text(group / file)) for name, file in memory.items()},  # a limit of "max" is none
    }


def _cpu(group: Path) -> dict[str, Number | None]:
    counted = pairs(text(group / "cpu.stat"))
    if "throttled_time" in counted:  # version 1 counts nanoseconds
        counted["throttled_usec"] = counted["throttled_time"] // 1000
    return {name: counted.get(key) for key, name in _CPU.items()}


def _memory_1(group: Path) -> dict[str, Number | None]:
    return {
        "oom_kills_total": pairs(text(group / "memory.oom_control")).get("oom_kill"),
        "at_limit_total": integer(text(group / "memory.failcnt")),
        "memory_bytes": integer(text(group / "memory.usage_in_bytes")),
        "memory_limit_bytes": integer(text(group / "memory.limit_in_bytes")),
    }
