"""Growing files, read from where the last run stopped: whole lines, within bounds, through rotation and truncation.

A file is identified by device and inode. It stays open between runs, so that lines written just before a rotation are read
too. The positions are the collector's cursor, kept with the records: after a restart no line is sent twice, and none is lost
but what a bound left out, which is reported.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from collectors.records import Unread

MOST_FILES = 256  # read in one run
MOST_POSITIONS = 1024  # kept, also of closed files, which may come back
MOST_LINE_BYTES = 1 << 16  # a longer line is given in pieces
ZONE_SECONDS = 900.0  # the clocks of all time zones differ by quarters of an hour
WIDEST_ZONE_SECONDS = 14 * 3600.0
STALE_SECONDS = 30.0  # a stamp may be older than its file by so much
HEAD_BYTES = 1024


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole lines that were added to a file. ``first_line`` counts from 1 at the first line ever read."""

    key: str
    path: str  # the job's or the configuration's name for it
    data: bytes
    first_line: int
    written_at: float  # UTC seconds: the file's modification time
    left_out_bytes: int = 0  # before ``data``: more came than a run may read
    held_before: bool = False  # the last run returned these bytes by ``hold``
    behind: bool = False  # there is more, for the next run


@dataclass(slots=True)
class _Position:
    """The end of what was read of a file. ``head``: checksum of its first bytes, which differs in a file written anew."""

    offset: int = 0
    lines: int = 0
    held: bool = False
    head_bytes: int = 0
    head: int = 0


@dataclass(slots=True)
class Tails:
    """The files of one collector. ``read`` yields new lines, ``hold`` returns some for the next run."""

    most_bytes: int  # of one file in one run
    most_bytes_of_all: int
    most_behind_bytes: int  # of more unread bytes only the newest ``most_bytes`` are read, and the rest is reported
    bars: bool = False  # give what a progress bar has wiped off before its line ends
    positions: dict[str, _Position] = field(default_factory=dict)  # by key, the last read at the end
    files: dict[str, tuple[int, str]] = field(default_factory=dict)  # key → descriptor, path; the last read at the end

    def resume(self, cursor: Any) -> None:
        """Take the positions from a cursor, whatever a failed run had read beyond them."""
        kept = cursor.get("files") if isinstance(cursor, Mapping) else None
        self.positions = {
            str(key): _Position(int(value[0]), int(value[1]), bool(value[2]), *value[3:])
            for key, value in (kept.items() if isinstance(kept, Mapping) else ())
            if isinstance(value, list | tuple) and len(value) in {3, 5} and all(isinstance(part, int) for part in value)
        }

    def cursor(self) -> dict[str, Any]:
        """Return the positions, without the oldest where they are too many."""
        newest = list(self.positions.items())[-MOST_POSITIONS:]
        return {"files": {key: [at.offset, at.lines, int(at.held), at.head_bytes, at.head] for key, at in newest}}

    def read(self, files: Mapping[str, tuple[str, str]]) -> Iterator[Chunk]:
        """Yield the new lines of the files, key → (name, path to open), and of those that were rotated away."""
        for key, (name, path) in files.items():
            self._open(key, name, path)
        left = self.most_bytes_of_all
        for key, file in list(self.files.items()):
            if left < MOST_LINE_BYTES:
                return  # the others come first at the next run
            self.files[key] = self.files.pop(key)
            try:
                chunk = self._next(key, *file, min(self.most_bytes, left))
            except OSError:
                self._close(key)
                continue
            if chunk is not None:
                left -= len(chunk.data)
                yield chunk
            elif key not in files:
                self._close(key)

    def hold(self, chunk: Chunk, offset: int) -> None:
        """Give the chunk's bytes from ``offset`` on again at the next run."""
        position = self.positions[chunk.key]
        position.offset -= len(chunk.data) - offset
        position.lines -= chunk.data.count(b"\n", offset)
        position.held = True

    def _open(self, key: str, name: str, path: str) -> None:
        if key in self.files or len(self.files) >= MOST_FILES:
            return
        with suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
            if key_in(os.fstat(descriptor)) == key:
                self.files[key] = descriptor, name
            else:  # it was replaced meanwhile: the next run opens it
                os.close(descriptor)

    def _next(self, key: str, descriptor: int, path: str, most: int) -> Chunk | None:
        status = os.fstat(descriptor)
        before = self.positions.get(key, _Position())
        # A file that became shorter was truncated in place, as copytruncate does. One with another head was written anew, or
        # reuses the inode of a deleted file.
        if status.st_size < before.offset or _head(descriptor, before.head_bytes) != before.head:
            before = _Position()
        offset, lines = before.offset, before.lines
        waiting = status.st_size - offset
        left_out = max(0, waiting - most) if waiting > self.most_behind_bytes else 0
        data = os.pread(descriptor, min(most, waiting), offset + left_out)
        begin, end = _whole_lines(data, cut=left_out > 0, bars=self.bars)
        self.positions.pop(key, None)
        head_bytes = min(HEAD_BYTES, status.st_size)
        head = before.head if head_bytes == before.head_bytes else _head(descriptor, head_bytes)
        lines_in_all = lines + data.count(b"\n", 0, end)
        self.positions[key] = _Position(offset + left_out + end, lines_in_all, head_bytes=head_bytes, head=head)
        if begin >= end:
            return None
        first = lines + data.count(b"\n", 0, begin) + 1
        missed = left_out + begin if left_out else 0
        return Chunk(
            key, path, data[begin:end], first, status.st_mtime, missed, before.held, left_out + len(data) < waiting
        )

    def _close(self, key: str) -> None:
        descriptor, _ = self.files.pop(key)
        with suppress(OSError):
            if os.fstat(descriptor).st_nlink == 0:  # its inode will be another file's
                self.positions.pop(key, None)
            os.close(descriptor)


