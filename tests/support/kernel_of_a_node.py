"""A node's kernel log under the collector."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from collectors.live import Cursor, Yielded
from collectors.live.kernel import Kernel
from collectors.live.sources.host import Host, Roots
from collectors.records import KernelEvent

BOOT = "11111111-2222-3333-4444-555555555555"
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@dataclass
class Clock:
    """Clocks that stand where they are put."""

    wall: float = 1_800_000_000.0
    boot: float = 1000.0

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.boot

    def pass_seconds(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds


class Log:
    """A /dev/kmsg that is a file: what is appended to it is what is read next."""

    def __init__(self, root: Path) -> None:
        self.path = root / "dev/kmsg"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()
        self.next = 0

    def say(self, *texts: str, at: float = 999.0) -> None:
        """Append these lines as records of that second since boot."""
        with self.path.open("a") as file:
            for text in texts:
                file.write(f"4,{self.next},{int(at * 1e6)},-;{text}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:05:00.0\n")
                self.next += 1


def node(root: Path, *, boot: str = BOOT, cursor: object = None, **options: object) -> Host:
    """A node whose files lie below a folder."""
    random = root / "proc/sys/kernel/random"
    random.mkdir(parents=True, exist_ok=True)
    (random / "boot_id").write_text(boot + "\n")
    roots = Roots(proc=root / "proc", sys=root / "sys", dev=root / "dev", files=root)
    cursors = {} if cursor is None else {"kernel": cursor}
    return Host("gpu-0001", roots, Clock(), {"kernel": options}, cursors)


def run(collector: Kernel) -> list[Yielded]:
    """One run."""
    return list(collector(None))


def events(found: list[Yielded]) -> list[KernelEvent]:
    """The events of a run."""
    return [one for one in found if isinstance(one, KernelEvent)]


def cursor(found: list[Yielded]) -> object:
    """The newest cursor of a run, None where it gave none."""
    return next((one.value for one in reversed(found) if isinstance(one, Cursor)), None)
