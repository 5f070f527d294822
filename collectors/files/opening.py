"""Files are opened here and nowhere else: found, unpacked by what they hold, and bounded.

Directories are walked in sorted order; a link to a directory is never followed, a FIFO, socket or device never opened.
Containers (.gz, .zst, .tar, .zip) are known by their first bytes, at any name, inside one another to a small depth.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from collectors.files import archives
from collectors.files.path_owner import torchrun_run, trailing_number, whose
from collectors.files.streams import Bounded, Budget, Exceeded, Limits, Opened, Take, gunzip, unzstd
from collectors.formats import Input
from collectors.records import Outcome, Unread

__all__ = ["Found", "Limits", "find", "open_found", "trouble"]

HEAD_BYTES = 1 << 16
EMPTY_FILES_NAMED = 1000  # per folder; the rest are one record with their number
EARLIEST_AT = 1_000_000_000.0  # a modification time before September 2001 was never set
GZIP, ZSTD, ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"PK\x03\x04", b"PK\x05\x06")
UNOPENED = {b"\xfd7zXZ\x00": "xz", b"BZh": "bzip2", b"7z\xbc\xaf\x27\x1c": "7-Zip"}


@dataclass(frozen=True, slots=True)
class Found:
    """A regular file that the walk came to."""

    path: str
    source: str
    size_bytes: int
    at: float | None


def printable(name: str) -> str:
    """Return the name without what a terminal would obey or UTF-8 cannot write."""
    text = os.fsencode(name).decode(errors="replace")
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def unread(name: str, reason: str, outcome: Outcome = "unrecognised", offset: int | None = None) -> Unread:
    """Return why a file, or a part of one, gave no record, with the owner that its name gives."""
    source = printable(name)
    owner = whose(source)
    return Unread(
        source=source,
        rank=owner.rank,
        node=owner.node,
        attempt=owner.attempt,
        reason=reason,
        outcome=outcome,
        offset=offset,
    )


def _silent(entry: os.DirEntry[str]) -> bool:
    """Whether it is the empty half of what torchrun redirects: a worker that printed nothing on one of its two streams."""
    if entry.name not in {"stdout.log", "stderr.log"} or torchrun_run(entry.path) is None:
        return False
    try:
        return entry.is_file(follow_symlinks=False) and not entry.stat().st_size
    except OSError:
        return False


@dataclass(slots=True)
class _Walk:
    """Visits every file and folder once, by what it is and not by its name, so that no loop of links can hold it."""

    limits: Limits
    files: int = 0
    seen: set[int] = field(default_factory=set)
    links: list[str] = field(default_factory=list)

    def visit(self, path: str, depth: int = 0) -> Iterator[Found | Unread]:
        """Yield what is at and below one path."""
        try:
            status = Path(path).stat()
        except OSError as error:
            yield unread(path, f"it cannot be opened: {error.strerror or error}", "refused")
            return
        identity = _identity(status)
        if identity in self.seen or self.files >= self.limits.files:
            return
        self.seen.add(identity)
        if stat.S_ISDIR(status.st_mode):
            yield from self.folder(path, depth)
        elif stat.S_ISREG(status.st_mode):
            self.files += 1
            at = status.st_mtime if status.st_mtime > EARLIEST_AT else None
            yield Found(path, printable(path), status.st_size, at)
        else:
            yield unread(path, f"a {_kind(status.st_mode)} is not read: save its content to a file", "refused")

    def folder(self, path: str, depth: int) -> Iterator[Found | Unread]:
        """Yield what is in one folder, sorted; its links wait until everything else was visited under its own name."""
        if depth > self.limits.directory_depth:
            yield unread(path, f"folders nest deeper than {self.limits.directory_depth}: name this one itself", "limit")
            return
        try:
            with os.scandir(path) as entries:
                inner = sorted(islice(entries, self.limits.files + 1), key=lambda entry: entry.name)
        except OSError as error:
            yield unread(path, f"the folder cannot be read: {error.strerror or error}", "refused")
            return
        empty = 0
        inner = [entry for entry in inner if not _silent(entry)]
        for entry in inner:
            if entry.is_symlink():
                self.links.append(entry.path)
                continue
            for found in self.visit(entry.path, depth + 1):
                empty += isinstance(found, Found) and not found.size_bytes and found.path == entry.path
                if empty <= EMPTY_FILES_NAMED or isinstance(found, Unread) or found.size_bytes:
                    yield found
        if empty > EMPTY_FILES_NAMED:
            yield unread(path, f"{empty - EMPTY_FILES_NAMED:,} more empty files in this folder", "empty")

    def linked(self) -> Iterator[Found | Unread]:
        """Yield the files that links lead to, unless they were visited; a link to a folder is not followed."""
        for path in self.links[: self.limits.files]:
            try:
                status = Path(path).stat()
            except OSError as error:
                yield unread(path, f"a link that leads nowhere: {error.strerror or error}", "empty")
                continue
            if stat.S_ISDIR(status.st_mode):
                if _identity(status) in self.seen:  # what is in it is read under its own name
                    continue
                yield unread(path, "a link to a folder is not followed: name the folder itself", "refused")
            else:
                yield from self.visit(path)


def _identity(status: os.stat_result) -> int:
    return status.st_dev << 64 | status.st_ino


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "FIFO",
        stat.S_IFSOCK: "socket",
        stat.S_IFCHR: "character device",
        stat.S_IFBLK: "block device",
    }
    return kinds.get(stat.S_IFMT(mode), "special file")


def find(paths: Iterable[str | os.PathLike[str]], limits: Limits) -> Iterator[Found | Unread]:
    """Walk the paths in the order given, folders sorted, links last; what is not a readable file is an ``Unread``."""
    walk = _Walk(limits)
    for path in paths:
        yield from walk.visit(os.fspath(path))
    yield from walk.linked()
    if walk.files >= limits.files:
        yield Unread(reason=f"only the first {limits.files:,} files are read: name fewer", outcome="limit")


def open_found(found: Found, limits: Limits) -> Iterator[Input | Unread]:
    """Open one file and, where it is a container, its members. An ``Input`` is valid until the next one is asked for."""
    if not found.size_bytes:
        yield unread(found.path, "an empty file", "empty")
        return
    try:
        # O_NONBLOCK: should a FIFO have taken the file's place since the walk, this does not wait for its writer.
        descriptor = os.open(found.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        yield unread(found.path, f"it cannot be opened: {error.strerror or error}", "refused")
        return
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            yield unread(found.path, "it is no longer a file", "refused")
            return
        opener = _Opener(limits, Budget(limits, found.size_bytes), found.at)
        yield from opener.open(file.read, found.source, 0, file)


@dataclass(slots=True)
class _Opener:
    limits: Limits
    budget: Budget
    at: float | None
    members: int = 0

    def open(self, take: Take, source: str, depth: int, file: BinaryIO | None = None) -> Iterator[Input | Unread]:
        """Yield the inputs in one layer; ``file`` is set where it can be sought in."""
        raw = Bounded(take, self.limits.file_bytes)
        stream = Opened(raw)
        head = stream.peek(HEAD_BYTES)[:HEAD_BYTES]
        if not head:
            yield self._ended(raw, source) or unread(source, "an empty file", "empty")
            return
        container = _container(head)
        if container is None:
            owner = whose(source)
            yield Input(source, stream, head, owner.rank, owner.node, self.at, trailing_number(source))
        elif container not in ("gzip", "zstd", "tar", "zip"):
            yield unread(source, f"{container} is not opened: unpack it by hand", "refused")
        elif depth >= self.limits.depth:
            yield unread(source, f"archives nest deeper than {self.limits.depth}: unpack it by hand", "limit")
        elif container in ("gzip", "zstd"):
            yield from self.open(
                (gunzip if container == "gzip" else unzstd)(stream.read, self.budget), source, depth + 1
            )
        else:
            yield from self._members(container, stream, source, depth, file)

    def _members(
        self, container: str, stream: Opened, source: str, depth: int, file: BinaryIO | None
    ) -> Iterator[Input | Unread]:
        try:
            if container == "tar":
                members = archives.tar_members(stream.read)
            else:
                members = archives.zip_members(file or self._held(stream), self.budget)
            for member in members:
                self.members += 1
                if self.members > self.limits.files:
                    raise Exceeded(f"only its first {self.limits.files:,} files are read: unpack it by hand")
                self.at = member.at if member.at is not None and member.at > EARLIEST_AT else None
                name = f"{source}:{printable(member.name)}"
                yield from self.open(member.take, name, depth + 1)
        except archives.Unwanted as error:
            yield unread(source, str(error))
        except Exceeded as error:
            yield unread(source, str(error), "limit")
        except (OSError, EOFError, ValueError) as error:
            yield unread(source, f"the archive is damaged: {error}", "damaged")
        if ended := self._ended(stream.bounded, source):
            yield ended

    def _held(self, stream: Opened) -> BinaryIO:
        data = stream.read(self.limits.nested_zip_bytes + 1)
        if len(data) > self.limits.nested_zip_bytes:
            raise Exceeded(f"a zip inside an archive is opened up to {self.limits.nested_zip_bytes:,} bytes: unpack it")
        return io.BytesIO(data)

    @staticmethod
    def _ended(raw: Bounded, source: str) -> Unread | None:
        if raw.trouble is None:
            return None
        return unread(source, raw.trouble.reason, raw.trouble.outcome, raw.trouble.offset)


def _container(head: bytes) -> str | None:
    if head.startswith(GZIP):
        return "gzip"
    if head.startswith(ZSTD):
        return "zstd"
    if head.startswith(ZIP):
        return "zip"
    if head[257:262] == b"ustar":
        return "tar"
    return next((name for magic, name in UNOPENED.items() if head.startswith(magic)), None)


def trouble(input: Input) -> Unread | None:
    """Return why the input's stream ended early, once it has been read; None: it did not."""
    found = input.stream.bounded.trouble if isinstance(input.stream, Opened) else None
    if found is None:
        return None
    return unread(input.source, f"{found.reason}; what came before is used", found.outcome, found.offset)
