"""Lines of a text file, whatever their length: what every reader of text begins with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

CHUNK_BYTES = 1 << 16
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
