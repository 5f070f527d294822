"""A job's own files as the agent reaches them: behind /proc/PID, in another mount namespace, below another root."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from collectors.live.sources.host import Host
from collectors.live.sources.proc_stat import stat_of
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.system_files import read, text

COMMAND_BYTES = 4096  # of a command line
_LAUNCHER = re.compile(
    rb"torchrun|torch[./]distributed[./](?:run|launch)|accelerate|deepspeed|(?:\A|[\0/])(?:srun|mpirun|mpiexec|prterun)\0"
)
_NAMESPACED = re.compile(r"^NSpid:\s+([\d\t ]+)", re.MULTILINE)
_USERS = re.compile(r"^Uid:\s+(\d{1,10})\s+(\d{1,10})\s", re.MULTILINE)


def owner(host: Host, pid: int) -> int | None:
    """Return the user that a process runs as, None where it has ended."""
    with suppress(OSError):
        return (host.roots.proc / str(pid)).stat().st_uid
    return None


def runs_as(host: Host, pid: int) -> int | None:
    """Return the user that a process is of both in truth and in effect; None where these differ or are not shown."""
    users = _USERS.search(text(host.roots.proc / str(pid) / "status") or "")
    return int(users[1]) if users and users[1] == users[2] else None


def launcher(host: Host, pid: int) -> int | None:
    """Return the launcher that started a process; None where another program did."""
    stat = stat_of(str(host.roots.proc), pid)
    parent = stat.parent_pid if stat else 0
    with suppress(OSError):
        if parent > 1 and _LAUNCHER.search(read(host.roots.proc / str(parent) / "cmdline", COMMAND_BYTES)):
            return parent
    return None


def inner_pid(host: Host, pid: int) -> int:
    """Return the pid that a process has in its own container, which it puts into file names."""
    found = _NAMESPACED.search(text(host.roots.proc / str(pid) / "status") or "")
    return int(found[1].split()[-1]) if found and found[1].split() else pid


def seen_by(host: Host, process: TrainingProcess, path: str) -> Path:
    """Return the path at which a path of the process is opened: below ``files``, or in its own mount namespace."""
    own = host.roots.proc / str(process.pid)
    if not path.startswith("/"):
        return own / "cwd" / path
    inside = own / "root" / path.lstrip("/")
    with suppress(OSError):
        # A process in a container sees the container's root, any other the node's.
        if inside.exists():
            return inside
    return host.roots.files / path.lstrip("/")


def open_files(host: Host, pid: int, wanted: Callable[[str], bool]) -> dict[str, str]:
    """Return name → path to open, of the files that a process has open under a wanted name; names are its container's."""
    found: dict[str, str] = {}
    with suppress(OSError), os.scandir(host.roots.proc / str(pid) / "fd") as entries:
        for entry in entries:
            with suppress(OSError):
                name = os.readlink(entry.path)  # noqa: PTH115 (hundreds at every run)
                if wanted(name):
                    found[name] = entry.path
    return found
