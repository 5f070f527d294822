"""File systems: how full the local ones are, and whether the remote ones answer.

A file system whose server is unreachable blocks every caller, and no signal ends the call. So a child that does nothing else
(``stat -f``) asks a remote one. A child that does not answer in time is left waiting; no second one is started for that
mount until it has ended.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import select
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from collectors.live.sources.reporting import Row
from collectors.live.sources.system_files import text

MOUNTS_LIMIT = 64  # of each kind
ANSWER_SECONDS = 3.0  # for all remote mounts of one run together; a healthy one answers in milliseconds
OUTPUT_BYTES = 1000  # kept of what a child writes

_REMOTE = frozenset({
    "9p", "afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs", "panfs", "pvfs2", "smb3",
    "smbfs", "vastnfs", "virtiofs", "wekafs",
})  # fmt: skip
_LOCAL = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "fuseblk", "overlay", "tmpfs", "vfat", "xfs", "zfs"}
)
_LOCAL_FUSE = ("fuse.lxcfs", "fuse.gvfsd-fuse", "fuse.portal", "fuse.snapfuse", "fuse.fuse-overlayfs")
_MEMORY_PLACES = ("/dev/shm", "/tmp")  # the only tmpfs read: a container host has hundreds of others  # noqa: S108
_ESCAPED = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One mounted file system: its mount point on the node, and the path at which this program reaches it."""

    point: str
    path: Path
    type: str
    source: str

    @property
    def remote(self) -> bool:
        """Whether another machine, or another program, answers for it."""
        return self.type in _REMOTE or (
            self.type.startswith("fuse") and self.type not in (*_LOCAL_FUSE, "fuseblk", "fusectl")
        )

    @property
    def local(self) -> bool:
        """Whether its fill level is of interest and statvfs cannot block."""
        if self.type == "tmpfs":
            return self.point in _MEMORY_PLACES
        return self.type in _LOCAL and (self.type != "overlay" or self.point == "/")


def mounts(proc: Path, files: Path) -> list[Mount]:
    """Return the mounted file systems, each once (by its device number), in the kernel's order.

    Those of process 1 are the node's, at paths below ``files``; where they may not be read, this program's own.
    """
    content, root = text(proc / "1/mountinfo"), files
    if content is None:
        content, root = text(proc / "self/mountinfo") or "", Path("/")
    found: dict[str, Mount] = {}
    for line in content.splitlines():
        words, _, rest = line.partition(" - ")
        before, after = words.split(" "), rest.split(" ")
        if len(before) >= 6 and len(after) >= 2:
            point, source = (_ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), word) for word in (before[4], after[1]))
            found.setdefault(before[2], Mount(point, root / point.lstrip("/"), after[0], source))
    return list(found.values())


def fill(local: Iterable[Mount]) -> dict[str, Row]:
    """Return how full these file systems are, by mount point, without those that cannot be read."""
    rows: dict[str, Row] = {}
    for mount in local:
        with contextlib.suppress(OSError):
            found = os.statvfs(mount.path)
            counted = (found.f_frsize, found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
            rows[mount.point] = {**_sizes(counted), "read_only": int(bool(found.f_flag & os.ST_RDONLY))}
    return rows


def _sizes(counted: tuple[int, ...]) -> dict[str, int]:
    block, total, free, available, files, free_files = counted
    sizes = {"total_bytes": total * block, "free_bytes": free * block, "available_bytes": available * block}
    return {**sizes, "files_limit": files, "files_free": free_files}


@dataclass(frozen=True, slots=True)
class MountAnswer:
    """The answer of a remote mount. ``seconds`` is infinite where none came."""

    mount: Mount
    seconds: float
    state: str  # ok, unreadable, no_answer
    output: str = ""
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Sent:
    mount: Mount
    child: subprocess.Popen[bytes]
    since: float

    @property
    def pipe(self) -> int:
        assert self.child.stdout is not None
        return self.child.stdout.fileno()


class RemoteMounts:
    """The children that ask remote file systems, at most one for each."""

    def __init__(self, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        self._sent: dict[str, _Sent] = {}

    def check(self, remote: Iterable[Mount]) -> Iterator[MountAnswer]:
        """Ask every mount whose last child has ended, wait for all together, and yield how each answers."""
        wanted = {mount.point: mount for mount in remote}
        for point in [point for point, sent in self._sent.items() if sent.child.poll() is not None]:
            _end(self._sent.pop(point))  # it ended after its run: too late for an answer
        waiting: dict[int, _Sent] = {}
        for point in wanted.keys() - self._sent.keys():
            sent = self._sent[point] = self._send(wanted[point])
            waiting[sent.pipe] = sent
        deadline = time.monotonic() + self._answer_seconds
        while waiting and (left := deadline - time.monotonic()) > 0:
            for pipe in _readable(waiting, left):
                yield self._answered(waiting.pop(pipe))
        for point in wanted.keys() & self._sent.keys():
            yield MountAnswer(wanted[point], math.inf, "no_answer", f"no answer within {self._answer_seconds:g} s")

    @property
    def waiting(self) -> int:
        """How many children have not ended."""
        return len(self._sent)

    def _send(self, mount: Mount) -> _Sent:
        command = ["stat", "-f", "-c", "%S %b %f %a %c %d", "--", str(mount.path)]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/",
            env={"LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)},
        )  # fmt: skip
        return _Sent(mount, child, time.monotonic())

    def _answered(self, sent: _Sent) -> MountAnswer:
        """Take the answer of a child that has written and is about to end."""
        seconds = time.monotonic() - sent.since
        del self._sent[sent.mount.point]
        output = _end(sent)
        words = output.split()
        if len(words) == 6 and all(word.isdigit() for word in words):
            return MountAnswer(sent.mount, seconds, "ok", sizes=_sizes(tuple(map(int, words))))
        return MountAnswer(sent.mount, seconds, "unreadable", output)


def _readable(pipes: Iterable[int], seconds: float) -> list[int]:
    poll = select.poll()  # unlike select, without a bound on the number of a descriptor
    for pipe in pipes:
        poll.register(pipe, select.POLLIN | select.POLLHUP)
    return [pipe for pipe, _ in poll.poll(seconds * 1000)]


def _end(sent: _Sent) -> str:
    """Return what a child has written, and reap it."""
    output, _ = sent.child.communicate()
    return output[:OUTPUT_BYTES].decode(errors="replace").strip()
