"""The endpoints of a rank's flight recorder: its worker server, its debug pipe, the dumps that it has written.

In this order: a worker server answers within milliseconds even while the interpreter's lock is held, NCCL's pipe waits for
the next round of NCCL's monitor, and a dump that exists already is of an earlier moment.
"""

from __future__ import annotations

import os
import pwd
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from collectors.live.sources.host import Host
from collectors.live.sources.job_files import inner_pid, owner, seen_by
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.sockets import socket_inodes
from collectors.live.sources.system_files import read

SERVER_LABELS = ("FAULTHOUND_WORKER_SERVER", "TORCH_WORKER_SERVER_SOCKET")
PIPE_LABEL = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
DUMP_LABELS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
MOST_LISTENING = 16  # sockets of one process that are asked
MOST_NET_BYTES = 4 << 20  # of /proc/PID/net/unix or tcp
# Listeners of multiprocessing and of torch's tensor sharing speak no HTTP and must not be disturbed.
_NO_SERVER = re.compile(r"pymp-|torch-shm|listener-|torch_\d")
_INSIDE = re.compile(r"^.*/proc/\d+/root(?=/)")  # the agent's own way to a path, not shown
_LOOPBACK = re.compile(r"(?:localhost|127\.\d+\.\d+\.\d+|\[?::1\]?):\d{1,5}\Z")
_LISTENING_UNIX = re.compile(rb"^\S+: \S+ \S+ 00010000 0001 01 +(\d+) +(/\S+)$", re.MULTILINE)
_LISTENING_TCP = re.compile(rb"^ *\d+: ([0-9A-F]+):([0-9A-F]{4}) \S+ 0A (?:\S+ +){5}(\d+) ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One source of a dump. ``address``: ``host:port``, a socket's or a pipe's path, or the path of the dump itself."""

    kind: Literal["worker server", "pipe", "dump file"]
    address: str
    dumps: tuple[str, ...] = ()  # of a pipe: where the rank may write its dump
    user: int | None = None  # the required owner: the job names the port or the path, and root may open any

    def __str__(self) -> str:
        return f"{self.kind} {_INSIDE.sub('', self.address)}"


def endpoints_of(host: Host, process: TrainingProcess, user: int | None = None) -> list[Endpoint]:
    """Return the endpoints of a rank's dump, the best first; each exists, and may or may not answer.

    ``user``: the process's user, for a process that has ended.
    """
    dumps, now = [str(path) for path in _dumps(host, process)], owner(host, process.pid)
    user = user if now is None else now
    found = [Endpoint("worker server", address, user=user) for address in dict.fromkeys(_servers(host, process))]
    if pipe := _pipe(host, process):
        found.append(Endpoint("pipe", pipe, tuple(dumps), user))
    return found + [Endpoint("dump file", path, user=user) for path in dumps if _is(path, stat.S_ISREG)]


def _servers(host: Host, process: TrainingProcess) -> Iterator[str]:
    for label in SERVER_LABELS:
        address = _filled(process.labels.get(label, ""), process)
        if address and not address.startswith("/"):
            # A job may name any address; the agent asks only this node on its behalf.
            yield from [address] if _LOOPBACK.match(address) else []
        elif address:
            yield from _socket(str(seen_by(host, process, address)))
    if option := host.option("recorder", "worker_server", ""):
        address = _filled(str(option), process)
        yield from _socket(str(seen_by(host, process, address))) if address.startswith("/") else [address]
    yield from _probe(host, process)
    yield from _listening_unix(host, process)
    if host.option("recorder", "listening", False):
        yield from listening_tcp(host, process.pid)


def _filled(template: str, process: TrainingProcess) -> str:
    names = {"rank": process.rank, "local_rank": process.local_rank, "pid": process.pid}
    for name, value in names.items():
        template = template.replace("{" + name + "}", str(value))
    return template


def _is(path: str, kind: object) -> bool:
    with suppress(OSError):
        return callable(kind) and bool(kind(os.stat(path).st_mode))  # noqa: PTH116 (many files)
    return False


def _socket(path: str) -> Iterator[str]:
    if _is(path, stat.S_ISSOCK):
        yield path


def _probe(host: Host, process: TrainingProcess) -> Iterator[str]:
    """The probe's own convention: ``<shm>/faulthound-<uid>/<pid>.sock``, both as the process sees itself."""
    inside = host.roots.proc / str(process.pid) / "root" / "dev" / "shm"
    for shm, pid in ((host.roots.dev / "shm", process.pid), (inside, inner_pid(host, process.pid))):
        with suppress(OSError):
            for path in sorted(shm.glob(f"faulthound-*/{pid}.sock"))[:MOST_LISTENING]:
                yield from _socket(str(path))


def _listening_unix(host: Host, process: TrainingProcess) -> Iterator[str]:
    own = socket_inodes(host.roots.proc / str(process.pid))
    rows = _LISTENING_UNIX.findall(_net(host, process.pid, "unix")) if own else []
    for _, path in [row for row in rows if int(row[0]) in own][:MOST_LISTENING]:
        if not _NO_SERVER.search(name := os.fsdecode(path)):
            yield from _socket(str(seen_by(host, process, name)))


def listening_tcp(host: Host, pid: int) -> Iterator[str]:
    """Yield ``host:port`` of the TCP sockets at which a process listens, as this node's loopback reaches them."""
    own = socket_inodes(host.roots.proc / str(pid))
    for name, loopback in (("tcp", "127.0.0.1"), ("tcp6", "::1")):
        rows = _LISTENING_TCP.findall(_net(host, pid, name)) if own else []
        for bound, port, _ in [row for row in rows if int(row[2]) in own][:MOST_LISTENING]:
            yield f"{'127.0.0.1' if not bound.strip(b'0') else loopback}:{int(port, 16)}"


def _net(host: Host, pid: int, name: str) -> bytes:
    with suppress(OSError):
        return read(host.roots.proc / str(pid) / "net" / name, MOST_NET_BYTES)
    return b""


def _pipe(host: Host, process: TrainingProcess) -> str | None:
    stem = process.labels.get(PIPE_LABEL)
    path = str(seen_by(host, process, f"{stem}{process.rank}.pipe")) if stem else ""
    return path if path and _is(path, stat.S_ISFIFO) else None


def _dumps(host: Host, process: TrainingProcess) -> Iterator[Path]:
    """The files that the rank may write its dump into, whether they exist yet or not."""
    stems = [process.labels[label] for label in DUMP_LABELS if process.labels.get(label)]
    if option := host.option("recorder", "dump_stem", ""):
        stems.append(_filled(str(option), process))
    for stem in dict.fromkeys(stems or _default_stems(host, process)):
        yield seen_by(host, process, f"{stem}{process.rank}")


def _default_stems(host: Host, process: TrainingProcess) -> list[str]:
    """Where PyTorch writes by default: into the user's cache, older releases into /tmp."""
    stems = ["/tmp/nccl_trace_rank_"]  # noqa: S108 (PyTorch's own choice)
    with suppress(KeyError, TypeError):
        home = pwd.getpwuid(owner(host, process.pid)).pw_dir  # type: ignore[arg-type]
        stems.insert(0, f"{home}/.cache/torch/comm_lib_trace_rank_")
    return stems
