"""A bundle is the records of an incident as the service received them: one file, read by ``faulthound diagnose``.

    0   8  magic   "FHBNDLE" and the version, 1
    8   …  entries, each
             0   4  kind      "MNFT" the manifest, JSON; "BTCH" one batch, a block as it came
             4   8  sequence  of the batch in the service's log; 0 for the manifest
            12   8  received_at, UTC seconds as float64; 0 for the manifest
            20   8  length of the body
            28   4  CRC-32 of the 28 bytes before
            32   …  body

The manifest comes first and names the job and the span. A bundle is written as a stream, so that an export of hours needs
no memory; one that was cut keeps everything before the cut, and a damaged entry costs itself. An entry of a kind that
this version does not know is skipped.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from collectors.readers import Damaged

MAGIC = b"FHBNDLE\x01"
ENTRY = struct.Struct("<4sQdQ")
CHECKSUM = struct.Struct("<I")
LARGEST_ENTRY_BYTES = 256 << 20
MANIFEST, BATCH = b"MNFT", b"BTCH"


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a bundle is of."""

    job: str
    attempt: int | None = None  # the newest in the span
    since: float = 0.0  # UTC seconds, of receipt
    until: float = 0.0
    nodes: tuple[str, ...] = ()
    version: str = ""  # of the program that wrote it
    missing: tuple[str, ...] = ()  # what the store no longer had, in words


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of the log: the block's bytes as the agent sent them."""

    sequence: int
    received_at: float
    block: bytes


def write(manifest: Manifest, batches: Iterable[Batch]) -> Iterator[bytes]:
    """Yield a bundle's bytes, a part at a time."""
    yield MAGIC
    yield _entry(MANIFEST, 0, 0.0, msgspec.json.encode(manifest))
    for batch in batches:
        yield _entry(BATCH, batch.sequence, batch.received_at, batch.block)


def _entry(kind: bytes, sequence: int, received_at: float, body: bytes) -> bytes:
    header = ENTRY.pack(kind, sequence, received_at, len(body))
    return header + CHECKSUM.pack(zlib.crc32(header)) + body


def read(stream: BinaryIO) -> Iterator[Manifest | Batch]:
    """Yield the manifest and the batches; raise ``Damaged`` where the rest cannot be read."""
    if stream.read(len(MAGIC)) != MAGIC:
        raise Damaged(f"this is no bundle of version {MAGIC[7]}: byte 0 does not begin {MAGIC[:7]!r}")
    offset = len(MAGIC)
    while header := stream.read(ENTRY.size + CHECKSUM.size):
        kind, sequence, received_at, length = _header(header, offset)
        body = stream.read(length)
        if len(body) < length:
            raise Damaged(
                f"the entry at byte {offset:,} has {length:,} bytes and was cut at byte {offset + len(body):,}: "
                "export the bundle again, or copy it again"
            )
        if kind == BATCH:
            yield Batch(sequence, received_at, body)
        elif kind == MANIFEST:
            yield _manifest(body, offset)
        offset += len(header) + length


def _header(header: bytes, offset: int) -> tuple[Any, ...]:
    if len(header) < ENTRY.size + CHECKSUM.size:
        raise Damaged(f"the bundle was cut inside the entry at byte {offset:,}: export it again, or copy it again")
    if zlib.crc32(header[: ENTRY.size]) != CHECKSUM.unpack_from(header, ENTRY.size)[0]:
        raise Damaged(f"the entry at byte {offset:,} is not what was written: what follows it cannot be found")
    fields = ENTRY.unpack_from(header)
    if fields[3] > LARGEST_ENTRY_BYTES:
        raise Damaged(f"the entry at byte {offset:,} says {fields[3]:,} bytes, more than {LARGEST_ENTRY_BYTES:,}")
    return fields


def _manifest(body: bytes, offset: int) -> Manifest:
    try:
        return msgspec.json.decode(body, type=Manifest)
    except msgspec.DecodeError as error:
        raise Damaged(f"the manifest at byte {offset:,} is not what was written: {error}") from error
