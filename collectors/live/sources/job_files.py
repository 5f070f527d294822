"""Where a job's own files are as the agent sees them: behind /proc/PID, in another mount namespace, below another root."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from collectors.live.sources.host import Host
from collectors.live.sources.training import TrainingProcess

COMMAND_BYTES = 4096  # of a command line
_PARENT = re.compile(rb"^PPid:\s+(\d+)", re.MULTILINE)
_LAUNCHER = re.compile(
    rb"torchrun|torch[./]distributed[./](?:run|launch)|accelerate|deepspeed|(?:\A|[\0/])(?:srun|mpirun|mpiexec|prterun)\0"
)
_NAMESPACED = re.compile(rb"^NSpid:\s+([\d\t ]+)", re.MULTILINE)


def owner(host: Host, pid: int) -> int | None:
    """Return the user that a process runs as, None where it is gone."""
    with suppress(OSError):
        return (host.roots.proc / str(pid)).stat().st_uid
    return None


def parent(host: Host, pid: int) -> int | None:
    """Return a process's parent, None where it is gone or has none but init."""
    found = _PARENT.search(_status(host, pid))
    number = int(found[1]) if found else 0
    return number if number > 1 else None


def launcher(host: Host, pid: int) -> int | None:
    """Return the launcher that started a process; a shell, a daemon or whatever else did is nobody's launcher."""
    starter = parent(host, pid)
    with suppress(OSError):
        if starter and _LAUNCHER.search((host.roots.proc / str(starter) / "cmdline").read_bytes()[:COMMAND_BYTES]):
            return starter
    return None


def inner_pid(host: Host, pid: int) -> int:
    """Return the pid that a process has in its own container, which is what it puts into file names."""
    found = _NAMESPACED.search(_status(host, pid))
    return int(found[1].split()[-1]) if found and found[1].split() else pid


def seen_by(host: Host, process: TrainingProcess, path: str) -> Path:
    """Return where a path that the process names is to be opened: below ``files``, or in its own mount namespace."""
    own = host.roots.proc / str(process.pid)
    if not path.startswith("/"):
        return own / "cwd" / path
    inside = own / "root" / path.lstrip("/")
    with suppress(OSError):
        # A container's own mount namespace is its root's; a process outside of one has the node's root.
        if inside.exists():
            return inside
    return host.roots.files / path.lstrip("/")


def open_files(host: Host, pid: int, wanted: Callable[[str], bool]) -> dict[str, str]:
    """Return name → path to open of what a process has open under a wanted name; the name is as its container has it."""
    found: dict[str, str] = {}
    with suppress(OSError), os.scandir(host.roots.proc / str(pid) / "fd") as entries:
        for entry in entries:
            with suppress(OSError):
                name = os.readlink(entry.path)  # noqa: PTH115 - hundreds of them at every run
                if wanted(name):
                    found[name] = entry.path
    return found


def _status(host: Host, pid: int) -> bytes:
    with suppress(OSError):
        return (host.roots.proc / str(pid) / "status").read_bytes()
    return b""
