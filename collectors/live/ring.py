"""The probe's rings: what each rank entered and left, read from shared memory without the job noticing.

A ring outlives its process: one that was stopped or killed is read like any other, and once more when it has died. The
files are the job's, and a job may write what it likes: a ring counts only where it is a plain file of the process's own
user, in a folder that nobody else can write into, and its header names this very process.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from collectors.faulthound_probe import MOST_FAILURES
from collectors.formats.probe_ring import LARGEST_RING_BYTES, Image, parse
from collectors.live import Asked, Cursor, NothingToCollect, Readings, Yielded, collector
from collectors.live.sources.host import Host
from collectors.live.sources.job_files import inner_pid, owner, seen_by
from collectors.live.sources.proc_stat import stat_of
from collectors.live.sources.small_files import names
from collectors.live.sources.training import TrainingProcess
from collectors.records import Unread
from collectors.records.record import Damaged

NEWEST_ENTRIES = 64  # of an ordinary look
KEPT_SECONDS = 3600.0  # a dead process's file is removed after that
MOST_FOLDERS = 64
SHM = "/dev/shm"  # noqa: S108 anybody may write there: what is in it is checked
FOLDERS = "faulthound-"
_KEPT = ("pid", "start_ticks", "rank", "job", "attempt", "role")


class RingRefused(Exception):
    """A file that is no ring of this process; the message says why."""


@dataclass(slots=True)
class _Known:
    """A ring whose process trains here or did. The open file can be read after a container took its name away."""

    process: TrainingProcess
    path: Path
    file: BinaryIO
    pid: int  # that its header must name: the one in the process's own container
    step: int = 0  # number of the newest that was sent
    timing: int = 0
    died_at: float | None = None  # on the monotonic clock
    told: bool = False  # that it died

    @property
    def name(self) -> str:
        """Return the process's identity."""
        return f"{self.process.pid}.{self.process.start_ticks}"

    def kept(self) -> dict[str, Any]:
        """Return what the next agent needs to go on: where the ring is and whose, and what of it was told."""
        process = self.process
        whose = {name: getattr(process, name) for name in _KEPT}
        told = {"told": self.told, "step": self.step, "timing": self.timing}
        return {"path": str(self.path), "inner_pid": self.pid, **told, **whose}


