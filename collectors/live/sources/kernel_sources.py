"""Where a live kernel log comes from: /dev/kmsg, or journald where that may not be opened. Both give (number, position, line)."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import subprocess
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

READ_BYTES = 1 << 16  # /dev/kmsg gives one record a read, of 8 KiB at most
LINE_BYTES = 1 << 16  # of a longer line the rest is passed over


_SEQUENCE = re.compile(rb"\d{1,9},(\d{1,18}),")

Line = tuple[int, int | str, str]
"""A line's number, the position that a later look goes on after, and its text."""


class Source(Protocol):
    """A kernel log that grows. A look gives what came since the last one and never waits; it may be ended early."""

    name: str
    ended: str  # why nothing will come any more; "" while it may

    def lines(self) -> Iterator[Line]:
        """Yield what is new, then end."""

    def close(self) -> None:
        """Let the source go."""


class Kmsg:
    """/dev/kmsg, without waiting. Numbers are the kernel's own: they count every record since boot."""

    name = "/dev/kmsg"

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._held = b""
        self._ready: deque[bytes] = deque()
        self.ended = ""

    def lines(self) -> Iterator[Line]:
        """Yield each record's first line; lines that continue a record (its device) have none and are left out."""
        while self._ready or self._fill():
            line = self._ready.popleft()
            if found := _SEQUENCE.match(line):
                number = int(found[1])
                yield number, number, line.decode(errors="replace")

    def _fill(self) -> bool:
        """Read until there is a whole line; tell whether there is one."""
        while not self._ready and (data := self._read()) is not None:
            *whole, self._held = (self._held + data).split(b"\n")
            self._held = self._held[:LINE_BYTES]
            self._ready += whole
        return bool(self._ready)

    def _read(self) -> bytes | None:
        while True:
            try:
                return os.read(self._file, READ_BYTES) or None
            except BlockingIOError:
                return None
            except OSError as error:
                if error.errno != errno.EPIPE:  # overwritten: the next read begins with the oldest record there is
                    raise

    def close(self) -> None:
        """Close the device."""
        os.close(self._file)


class _Entry(msgspec.Struct):
    position: str = msgspec.field(name="__CURSOR", default="")


_entry = msgspec.json.Decoder(_Entry)


class Journal:
    """``journalctl`` that follows the kernel's part of this boot's journal. Numbers only count its lines."""

    name = "journal"

    def __init__(self, program: str, options: Sequence[str], after: str | None) -> None:
        command = [program, "--dmesg", "--output=json", "--all", "--follow", "--no-tail", "--quiet", *options]
        if after:
            command.append(f"--after-cursor={after}")
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)
        self._held = b""
        self._ready: deque[bytes] = deque()
        self._number = 0
        self.ended = ""

    def lines(self) -> Iterator[Line]:
        """Yield the entries; a position is journald's own name for one."""
        while self._ready or self._fill():
            line = self._ready.popleft()
            self._number += 1
            try:
                position = _entry.decode(line).position
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            yield self._number, position, line.decode(errors="replace")

    def _fill(self) -> bool:
        """Read what the pipe has until there is a whole line; tell whether there is one."""
        assert self._child.stdout is not None
        while not (self._ready or self.ended) and select.select([self._child.stdout], [], [], 0)[0]:
            data = os.read(self._child.stdout.fileno(), READ_BYTES)
            *whole, self._held = (self._held + data).split(b"\n")
            self._held = self._held[:LINE_BYTES]
            self._ready += whole
            if not data:
                self._explain()
        return bool(self._ready)

    def _explain(self) -> None:
        """Say why journalctl ended, in its own words."""
        assert self._child.stderr is not None
        said = os.read(self._child.stderr.fileno(), 4096) if select.select([self._child.stderr], [], [], 1)[0] else b""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1)
        self.ended = said.decode(errors="replace").strip() or f"it ended with exit code {self._child.poll()}"

    def close(self) -> None:
        """End journalctl and take its pipes back."""
        self._child.kill()
        self._child.communicate()