def _head(descriptor: int, size: int) -> int:
    return zlib.crc32(os.pread(descriptor, min(max(size, 0), HEAD_BYTES), 0))


def key_of(path: str) -> str | None:
    """Return the key of the regular file at a path, None for anything else: a pipe must not be held open."""
    with suppress(OSError):
        return key_in(os.stat(path))  # noqa: PTH116 (every file at every run)
    return None


def key_in(status: os.stat_result) -> str | None:
    """Return the key of the regular file that a status is of, None for anything else."""
    return f"{status.st_dev}:{status.st_ino}" if stat.S_ISREG(status.st_mode) else None


def zone_seconds(chunk: Chunk, newest: float | None) -> float | None:
    """Return the offset of the log's time zone, which no log states: the newest line was just written."""
    if newest is None or chunk.left_out_bytes or chunk.behind:
        return None
    away = chunk.written_at - newest
    whole = round(away / ZONE_SECONDS) * ZONE_SECONDS
    return whole if abs(whole) <= WIDEST_ZONE_SECONDS and abs(away - whole) <= STALE_SECONDS else None


def _whole_lines(data: bytes, *, cut: bool, bars: bool = False) -> tuple[int, int]:
    """Return where the whole lines begin and end; after a cut the first line is only a part.

    ``bars``: where no line has ended, what a bar wrote ends where its newest is, which belongs to what is printed behind it.
    """
    begin = data.find(b"\n") + 1 if cut else 0
    end = data.rfind(b"\n") + 1
    if bars and not end:
        end = max(0, data.rfind(b"\r"))
    if len(data) - end >= MOST_LINE_BYTES:
        end = len(data)
    return min(begin, end), end


def astray(path: str) -> bool:
    """Return whether a log is a link of one user to a file of another: as root the agent could read any file."""
    with suppress(OSError):
        link = os.lstat(path)
        return stat.S_ISLNK(link.st_mode) and link.st_uid not in {0, os.stat(path).st_uid}  # noqa: PTH116 (as key_of)
    return False


def left_out(chunk: Chunk, most_bytes: int) -> Unread:
    """Return that lines were not read, for more had come than is read."""
    reason = (
        f"{chunk.left_out_bytes:,} bytes before line {chunk.first_line:,} were not read: more than {most_bytes:,} had come; "
        "read the file itself with `faulthound diagnose FILE`"
    )
    return Unread(source=chunk.path, reason=reason, outcome="limit", at=chunk.written_at)


def not_sent(chunk: Chunk, elsewhere: int, over: int, most_events: int) -> Unread:
    """Return that events of lines were not sent: those of other nodes or jobs, and those beyond the bound of one run."""
    parts = [f"{elsewhere:,} events are of other nodes or jobs, and name no rank"] if elsewhere else []
    parts += [f"{over:,} events are beyond the first {most_events:,} of this part"] if over else []
    reason = f"not sent: {'; '.join(parts)}; read the file itself with `faulthound diagnose FILE`"
    return Unread(source=chunk.path, reason=reason, outcome="limit", at=chunk.written_at)
