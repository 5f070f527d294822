"""A block is a batch of records as bytes: on a pipe, on the wire, in a spool, in a bundle. Version 1, little-endian.

    0   8  magic   "FHBLOCK" and the version, 1
    8   1  packing 0 none, 1 zstd
    9   4  CRC-32 of the body as it stands here
   13   8  length of the body as it stands here
   21   …  body: MessagePack array [member lists, records]

A member list is int32 bytes and written once; a record's ``Members`` is its number. Records are maps with their ``kind``
first. A record that this version cannot use, of a kind that it does not know or with a value outside its bounds, is skipped
and counted, never an error: the block itself is what is kept, so that a later version reads it in full.

Every reader of records decodes them here. Whatever the bytes are, ``Damaged`` is the only exception.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, get_args

import msgspec

from collectors.records import (
    AnyRecord,
    CollectiveTimings,
    FlightRecorderDump,
    Members,
    OpTimings,
    Record,
    Ring,
    Samples,
    Steps,
    StragglerReports,
)
from collectors.records.record import Damaged

MAGIC = b"FHBLOCK\x01"
HEADER = struct.Struct("<8sBIQ")
LARGEST_BODY_BYTES = 1 << 30  # unpacked
LARGEST_RECORD_BYTES = (
    1 << 20
)  # packed, as they stand in the body: texts and numbers take up to 20 times that in memory
LARGEST_COLUMNS_BYTES = (
    6 << 20
)  # of a record with columns, which take what they are: a recorder of 20,000 entries has 3 MB
ZSTD_LEVEL = 3
KNOWN_KINDS = frozenset(str(kind.__struct_config__.tag) for kind in get_args(AnyRecord))
_IN_COLUMNS = (FlightRecorderDump, Ring, Steps, CollectiveTimings, OpTimings, Samples, StragglerReports)
# What a decoder raises for bytes that are no record: RecursionError for nesting, UnicodeDecodeError for a text.
_NO_RECORD = (msgspec.DecodeError, ValueError, OverflowError, RecursionError)


@dataclass(slots=True)
class Decoded:
    """What a block holds: its records, and how many of which kind this version could not use."""

    records: list[Record]
    skipped: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0  # of the body, unpacked

    @property
    def malformed(self) -> int:
        """Return how many of the skipped records are of kinds that this version knows, or of none."""
        return sum(count for kind, count in self.skipped.items() if kind in KNOWN_KINDS or kind == "?")

    def left_out(self) -> Iterator[str]:
        """Yield a sentence for each kind of record that was skipped."""
        for kind, count in sorted(self.skipped.items()):
            known = kind in KNOWN_KINDS or kind == "?"
            why = "a value is outside its bounds" if known else "this version does not know the kind: update it"
            yield f"{count:,} records of kind {kind!a} were left out: {why}"

    def skip(self, raw: bytes | msgspec.Raw) -> None:
        """Count a record that cannot be used."""
        try:
            kind = msgspec.msgpack.decode(raw, type=_Kind).kind[:64]
        except _NO_RECORD:
            kind = "?"
        self.skipped[kind] = self.skipped.get(kind, 0) + 1


class TooLarge(Damaged):
    """The block may be whole, but it is larger than who reads it allows."""


class _Kind(msgspec.Struct):
    kind: str = "?"


MEDIA_TYPE = "application/vnd.faulthound.block"


def encode(records: Iterable[Record], *, pack: bool = False) -> bytes:
    """Return the records as one block; ``pack`` compresses it with zstd."""
    numbers: dict[bytes, int] = {}

    def number(value: Any) -> int:
        if isinstance(value, Members):
            return numbers.setdefault(value.data, len(numbers))
        raise TypeError(f"a record holds a {type(value).__name__}, which no block can")

    # The records come first in time and second in the body: encoding them is what fills the table.
    body = msgspec.msgpack.Encoder(enc_hook=number).encode(list(records))
    body = b"\x92" + msgspec.msgpack.encode(list(numbers)) + body
    if pack:
        body = _zstd().compress(body, ZSTD_LEVEL)
    return HEADER.pack(MAGIC, int(pack), zlib.crc32(body), len(body)) + body


def decode(data: bytes | memoryview) -> list[Record]:
    """Return the records of a block; those of unknown kinds are left out."""
    return decode_counting(data).records


def decode_counting(data: bytes | memoryview, *, largest_bytes: int = LARGEST_BODY_BYTES) -> Decoded:
    """Return the records of a block and what was skipped; raise ``Damaged`` where the bytes are not what was written.

    ``largest_bytes`` bounds the body once it is unpacked: a stranger's few bytes may unpack to anything.
    """
    return decode_body(body(data, largest_bytes=largest_bytes))


def decode_body(content: bytes | memoryview) -> Decoded:
    """Return the records of an unpacked body."""
    try:
        lists, records = msgspec.msgpack.decode(content, type=tuple[list[bytes], msgspec.Raw])
        members = _Members(lists)
        decoded = _together(records, members) if len(records) <= LARGEST_RECORD_BYTES else None
        decoded = decoded or _one_by_one(records, members)
    except MemoryError as error:
        raise Damaged(f"there is no memory for the {len(content):,} bytes of the block's body") from error
    except Exception as error:
        raise Damaged(f"the block's body at byte {HEADER.size} is no list of records: {error}") from error
    decoded.size_bytes = len(content)
    return decoded


class _Members:
    """A block's member lists. A record that names one that is missing, or that no group has, is skipped."""

    def __init__(self, lists: list[bytes]) -> None:
        self._lists = [Members.intern(data) for data in lists]
        self._usable: dict[int, bool] = {}  # found out where a record first names it

    def __call__(self, kind: type, value: Any) -> Any:
        """Return the list of a number."""
        if kind is Members and type(value) is int and 0 <= value < len(self._lists):
            if value not in self._usable:
                self._usable[value] = self._lists[value].usable
            if self._usable[value]:
                return self._lists[value]
        raise ValueError(f"member list {value!r} is none of the block's {len(self._lists)}, or no row of 32-bit ranks")


