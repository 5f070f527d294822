"""A tree like /proc, written file by file: processes as a test wants them, on a node that is not this one."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

BOOTED_AT = 1_763_000_000


class ProcessTree:
    """A /proc below a folder; ``add`` puts one process into it, or changes it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(exist_ok=True)
        (root / "stat").write_text(f"cpu  1 2 3\nbtime {BOOTED_AT}\n")

    def add(
        self,
        pid: int,
        parent: int = 1,
        environment: Mapping[str, object] | bytes = b"",
        *,
        name: str = "python",
        state: str = "S",
        start: int = 1000,
        command: str = "python train.py",
        control_groups: str = "0::/user.slice\n",
        status: int = 0,
        image: int | None = None,
    ) -> int:
        """Write one process; ``start``: hundredths of seconds since boot; ``image``: where its environment lies, 0: it ends."""
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = ["0"] * 50
        fields[0], fields[1], fields[17], fields[19], fields[21] = state, str(parent), "3", str(start), "2560"
        fields[11], fields[12], fields[47], fields[49] = (
            "150",
            "50",
            str(140_000_000 + pid if image is None else image),
            str(status),
        )
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
        if isinstance(environment, Mapping):
            environment = b"".join(f"{key}={value}\0".encode() for key, value in environment.items())
        (folder / "environ").write_bytes(environment)
        (folder / "cmdline").write_bytes(command.replace(" ", "\0").encode() + b"\0")
        (folder / "cgroup").write_text(control_groups)
        (folder / "wchan").write_text("futex_do_wait")
        return pid

    def remove(self, *pids: int) -> None:
        """Take processes away, as if somebody had waited for them."""
        for pid in pids:
            shutil.rmtree(self.root / str(pid))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now(self) -> float:
        """Return UTC seconds."""
        return BOOTED_AT + self.seconds

    def monotonic(self) -> float:
        """Return seconds since boot."""
        return self.seconds
