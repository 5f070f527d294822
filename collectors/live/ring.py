"""The probe's rings: what each rank entered and left, read from shared memory without any effect on the job.

A ring outlives its process: that of a stopped or killed process is read like any other, and once more after its end. The
files are the job's, which may write anything: a ring is used only where it is a plain file of the process's own user, in a
folder that no other user can write into, and its header names this very process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from collectors.faulthound_probe import MOST_FAILURES
from collectors.files.apart import ParsingFailed
from collectors.live import Cursor, NothingToCollect, Readings, Request, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.job_files import inner_pid, owner, seen_by
from collectors.live.sources.proc_stat import still_runs
from collectors.live.sources.ranks import TrainingProcess
from collectors.live.sources.system_files import names
from collectors.records import Ring, Unread, block

LARGEST_RING_BYTES = 8 << 20  # as collectors/formats/probe_ring.py
NEWEST_ENTRIES = 64  # of an ordinary run
KEPT_SECONDS = 3600.0  # an ended process's file is removed after that
MOST_FOLDERS = 64
SHM = "/dev/shm"  # noqa: S108 (any user may write there: its content is checked)
FOLDERS = "faulthound-"
_KEPT = ("pid", "start_ticks", "rank", "job", "attempt", "role")


class RingRefused(Exception):
    """A file that is not this process's ring; the message says why."""


@dataclass(slots=True)
class _Known:
    """A ring whose process trains here or did. The open file can be read after a container has removed its name."""

    process: TrainingProcess
    path: Path
    file: BinaryIO
    pid: int  # that its header must name: the one in the process's own container
    step: int = 0  # number of the newest that was sent
    timing: int = 0
    died_at: float | None = None  # on the monotonic clock
    reported: bool = False  # that it died

    @property
    def name(self) -> str:
        """Return the process's identity."""
        return f"{self.process.pid}.{self.process.start_ticks}"

    def kept(self) -> dict[str, Any]:
        """Return what the next agent needs to continue: the ring, its process, and what of it was sent."""
        process = {name: getattr(self.process, name) for name in _KEPT}
        sent = {"told": self.reported, "step": self.step, "timing": self.timing}
        return {"path": str(self.path), "inner_pid": self.pid, **sent, **process}


@collector(
    "ring",
    gives="the probe's rings: collectives, sends and receives with enter and leave, steps, device timings",
    every_seconds=10.0,
    limit_seconds=20.0,
    answers=("recorders",),
)
@dataclass(slots=True)
class RingCollector:
    """Reads the newest entries and those not left yet, and the whole ring on request or when its process has died."""

    host: Host
    known: dict[str, _Known] = field(default_factory=dict)
    rejected: dict[str, str] = field(default_factory=dict)  # path → why, reported once
    resumed: bool = False

    def __call__(self, request: Request | None) -> Iterator[Yielded]:
        """Yield the rings of the training processes, and those that were left behind."""
        now = self.host.clock.monotonic()
        yield from self._update(now)
        if not self.known:
            raise NothingToCollect("no training process of this node has the probe (docs/probe.md)")
        for known in [self.known[name] for name in sorted(self.known)]:
            if known.died_at is not None and now - known.died_at > KEPT_SECONDS:
                self._forget(known)
            elif (
                request.covers(known.process.rank, known.process.job, known.process.role)
                if request
                else not known.reported
            ):
                yield from self._read(known, whole=request is not None or known.died_at is not None)
        yield Cursor([self.known[name].kept() for name in sorted(self.known)])

    def close(self) -> None:
        """Close every ring; their files stay."""
        for known in self.known.values():
            known.file.close()
        self.known.clear()

    def _update(self, now: float) -> Iterator[Unread]:
        """Find the rings of new processes, resume those of an earlier agent, and note which processes have died."""
        running = {f"{process.pid}.{process.start_ticks}": process for process in self.host.training()}
        if not self.resumed:
            self.resumed = True
            self._resume()
        for name, process in running.items():
            if name not in self.known:
                yield from self._found(process)
        for name, known in list(self.known.items()):
            if (
                name not in running
                and known.died_at is None
                and not still_runs(str(self.host.roots.proc), known.process)
            ):
                known.died_at = now
            if known.died_at is not None and os.fstat(known.file.fileno()).st_nlink == 0:
                self._forget(known)  # its process ended normally, and removed it

    def _resume(self) -> None:
        """Open the rings that the cursor names. Others are not taken for left behind: their process may be in a container."""
        for kept in self.host.cursor("ring") or ():
            try:
                process = TrainingProcess(**{name: kept[name] for name in _KEPT})
                path = Path(kept["path"])
                sent = {"reported": kept["told"], "step": kept.get("step", 0), "timing": kept.get("timing", 0)}
                known = _Known(process, path, opened(path, None), kept["inner_pid"], **sent)
            except (OSError, RingRefused, KeyError, TypeError, AttributeError):  # removed, or another version's cursor
                continue
            self.known[known.name] = known

    def _found(self, process: TrainingProcess) -> Iterator[Unread]:
        pid, paths, user = _beside(self.host, process)
        for path in paths:
            try:
                known = _Known(process, path, opened(path, user), pid)
            except FileNotFoundError:
                continue
            except (OSError, RingRefused) as error:
                yield from self._reject(path, process, error)
                continue
            try:
                self._content(known, 1)
            except (OSError, RingRefused, ParsingFailed) as error:
                known.file.close()
                yield from self._reject(path, process, error)
                continue
            known.path = self._lasting(known)
            self.known[known.name] = known
            return

    def _reject(self, path: Path, process: TrainingProcess, error: Exception) -> Iterator[Unread]:
        """Report once why a file is not used."""
        if self.rejected.get(str(path)) != str(error):
            self.rejected[str(path)] = str(error)
            yield Unread(source=str(path), reason=str(error), outcome="refused", rank=process.rank)

    def _lasting(self, known: _Known) -> Path:
        """Return the ring's path on the node, where it has one: the path behind /proc/PID ends with the process."""
        folder = self.host.option("ring", "folder", SHM).lstrip("/")
        path = self.host.roots.files / folder / known.path.parent.name / known.path.name
        return path if _is_at(path, known.file) else known.path

    def _content(self, known: _Known, most: int | None) -> dict[str, Any]:
        """Return what ``collectors.files.parsers.ring`` reads in a ring."""
        data = os.pread(known.file.fileno(), LARGEST_RING_BYTES + 1, 0)
        found: dict[str, Any] = self.host.apart.parse(
            "ring", data, most, known.step, known.timing, source=str(known.path)
        )
        if (found["pid"], found["start_ticks"]) != (known.pid, known.process.start_ticks):
            raise RingRefused(f"it names another process than {known.pid}, or an earlier one of that number")
        if found["swallowed"] >= MOST_FAILURES:  # it has no later entries: the rank would look like one that hangs
            raise RingRefused(f"its probe has given up after {found['swallowed']} failures of its own")
        return found

    def _read(self, known: _Known, *, whole: bool) -> Iterator[Yielded]:
        """Yield one ring, with the steps and device timings since the last run."""
        read_at = self.host.clock.now()  # what it shows is of then, however long a busy node takes to parse it
        try:
            found = self._content(known, None if whole else NEWEST_ENTRIES)
        except (OSError, RingRefused, ParsingFailed) as error:
            self._forget(known, remove=False)
            yield Unread(source=str(known.path), reason=str(error), outcome="damaged", rank=known.process.rank)
            return
        process, ended = known.process, known.died_at is not None
        of = {**process.of_records, "source": str(known.path), "at": read_at}
        of["role"] = found["role"] or process.role
        for record in block.decode(found["records"]):
            own = {"pid": process.pid, "ended": ended} if isinstance(record, Ring) else {}
            yield msgspec.structs.replace(record, **of, **own)
        known.step = found["step"]
        yield from _timings(found["timings"], known)
        known.reported = ended

    def _forget(self, known: _Known, *, remove: bool = True) -> None:
        """Close a ring, and remove it where its path still leads to the open file."""
        with suppress(OSError):  # removed already, or not ours to remove
            if remove and _is_at(known.path, known.file):
                known.path.unlink()
        known.file.close()
        self.known.pop(known.name, None)


