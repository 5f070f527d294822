"""Foreign bytes are read through bounded streams: nothing here holds more than it was asked for.

A stream never raises for what the file does. It ends, and its ``trouble`` gives why and where, so that a reader keeps what
came before and the caller reports the rest.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Take = Callable[[int], bytes]
"""Read up to so many bytes; ``b""`` is the end."""

CHUNK_BYTES = 1 << 16
PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What foreign files may cost. A file over a limit is cut there and reported, never refused silently."""

    file_bytes: int = 8 << 30  # of one file or archive member, after decompression
    total_bytes: int = 256 << 30  # of everything read in one call
    compression_ratio: int = 400  # bytes out for a byte in; repetitive text reaches about 200 with zstd
    ratio_floor_bytes: int = 64 << 20  # below this any ratio will do: tiny files of zeros compress a thousandfold
    files: int = 500_000  # files and archive members
    depth: int = 3  # containers inside containers: .tar.gz is two
    directory_depth: int = 64
    nested_zip_bytes: int = 64 << 20  # a zip inside an archive is held whole, because its index is at its end
    zip_index_bytes: int = 16 << 20  # the index is held as objects of about ten times its size
    child_bytes: int = (
        192 << 20
    )  # address space that reading a small file may add to a child process; more for a large one
    seconds_per_file: float = 60.0  # of the processor without a record, and one second more for each MiB


class Exceeded(Exception):
    """A limit was reached; the message names it."""


@dataclass(slots=True)
class Budget:
    """What the decompressors of one outer file have put out so far, against its size on disk."""

    limits: Limits
    packed_bytes: int
    unpacked_bytes: int = 0

    def spend(self, count: int) -> None:
        """Count ``count`` decompressed bytes; raise ``Exceeded`` once they are more than an honest file gives."""
        self.unpacked_bytes += count
        most = max(self.limits.ratio_floor_bytes, self.limits.compression_ratio * self.packed_bytes)
        if self.unpacked_bytes > most:
            raise Exceeded(
                f"it unpacks to more than {most:,} bytes from {self.packed_bytes:,}, as a zip bomb does: "
                "unpack it by hand if it is honest"
            )


@dataclass(frozen=True, slots=True)
class StreamTrouble:
    """Why a stream ended before the file did."""

    outcome: Literal["damaged", "limit"]
    reason: str
    offset: int


class Bounded(io.RawIOBase):
    """The raw side of an opened input: at most ``most_bytes``, and an end instead of an exception."""

    def __init__(self, take: Take, most_bytes: int) -> None:
        self._take = take
        self._left = most_bytes
        self.offset = 0
        self.trouble: StreamTrouble | None = None
        self.moved: Callable[[int], None] | None = None  # called with the offset, once it grew

    def readable(self) -> bool:
        """Say that it can be read, as io.BufferedReader asks."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill the whole buffer unless the file ends, so that a peek shows the whole head."""
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view) and (data := self._next(len(view) - filled)):
            view[filled : filled + len(data)] = data
            filled += len(data)
        return filled

    def _next(self, size: int) -> bytes:
        if self.trouble is not None:
            return b""
        try:
            data = self._take(min(size, self._left) or 1)
            if data and not self._left:
                raise Exceeded(f"only its first {self.offset:,} bytes are read: split it")
        except Exceeded as error:
            self.trouble = StreamTrouble("limit", str(error), self.offset)
            return b""
        except (OSError, EOFError, ValueError, RuntimeError, zlib.error) as error:
            self.trouble = StreamTrouble("damaged", f"{error or type(error).__name__}", self.offset)
            return b""
        self._left -= len(data)
        self.offset += len(data)
        if self.moved is not None:
            self.moved(self.offset)
        return data


class Opened(io.BufferedReader):
    """An opened input. A read of more bytes than the input has allocates only the bytes that the input has."""

    def __init__(self, raw: Bounded) -> None:
        super().__init__(raw, CHUNK_BYTES)
        self.bounded = raw

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as any buffered reader does, but in pieces: the standard one allocates ``size`` bytes at once."""
        if size is not None and 0 <= size <= PIECE_BYTES:
            return super().read(size)
        pieces: list[bytes] = []
        left = size if size is not None and size >= 0 else 1 << 62
        while left and (piece := super().read(min(left, PIECE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def gunzip(take: Take, budget: Budget) -> Take:
    """Decompress gzip, members one after the other, at most what is asked for at a time."""
    inflate = zlib.decompressobj(wbits=31)
    pending = b""

    def read(size: int) -> bytes:
        nonlocal inflate, pending
        while True:
            if inflate.eof:
                pending = (inflate.unused_data or take(CHUNK_BYTES)).lstrip(b"\0")  # gzip allows padding after a member
                if not pending:
                    return b""
                inflate = zlib.decompressobj(wbits=31)
            pending = pending or take(CHUNK_BYTES)
            if not pending and not inflate.eof:
                raise EOFError("the gzip data stops before its end")
            data = inflate.decompress(pending, size)
            pending = inflate.unconsumed_tail
            if data:
                budget.spend(len(data))
                return data

    return read


def unzstd(take: Take, budget: Budget) -> Take:
    """Decompress zstd, frames one after the other; a window above 128 MiB is refused by the library."""
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # standard library from 3.14
    except ImportError:
        from backports import zstd
    options = {zstd.DecompressionParameter.window_log_max: 27}
    frame = zstd.ZstdDecompressor(options=options)

    def read(size: int) -> bytes:
        nonlocal frame
        while True:
            packed = b""
            if frame.eof:
                packed = frame.unused_data or take(CHUNK_BYTES)
                if not packed:
                    return b""
                frame = zstd.ZstdDecompressor(options=options)
            elif frame.needs_input:
                packed = take(CHUNK_BYTES)
                if not packed:
                    raise EOFError("the zstd data stops before its end")
            try:
                data = frame.decompress(packed, size)
            except zstd.ZstdError as error:
                raise ValueError(str(error)) from error
            if data:
                budget.spend(len(data))
                return bytes(data)

    return read