def _together(records: msgspec.Raw, members: _Members) -> Decoded | None:
    """Decode all records at once; None where one of them cannot be used."""
    try:
        return Decoded(msgspec.msgpack.decode(records, type=list[AnyRecord], dec_hook=members))
    except _NO_RECORD:
        return None


def _one_by_one(records: msgspec.Raw, members: _Members) -> Decoded:
    one = msgspec.msgpack.Decoder(AnyRecord, dec_hook=members)
    decoded = Decoded([])
    for raw in msgspec.msgpack.decode(records, type=list[msgspec.Raw]):
        try:
            record = one.decode(raw) if len(raw) <= LARGEST_COLUMNS_BYTES else None
        except _NO_RECORD:
            record = None
        if record is None or (len(raw) > LARGEST_RECORD_BYTES and not isinstance(record, _IN_COLUMNS)):
            decoded.skip(raw)
        else:
            decoded.records.append(record)
    return decoded


def body(data: bytes | memoryview, *, largest_bytes: int = LARGEST_BODY_BYTES) -> bytes | memoryview:
    """Return the body, unpacked and checked against its checksum; raise ``Damaged``, and ``TooLarge`` past the bound."""
    if len(data) < HEADER.size:
        raise Damaged(
            f"a block has a header of {HEADER.size} bytes and this has {len(data)}: it was cut at byte {len(data)}"
        )
    magic, packing, checksum, length = HEADER.unpack_from(data)
    if magic[:7] != MAGIC[:7]:
        raise Damaged(f"this is no block: byte 0 begins {magic!r}, not {MAGIC!r}")
    if magic != MAGIC or packing > 1:
        raise Damaged(f"block version {magic[7]}, packing {packing} at byte 7 is newer than this program: update it")
    content = memoryview(data)[HEADER.size : HEADER.size + length]
    if len(content) < length:
        raise Damaged(f"the block's body is {length:,} bytes long and was cut at byte {len(data):,}")
    if zlib.crc32(content) != checksum:
        raise Damaged(f"the block's body at byte {HEADER.size} does not match its checksum: a part of it was changed")
    if packing:
        return _unpack(content, largest_bytes)
    if length > largest_bytes:
        raise TooLarge(f"the block's body is {length:,} bytes long: more than {largest_bytes:,} are not read here")
    return content


def _unpack(body: memoryview, largest_bytes: int) -> bytes:
    zstd = _zstd()
    try:
        data: bytes = (unpacker := zstd.ZstdDecompressor()).decompress(body, largest_bytes)
    except zstd.ZstdError as error:
        raise Damaged(f"the block's body at byte {HEADER.size} does not unpack: {error}") from error
    if not unpacker.eof and len(data) >= largest_bytes:
        raise TooLarge(f"the block's body unpacks to more than {largest_bytes:,} bytes, which are not read here")
    if not unpacker.eof:
        raise Damaged("the packed body of the block stops before its end")
    return data


@cache  # an import that fails is tried anew each time, through every folder of the path
def _zstd() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found, unused-ignore]  # standard library from 3.14
    except ImportError:
        from backports import zstd
    return zstd
