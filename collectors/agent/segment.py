"""A segment of the spool: a file to which each run's yield is appended at once, until it is sealed into a batch.

    0   8  magic   "FHSEGMT" and the version, 1
    8   …  frames, each
             0   4  CRC-32 of the body
             4   4  length of the body
             8   …  body: MessagePack array [records, each a block of one; ticks; cursors by collector; UTC seconds]

A frame that a killed agent wrote only in part is not read: its run had not finished. Where the disk takes nothing (full,
read-only) the frames stay in memory until the segment is sealed.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

MAGIC = b"FHSEGMT\x01"
FRAME = struct.Struct("<II")
FRAME_BYTES_MAX = 64 << 20


class SampleTick(msgspec.Struct, frozen=True, array_like=True):
    """One ``Readings`` in a segment: ``values`` raw, device after device."""

    source: str  # the collector
    scope: str
    type: Literal["<f4", "<i8"]
    devices: tuple[str, ...]
    metrics: tuple[str, ...]
    at: float
    monotonic_at: float
    boot_id: str | None
    values: bytes


class Entry(msgspec.Struct, array_like=True):
    """What is appended together: all of it is kept, or nothing."""

    records: list[bytes] = []  # blocks of one record, encoded when yielded, which proves that each can be
    ticks: list[SampleTick] = []
    cursors: dict[str, Any] = {}
    at: float = 0.0  # UTC seconds of the appending

    def size_bytes(self) -> int:
        """Return about how many bytes its frame has."""
        return sum(map(len, self.records)) + sum(len(tick.values) for tick in self.ticks)

    def __bool__(self) -> bool:
        return bool(self.records or self.ticks or self.cursors)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)


class Segment:
    """The open end of the spool. Not safe for threads by itself: the spool holds its lock around it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0  # of whole frames, on disk and in memory
        self.error: OSError | None = None  # why the disk took nothing
        self._memory: list[bytes] = []
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            self._write(MAGIC)
        except OSError as error:
            self._give_up(error)

    def append(self, entry: Entry) -> None:
        """Keep the entry; after the return a kill of the agent cannot lose it, unless the disk took nothing."""
        body = _encoder.encode(entry)
        frame = FRAME.pack(zlib.crc32(body), len(body)) + body
        if self._file is not None:
            try:
                self._write(frame)
            except OSError as error:
                self._give_up(error)
        if self._file is None:
            self._memory.append(frame)
        self.bytes += len(frame)

    def entries(self) -> Iterator[Entry]:
        """Yield what was appended, from the file and then from memory."""
        with contextlib.suppress(OSError):
            yield from read(self.path)
        for frame in self._memory:
            yield _decoder.decode(frame[FRAME.size :])

    def close(self) -> None:
        """Close the file; nothing can be appended after this."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def _give_up(self, error: OSError) -> None:
        self.error = error
        self.close()  # the reader stops at a half frame: nothing may be appended behind it


def read(path: Path) -> Iterator[Entry]:
    """Yield the whole frames of a segment's file, up to the first that is cut or damaged."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return
        while len(header := file.read(FRAME.size)) == FRAME.size:
            checksum, length = FRAME.unpack(header)
            body = file.read(length) if length <= FRAME_BYTES_MAX else b""
            if len(body) < length or zlib.crc32(body) != checksum:
                return
            try:
                yield _decoder.decode(body)
            except msgspec.DecodeError:  # a later version's frame: its checksum is right
                continue
