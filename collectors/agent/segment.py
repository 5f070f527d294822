"""A segment of the spool: a file to which every run's yield is appended at once, until it is sealed into a batch.

    0   8  magic   "FHSEGMT" and the version, 1
    8   …  frames, each
             0   4  CRC-32 of the body
             4   4  length of the body
             8   …  body: MessagePack array [records, each a block of one; ticks; cursors by collector; UTC seconds]

A frame is whole or it is not there: what an agent that was killed had half written is the run that it had not finished.
Where the disk takes nothing (full, read-only) the frames stay in memory until the segment is sealed.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from collectors.agent.columns import SampleTick

MAGIC = b"FHSEGMT\x01"
FRAME = struct.Struct("<II")
FRAME_BYTES_MAX = 64 << 20


class Entry(msgspec.Struct, array_like=True):
    """What is appended together: all of it is kept, or nothing."""

    records: list[
        bytes
    ] = []  # blocks of one record: encoded once, when the collector yields, which proves that it can be
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
    """The open end of the spool. Not safe for threads by itself: the spool's lock is around it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = 0  # of whole frames, wherever they are
        self.memory: list[bytes] = []
        self.error: OSError | None = None  # why the disk took nothing
        self._file: int | None = None
        try:
            self._file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)
            self._write(MAGIC)
        except OSError as error:
            self._give_up(error)

    def append(self, entry: Entry) -> None:
        """Keep the entry; when this returns, a kill of the agent cannot lose it (unless the disk took nothing)."""
        body = _encoder.encode(entry)
        frame = FRAME.pack(zlib.crc32(body), len(body)) + body
        if self._file is not None:
            try:
                self._write(frame)
            except OSError as error:
                self._give_up(error)
        if self._file is None:
            self.memory.append(frame)
        self.bytes += len(frame)

    @property
    def memory_bytes(self) -> int:
        """Return the bytes that no disk holds."""
        return sum(map(len, self.memory))

    def entries(self) -> Iterator[Entry]:
        """Yield what was appended, from the file and then from memory."""
        with contextlib.suppress(OSError):
            yield from read(self.path)
        for frame in self.memory:
            yield _decoder.decode(frame[FRAME.size :])

    def close(self) -> None:
        """Close the file; nothing can be appended any more."""
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
        if self._file is not None:
            self.close()  # a half frame at its end is not read: nothing is appended behind it


def read(path: Path) -> Iterator[Entry]:
    """Yield the whole frames of a segment's file, up to the first that is cut or damaged."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return
        while len(header := file.read(FRAME.size)) == FRAME.size:
            checksum, length = FRAME.unpack(header)
            if length > FRAME_BYTES_MAX:
                return
            body = file.read(length)
            if len(body) < length or zlib.crc32(body) != checksum:
                return
            try:
                yield _decoder.decode(body)
            except msgspec.DecodeError:  # a later version's; its checksum says that it is not damage
                continue
