"""The lines of a table as CSV. Each stands for itself: one that is no CSV, or has a quote without an end, costs no other."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import BinaryIO

from collectors.formats.text_lines import lines

LONGEST_HEADER = 4096


def header_of(head: bytes) -> list[str]:
    """Return the names of the first line, none where it is no line of names."""
    first = head.split(b"\n", 1)[0].decode("utf-8-sig", errors="replace").strip("\r")
    return _fields(first) if len(first) <= LONGEST_HEADER and first.isprintable() else []


def is_table(head: bytes) -> bool:
    """Whether the line below the names has as many fields as they are."""
    second = head.split(b"\n", 2)[1:2]
    return bool(second) and len(_fields(second[0].decode(errors="replace").rstrip("\r"))) == len(header_of(head))


def rows(stream: BinaryIO) -> Iterator[list[str]]:
    """Yield the fields of each line below the names but for empty ones; no field of what is no CSV."""
    for number, text in lines(stream):
        if number > 1 and text:
            yield _fields(text)


def _fields(text: str) -> list[str]:
    try:
        return next(csv.reader((text,)), [])
    except csv.Error:
        return []


def whole(text: str) -> int:
    """Return a whole number, -1 for an empty field; a step beyond 64 bits raises."""
    if not text.strip():
        return -1
    value = int(text) if text.strip().lstrip("-").isdigit() else int(float(text))
    if not -(1 << 62) < value < 1 << 62:
        raise ValueError(text)
    return value
