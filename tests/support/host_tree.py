"""A fixture tree of a node, and a run of the host collector."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from collectors.live import Readings, Yielded
from collectors.live.host_load import HostLoad
from collectors.live.sources.host import Host, Roots

STAT = """cpu  100 2 30 4000 5 6 7 8 0 0
cpu0 100 2 30 4000 5 6 7 8 0 0
intr 12345 0 0
ctxt 987654321
btime 1763000000
processes 4242
procs_running 3
procs_blocked 2
"""
MOUNTINFO = """22 27 0:21 / /proc rw - proc proc rw
27 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw
30 27 0:30 / /dev/shm rw - tmpfs tmpfs rw
31 27 0:31 / /run/secrets rw - tmpfs tmpfs rw
40 27 0:40 / /data\\040sets rw - nfs4 filer:/export\\040a rw
41 27 0:40 /sub /srv/pods/1/volume rw - nfs4 filer:/export\\040a rw
42 27 0:42 / /lxcfs rw - fuse.lxcfs lxcfs rw
43 27 0:43 / /auto rw - autofs systemd-1 rw
garbage
"""


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write a tree of small files."""
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


class Clock:
    """Clocks that stand where they are put."""

    at = 1000.0

    def now(self) -> float:
        return 1_800_000_000.0 + self.at

    def monotonic(self) -> float:
        return self.at


def node(root: Path, files: Mapping[str, str] | None = None, **options: object) -> Host:
    """A node whose files lie below a folder."""
    write(root, {"proc/stat": STAT, **(files or {})})
    roots = Roots(proc=root / "proc", sys=root / "sys", files=root / "files")
    return Host("gpu-0001", roots, Clock(), {"host": {"chronyc": "no-such-program", **options}})


def run(collector: HostLoad) -> list[Yielded]:
    """One run."""
    return list(collector(None))


def rows(found: list[Yielded], scope: str) -> dict[str, dict[str, float]]:
    """What one tick reads: device → metric → value; empty where the scope has none."""
    return {
        device: {metric: value for metric, value in zip(tick.metrics, values, strict=True) if value is not None}
        for tick in found
        if isinstance(tick, Readings) and tick.scope == scope
        for device, values in zip(tick.devices, tick.values, strict=True)
    }
