"""Small files of /proc and /sys: read in one go, bounded, and None where they cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

FILE_BYTES = 1 << 20  # of one file; a mountinfo of 5,000 mounts has half of that
PIECE_BYTES = 1 << 16


def read(path: Path | str, most_bytes: int = FILE_BYTES) -> bytes:
    """Return the beginning of a file; raise OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, min(most_bytes, PIECE_BYTES))
        while data and (left := most_bytes - len(data)) and (more := os.read(descriptor, min(left, PIECE_BYTES))):
            data += more
        return data
    finally:
        os.close(descriptor)


def text(path: Path | str) -> str | None:
    """Return a file's content without the white space around it; None where it is absent or not readable.

    A counter of a port that is down, or a value that a driver does not know, fails with EINVAL or EIO: no reading.
    """
    try:
        return read(path).decode(errors="replace").strip()
    except OSError:
        return None


def number(path: Path | str) -> int | None:
    """Return the integer at the beginning of a file ("4: ACTIVE" is 4); None where it has none that fits 64 bits."""
    return integer(text(path))


def integer(content: str | None) -> int | None:
    """Return the integer at the beginning of a text, None where it has none that a counter's column can hold."""
    first = (content or "").partition(" ")[0].rstrip(":")
    digits = first.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
        return None
    return value if -(1 << 63) < (value := int(first)) < 1 << 63 else None


def pairs(content: str | None) -> dict[str, int]:
    """Return the numbers of "name number" lines, as in vmstat, meminfo ("name: number kB") and cpu.stat."""
    found = {}
    for line in (content or "").splitlines():
        name, *values = line.split()[:2] or [""]
        value = integer(values[0]) if values else None
        if value is not None:
            found[name.rstrip(":")] = value
    return found


def names(folder: Path | str) -> list[str]:
    """Return the names in a folder, sorted; none where it is absent or not readable."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def process_ids(proc: Path | str) -> list[int]:
    """Return the ids of the processes below a /proc, in order; raise OSError."""
    with os.scandir(proc) as entries:
        return sorted(int(entry.name) for entry in entries if entry.name.isascii() and entry.name.isdigit())