def opened(path: Path, user: int | None) -> BinaryIO:
    """Open a ring for reading; raise ``RingRefused`` where another user could have put it there."""
    folder = path.parent.lstat()
    if not stat.S_ISDIR(folder.st_mode) or folder.st_mode & 0o022:
        raise RingRefused(f"{path.parent} can be written by others: a probe makes a folder for its own user alone")
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    found = os.fstat(file.fileno())
    try:
        if not stat.S_ISREG(found.st_mode):
            raise RingRefused("it is not a plain file")
        if found.st_uid != folder.st_uid or user not in (None, found.st_uid):
            raise RingRefused(
                f"it belongs to user {found.st_uid}, its folder to {folder.st_uid}, its process to {user}"
            )
        if found.st_size > LARGEST_RING_BYTES:
            raise RingRefused(f"it has {found.st_size:,} bytes, more than {LARGEST_RING_BYTES:,}")
    except RingRefused:
        file.close()
        raise
    return file


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Return whether a path leads to this open file."""
    with suppress(OSError):
        found, own = path.lstat(), os.fstat(file.fileno())
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)
    return False


def _beside(host: Host, process: TrainingProcess) -> tuple[int, list[Path], int | None]:
    """Return a process's own pid, the paths that its ring may have, and its user."""
    pid, user = inner_pid(host, process.pid), owner(host, process.pid)
    shm = seen_by(host, process, host.option("ring", "folder", SHM))
    folders = [shm / name for name in names(shm) if name.startswith(FOLDERS)][:MOST_FOLDERS]
    return pid, [folder / f"{pid}.ring" for folder in folders], user


def _timings(timings: list[tuple[int, str, int, float, float | None]], known: _Known) -> Iterator[Readings]:
    """Yield the device's seconds for each phase, a step a tick."""
    by_step: dict[int, dict[str, float]] = {}
    ends: dict[int, float | None] = {}
    for number, phase, step, seconds, end in timings:
        known.timing = number
        taken = by_step.setdefault(step, {})
        taken[phase] = taken.get(phase, 0.0) + seconds
        ends[step] = end
    for step, taken in sorted(by_step.items()):
        metrics = [f"{phase}_device_seconds" for phase in taken]
        device = f"rank {known.process.rank}"
        yield Readings("phase", [device], metrics, [list(taken.values())], at=ends[step])
