"""Small files of /proc and /sys: read in one go, bounded, and None where there is nothing to read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

FILE_BYTES = 1 << 20  # of one file; a mountinfo of 5,000 mounts has half of that


def text(path: Path | str) -> str | None:
    """Return what a file holds, without the white space around it; None where it is absent or not readable.

    A counter of a port that is down, or a value that a driver does not know, fails with EINVAL or EIO: that is no reading.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        pieces, size = [], 0
        while size < FILE_BYTES and (piece := os.read(descriptor, 1 << 16)):
            pieces.append(piece)
            size += len(piece)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode(errors="replace").strip()


def number(path: Path | str) -> int | None:
    """Return the integer that a file begins with ("4: ACTIVE" is 4); None where it has none, or none that fits 64 bits."""
    return integer(text(path))


def integer(content: str | None) -> int | None:
    """Return the integer that a text begins with, None where it has none, or none that a counter's column can hold."""
    first = (content or "").partition(" ")[0].rstrip(":")
    digits = first.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        return None
    return value if -(1 << 63) < (value := int(first)) < 1 << 63 else None


def pairs(content: str | None) -> dict[str, int]:
    """Return the numbers of a file of "name number" lines, such as vmstat, meminfo ("name: number kB") and cpu.stat."""
    found = {}
    for line in (content or "").splitlines():
        name, *values = line.split()[:2] or [""]
        value = integer(values[0]) if values else None
        if value is not None:
            found[name.rstrip(":")] = value
    return found


def names(folder: Path) -> list[str]:
    """Return the names in a folder, sorted; none where it is absent or not readable."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def processes(proc: Path) -> Iterator[int]:
    """Yield the ids of the processes below a /proc, in the order of the ids."""
    yield from sorted(int(name) for name in names(proc) if name.isascii() and name.isdigit())