@collector(
    "ring",
    gives="the probe's rings: collectives, sends and receives with enter and leave, steps, device timings",
    every_seconds=10.0,
    limit_seconds=20.0,
    answers=("recorders",),
)
@dataclass(slots=True)
class RingCollector:
    """Reads the newest entries and what is still inside, and the whole ring when asked or when its process has died."""

    host: Host
    known: dict[str, _Known] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # path → why, told once
    resumed: bool = False

    def __call__(self, asked: Asked | None) -> Iterator[Yielded]:
        """Yield the rings of the training processes, and those that were left behind."""
        now = self.host.clock.monotonic()
        yield from self._look(now)
        if not self.known:
            raise NothingToCollect("no training process of this node has the probe (docs/probe.md)")
        for known in [self.known[name] for name in sorted(self.known)]:
            if known.died_at is not None and now - known.died_at > KEPT_SECONDS:
                self._forget(known)
            elif asked.wants(known.process.rank, known.process.job) if asked else not known.told:
                yield from self._read(known, whole=asked is not None or known.died_at is not None)
        yield Cursor([self.known[name].kept() for name in sorted(self.known)])

    def close(self) -> None:
        """Let go of every ring; their files stay where they are."""
        for known in self.known.values():
            known.file.close()
        self.known.clear()

    def _look(self, now: float) -> Iterator[Unread]:
        """Find the rings of new processes, take up what an agent before us saw alive, and notice which have died."""
        running = {f"{process.pid}.{process.start_ticks}": process for process in self.host.training()}
        if not self.resumed:
            self.resumed = True
            self._resume()
        for name, process in running.items():
            if name not in self.known:
                yield from self._found(process)
        for name, known in list(self.known.items()):
            if name not in running and known.died_at is None and not _lives(self.host, known.process):
                known.died_at = now
            if known.died_at is not None and os.fstat(known.file.fileno()).st_nlink == 0:
                self._forget(known)  # its process removed it, as one does that ends as it should

    def _resume(self) -> None:
        """Open the rings that the cursor names. No other ring counts as left behind: its process may be in a container."""
        for kept in self.host.cursor("ring") or ():
            try:
                process = TrainingProcess(**{name: kept[name] for name in _KEPT})
                path = Path(kept["path"])
                told = {"told": kept["told"], "step": kept.get("step", 0), "timing": kept.get("timing", 0)}
                known = _Known(process, path, opened(path, None), kept["inner_pid"], **told)
            except (
                OSError,
                RingRefused,
                KeyError,
                TypeError,
                AttributeError,
            ):  # gone since, or another version's cursor
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
                yield from self._refuse(path, process, error)
                continue
            try:
                self._image(known, 1)
            except (OSError, RingRefused, Damaged) as error:
                known.file.close()
                yield from self._refuse(path, process, error)
                continue
            known.path = self._lasting(known)
            self.known[known.name] = known
            return

    def _refuse(self, path: Path, process: TrainingProcess, error: Exception) -> Iterator[Unread]:
        """Tell once why a file is not used."""
        if self.refused.get(str(path)) != str(error):
            self.refused[str(path)] = str(error)
            yield Unread(source=str(path), reason=str(error), outcome="refused", rank=process.rank)

    def _lasting(self, known: _Known) -> Path:
        """Return the ring's path on the node, if it has one: the one behind /proc/PID ends with the process."""
        folder = str(self.host.option("ring", "folder", SHM)).lstrip("/")
        path = self.host.roots.files / folder / known.path.parent.name / known.path.name
        own = os.fstat(known.file.fileno())
        try:
            found = path.lstat()
        except OSError:
            return known.path
        return path if (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino) else known.path

    def _image(self, known: _Known, most: int | None) -> Image:
        image = parse(_content(known.file), most)
        if (image.pid, image.start_ticks) != (known.pid, known.process.start_ticks):
            raise RingRefused(
                f"it names another process than {known.pid}, or another start of it: it was left by one before"
            )
        if image.swallowed >= MOST_FAILURES:  # what the rank has done since then would look like a rank that hangs
            raise RingRefused(f"its probe has given up after {image.swallowed} failures of its own")
        return image

    def _read(self, known: _Known, *, whole: bool) -> Iterator[Yielded]:
        """Yield one ring, the steps and the device timings since the last look."""
        try:
            image = self._image(known, None if whole else NEWEST_ENTRIES)
        except (OSError, RingRefused, Damaged) as error:
            self._forget(known, remove=False)
            yield Unread(source=str(known.path), reason=str(error), outcome="damaged", rank=known.process.rank)
            return
        process, at = known.process, self.host.clock.now()
        whose = {"source": str(known.path), "job": process.job, "attempt": process.attempt, "at": at}
        rank, role, ended = process.rank, image.role or process.role, known.died_at is not None
        yield msgspec.structs.replace(image.record(), **whose, rank=rank, pid=process.pid, role=role, ended=ended)
        steps = image.steps_since(known.step)
        if steps is not None:
            yield msgspec.structs.replace(steps, **whose, rank=rank, role=role)
            known.step = image.steps[-1][0]
        yield from _timings(image, known)
        known.told = ended

    def _forget(self, known: _Known, *, remove: bool = True) -> None:
        """Close a ring; one that was kept for long enough is removed, if it is still the file that we know."""
        own = os.fstat(known.file.fileno())
        known.file.close()
        self.known.pop(known.name, None)
        try:
            found = known.path.lstat()
            if remove and (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino):
                known.path.unlink()
        except OSError:  # gone, or not ours to remove
            return


def opened(path: Path, user: int | None) -> BinaryIO:
    """Open a ring for reading; raise ``RingRefused`` where anybody but its user could have put it there."""
    folder = path.parent.lstat()
    if not stat.S_ISDIR(folder.st_mode) or folder.st_mode & 0o022:
        raise RingRefused(f"{path.parent} can be written by others: a probe makes a folder of its own user alone")
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    found = os.fstat(file.fileno())
    try:
        if not stat.S_ISREG(found.st_mode):
            raise RingRefused("it is no plain file")
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


def _content(file: BinaryIO) -> bytes:
    return os.pread(file.fileno(), LARGEST_RING_BYTES + 1, 0)


def _beside(host: Host, process: TrainingProcess) -> tuple[int, list[Path], int | None]:
    """Return a process's own pid, where its ring may be, and its user."""
    pid, user = inner_pid(host, process.pid), owner(host, process.pid)
    shm = seen_by(host, process, str(host.option("ring", "folder", SHM)))
    return pid, [folder / f"{pid}.ring" for folder in _folders(shm)], user


def _folders(shm: Path) -> list[Path]:
    return [shm / name for name in names(shm) if name.startswith(FOLDERS)][:MOST_FOLDERS]


def _lives(host: Host, process: TrainingProcess) -> bool:
    """Say whether the very process still runs; one that is a zombie does not."""
    found = stat_of(str(host.roots.proc), process.pid)
    return found is not None and found.start_ticks == process.start_ticks and not found.ended


def _timings(image: Image, known: _Known) -> Iterator[Readings]:
    """Yield what the device took for each phase, a step a tick."""
    by_step: dict[int, dict[str, float]] = {}
    for number, phase, step, nanoseconds in image.timings:
        if number > known.timing:
            known.timing = number
            taken = by_step.setdefault(step, {})
            taken[phase] = taken.get(phase, 0.0) + nanoseconds / 1e9
    ends = {step: end / 1e9 for _, step, end in image.steps}
    for step, taken in sorted(by_step.items()):
        metrics = [f"{phase}_device_seconds" for phase in taken]
        device = f"rank {known.process.rank}"
        yield Readings("phase", [device], metrics, [list(taken.values())], at=ends.get(step))
