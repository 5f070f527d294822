"""Sources of a live kernel log: /dev/kmsg, or journald where that may not be opened. Both yield (number, position, line)."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import select
import subprocess
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

READ_BYTES = 1 << 16  # /dev/kmsg gives one record a read, of 8 KiB at most
LINE_BYTES = 1 << 16  # the rest of a longer line is ignored

_SEQUENCE = re.compile(rb"\d{1,9},(\d{1,18}),")

Line = tuple[int, int | str, str]
"""A line's number, the position after which a later read continues, and its text."""


class Source(ABC):
    """A kernel log that grows. ``lines`` yields what came since the last call and never waits; it may be ended early."""

    name: str

    def __init__(self) -> None:
        self.ended = ""  # why no line will come any more; "" while lines may come
        self._held = b""
        self._ready: deque[bytes] = deque()

    def lines(self) -> Iterator[Line]:
        """Yield the new lines, then end."""
        while self._ready or self._fill():
            if (line := self._parsed(self._ready.popleft())) is not None:
                yield line

    def _fill(self) -> bool:
        """Read until there is a whole line; return whether there is one."""
        while not self._ready and (data := self._read()) is not None:
            *whole, self._held = (self._held + data).split(b"\n")
            self._held = self._held[:LINE_BYTES]
            self._ready += whole
        return bool(self._ready)

    @abstractmethod
    def _parsed(self, line: bytes) -> Line | None: ...

    @abstractmethod
    def _read(self) -> bytes | None:
        """Return the next bytes, None where there are none now."""

    @abstractmethod
    def close(self) -> None:
        """Close the source."""


class Kmsg(Source):
    """/dev/kmsg, without waiting. Numbers are the kernel's own: they count every record since boot."""

    name = "/dev/kmsg"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _parsed(self, line: bytes) -> Line | None:
        found = _SEQUENCE.match(line)  # lines that continue a record (its device) have no number
        return (int(found[1]), int(found[1]), line.decode(errors="replace")) if found else None

    def _read(self) -> bytes | None:
        while True:
            try:
                return os.read(self._file, READ_BYTES) or None
            except BlockingIOError:
                return None
            except OSError as error:
                if (
                    error.errno != errno.EPIPE
                ):  # records were overwritten: the next read begins with the oldest one left
                    raise

    def close(self) -> None:
        """Close the device."""
        os.close(self._file)


class _Entry(msgspec.Struct):
    position: str = msgspec.field(name="__CURSOR", default="")


_entry = msgspec.json.Decoder(_Entry)


class Journal(Source):
    """``journalctl`` that follows the kernel's part of this boot's journal. Numbers count its lines."""

    name = "journal"

    def __init__(self, program: str, options: Sequence[str], after: str | None) -> None:
        super().__init__()
        command = [program, "--dmesg", "--output=json", "--all", "--follow", "--no-tail", "--quiet", *options]
        if after:
            command.append(f"--after-cursor={after}")
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._output, self._errors = self._child.stdout.fileno(), self._child.stderr.fileno()
        self._number = 0

    def _parsed(self, line: bytes) -> Line | None:
        self._number += 1
        try:
            position = _entry.decode(line).position  # journald's own name for an entry
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return self._number, position, line.decode(errors="replace")

    def _read(self) -> bytes | None:
        if self.ended or not select.select([self._output], [], [], 0)[0]:
            return None
        data = os.read(self._output, READ_BYTES)
        if not data:
            self._note_end()
        return data

    def _note_end(self) -> None:
        """Keep why journalctl ended, in its own words."""
        text = os.read(self._errors, 4096) if select.select([self._errors], [], [], 1)[0] else b""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1)
        self.ended = text.decode(errors="replace").strip() or f"it ended with exit code {self._child.poll()}"

    def close(self) -> None:
        """End journalctl and close its pipes."""
        self._child.kill()
        self._child.communicate()
