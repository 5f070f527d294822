"""Lines of a text file, whatever their length, and the stamps on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain
from typing import BinaryIO

_RETURN = re.compile(rb"\r(?![\r\n]|\Z)")
_DRAWN = re.compile(rb"%\||it \[|\xe2\x80\xa2|\d/(?:\d+|\?) \[")  # a bar of tqdm, rich or Keras
CHUNK_BYTES, MANY_BYTES = 1 << 16, 1 << 20
LINE_BYTES = 1 << 16


def lines(stream: BinaryIO, limit_bytes: int = LINE_BYTES) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text); of a longer line only the first ``limit_bytes``, and no more is ever held."""
    number, held, skipping = 1, b"", False
    while chunk := stream.read(CHUNK_BYTES):
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            yield number, (held if skipping else held + piece)[:limit_bytes].decode(errors="replace").rstrip("\r")
            number, held, skipping = number + 1, b"", False
        if not skipping:
            held += rest
            if len(held) > limit_bytes:
                held, skipping = held[:limit_bytes], True
    if held:
        yield number, held[:limit_bytes].decode(errors="replace").rstrip("\r")


def chunks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """Yield whole lines, a chunk at a time; of a line longer than a chunk only the beginning is held.

    Of one that a progress bar redraws for ever, the newest drawings too. A carriage return after anything else ends a line.
    """
    held, skipping = b"", False
    while data := stream.read(MANY_BYTES):
        if skipping:
            cut = data.find(b"\n")
            if cut < 0:
                continue
            data, skipping = data[cut:], False
        *lines, held = with_line_feeds(held + data).split(b"\n")
        if lines:
            yield lines
        if len(held) > LINE_BYTES:
            newest = held[max(len(held) - MANY_BYTES, LINE_BYTES) :]
            redrawn = newest.find(b"\r")
            skipping = redrawn < 0
            held = held[:LINE_BYTES] + (b"" if skipping else newest[redrawn:])
    if held:
        yield [held]


def with_line_feeds(data: bytes) -> bytes:
    """Put a line feed for each carriage return that follows neither a drawing of a bar nor blanks."""
    if b"\r" not in data or not _RETURN.search(data):
        return data
    *parts, last = _RETURN.split(data)
    ends = (
        b"\r" if not (newest := part.rpartition(b"\n")[2]).strip() or _DRAWN.search(newest) else b"\n" for part in parts
    )
    return b"".join([*chain.from_iterable(zip(parts, ends, strict=True)), last])


def shown(line: bytes) -> str:
    """Return a line as text, of a long one the beginning."""
    return line[:LINE_BYTES].decode(errors="replace").rstrip("\r")


_PLAIN_NAME = re.compile(r"(?:^|/)[^/.]{0,200}(?:\.(?:log|out|err|txt|stdout|stderr)(?:\.\w{1,12})?|\.[eo]?\d{1,12})?$")


MOST_NULS = 16
"""Bytes of zero in the head of a text: a handler of signals in C++ writes one behind its words. UTF-16 has one a letter."""


def is_text(head: bytes, source: str) -> bool:
    """Whether this is text under a name that says nothing, or a log's: a program's source quotes errors that never happened."""
    if head[:4096].count(b"\0") > MOST_NULS or _PLAIN_NAME.search(source) is None:
        return False
    text = head[:4096].decode(errors="replace")
    return sum(1 for letter in text if letter.isprintable() or letter in "\n\r\t\x1b") >= 0.9 * len(text) > 0


def utc_seconds(
    date: tuple[int, int, int], clock: tuple[str, str, str], fraction: str = "", zone: str = ""
) -> float | None:
    """Turn the parts of a stamp into UTC seconds; None where they are no date, as in a garbled line."""
    hour, minute, second = (int(part) for part in clock)
    try:
        stamp = datetime(*date, hour, minute, min(second, 59), tzinfo=UTC).timestamp()  # 60: a leap second
    except (ValueError, OverflowError):
        return None
    if fraction:
        stamp += int(fraction) / 10 ** len(fraction)
    if zone.startswith(("+", "-")):
        digits = zone[1:].replace(":", "")
        ahead = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        stamp += -ahead if zone[0] == "+" else ahead
    return stamp


def iso_seconds(parts: tuple[str | None, ...]) -> float | None:
    """Turn the groups year to second, fraction and zone of a match into UTC seconds; without a zone they are UTC."""
    year, month, day, hour, minute, second, fraction, zone = (part or "" for part in parts[:8])
    return utc_seconds((int(year), int(month), int(day)), (hour, minute, second), fraction, zone)


def local_seconds(text: str, form: str = "%Y-%m-%d %H:%M:%S") -> float | None:
    """Read a tool's local time as UTC, for it names no zone; None where it is none."""
    try:
        return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
    except (ValueError, OverflowError):
        return None
