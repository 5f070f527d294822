"""A bundle is the records of an incident as the service received them: one file, read by ``diagnose`` and ``replay``.

    0   8  magic   "FHBNDLE" and the version, 1
    8   …  entries, each
             0   4  kind      "MNFT" the manifest, JSON; "BTCH" one batch, a block as it came; "SENT" who sent the batch
                              that follows, and when; "VRDC" one published version of the incident's verdict
             4   8  sequence  of the batch in the service's log; 0 for a verdict, and for a batch that holds what was reported
                              before the incident (its context); of the manifest the CRC-32 of its body, 0 in the first
                              bundles
            12   8  received_at, UTC seconds as float64; 0 for the manifest
            20   8  length of the body
            28   4  CRC-32 of the 28 bytes before
            32   …  body; of "SENT" and "VRDC": the CRC-32 of the rest, and the rest as MessagePack

The manifest comes first and names the job and the span. A bundle is written as a stream, so that an export of hours needs
no memory; one that was cut keeps everything before the cut, and what is damaged costs itself: reading goes on with the next
entry whose header is whole. An entry of a kind that this version does not know is skipped.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, TypeVar

import msgspec

from collectors.records.record import Damaged

MAGIC = b"FHBNDLE\x01"
ENTRY = struct.Struct("<4sQdQ")
CHECKSUM = struct.Struct("<I")
HEADER_BYTES = ENTRY.size + CHECKSUM.size
LARGEST_ENTRY_BYTES = 256 << 20
MANIFEST, BATCH, SENT, VERDICT = b"MNFT", b"BTCH", b"SENT", b"VRDC"
DECLARATION = "declaration"  # the source of the placement by which an export says what a job's owner declared

_KINDS = re.compile(b"MNFT|BTCH|SENT|VRDC")
_LOOK_BYTES = 1 << 20  # at once, for the next header after damage

Body = TypeVar("Body", bound=msgspec.Struct)


class Incident(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which incident a bundle is of. ``cuts``: of its verdict's versions (``analyzers.model.incident.Cut``), oldest first."""

    id: str
    kind: str = ""
    job: str | None = None  # None: of the fleet
    attempt: int | None = None
    after: int = 0  # the batches that were judged have higher sequence numbers
    opened_at: float | None = None
    nodes: tuple[str, ...] = ()  # in the order in which they joined: a cut names the first so many
    cuts: tuple[dict[str, Any], ...] = ()
    plan: str | None = None  # the kind of what was planned at the export; it goes before the verdict's own action


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a bundle is of."""

    job: str  # "": of the fleet
    attempt: int | None = None  # the newest in the span
    since: float = 0.0  # UTC seconds, of receipt
    until: float = 0.0
    nodes: tuple[str, ...] = ()
    version: str = ""  # of the program that wrote it
    missing: tuple[str, ...] = ()  # what the store no longer had, in words
    incident: Incident | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of the log: the block's bytes as the agent sent them, and where known who sent them and when."""

    sequence: int
    received_at: float
    block: bytes
    node: str = ""
    sent_at: float | None = None  # UTC seconds by the node's clock


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """One published version of an incident's verdict, with what it was judged from and by what."""

    version: int
    at: float
    cut: dict[str, Any]  # analyzers.model.incident.Cut
    knowledge: str
    program: str
    document: bytes


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that could not be read: which bytes, and what is lost with them."""

    reason: str


class _Sender(msgspec.Struct, frozen=True):
    node: str = ""
    sent_at: float | None = None


Entry = Manifest | Batch | Published | Damage


def write(manifest: Manifest, entries: Iterable[Batch | Published]) -> Iterator[bytes]:
    """Yield a bundle's bytes, a part at a time."""
    yield MAGIC
    described = msgspec.json.encode(manifest)
    yield _entry(MANIFEST, zlib.crc32(described), 0.0, described)
    for one in entries:
        if isinstance(one, Published):
            yield _entry(VERDICT, 0, one.at, _checked(one))
            continue
        if one.node:
            yield _entry(SENT, one.sequence, one.received_at, _checked(_Sender(one.node, one.sent_at)))
        yield _entry(BATCH, one.sequence, one.received_at, one.block)


def _entry(kind: bytes, sequence: int, received_at: float, body: bytes) -> bytes:
    header = ENTRY.pack(kind, sequence, received_at, len(body))
    return header + CHECKSUM.pack(zlib.crc32(header)) + body


def _checked(value: msgspec.Struct) -> bytes:
    body = msgspec.msgpack.encode(value)
    return CHECKSUM.pack(zlib.crc32(body)) + body


def read(stream: BinaryIO) -> Iterator[Entry]:
    """Yield what can be read, and a ``Damage`` for each place that cannot; raise ``Damaged`` for what is no bundle."""
    if stream.read(len(MAGIC)) != MAGIC:
        raise Damaged(f"this is no bundle of version {MAGIC[7]}: it does not begin with {MAGIC[:7].decode()}")
    sender = _Sender()
    for part in _parts(stream):
        if isinstance(part, Damage):
            yield part
            continue
        try:
            if part.kind == BATCH:
                yield Batch(part.sequence, part.received_at, part.body, sender.node, sender.sent_at)
            elif part.kind == VERDICT:
                yield _whole(part, Published)
            elif part.kind == MANIFEST:
                yield _manifest(part)
            sender = _whole(part, _Sender) if part.kind == SENT else _Sender()
        except Damaged as error:
            yield Damage(str(error))


@dataclass(frozen=True, slots=True)
class _Part:
    """One entry as it stands in the file. ``offset``: of its header."""

    offset: int
    kind: bytes
    sequence: int
    received_at: float
    body: bytes


class _Ahead:
    """A stream that can be looked into without being taken from."""

    def __init__(self, stream: BinaryIO, offset: int) -> None:
        self._stream, self._seen, self.offset = stream, b"", offset

    def look(self, size: int) -> bytes:
        if len(self._seen) < size:
            self._seen += self._stream.read(size - len(self._seen))
        return self._seen[:size]

    def take(self, size: int) -> bytes:
        taken, self._seen = self._seen[:size], self._seen[size:]
        if len(taken) < size:
            taken += self._stream.read(size - len(taken))
        self.offset += len(taken)
        return taken


def _parts(stream: BinaryIO) -> Iterator[_Part | Damage]:
    """Yield the entries whose headers are whole, and what lies between them."""
    ahead = _Ahead(stream, len(MAGIC))
    while header := ahead.look(HEADER_BYTES):
        offset = ahead.offset
        if not _is_whole(header):
            yield Damage(_skipped(ahead))
            continue
        ahead.take(HEADER_BYTES)
        kind, sequence, received_at, length = ENTRY.unpack_from(header)
        body = ahead.take(length)
        if len(body) < length:
            yield Damage(
                f"the entry at byte {offset:,} has {length:,} bytes and was cut at byte {ahead.offset:,}: "
                "export the bundle again, or copy it again"
            )
            return
        yield _Part(offset, kind, sequence, received_at, body)


def _is_whole(header: bytes) -> bool:
    if len(header) < HEADER_BYTES or zlib.crc32(header[: ENTRY.size]) != CHECKSUM.unpack_from(header, ENTRY.size)[0]:
        return False
    length: int = ENTRY.unpack_from(header)[3]
    return length <= LARGEST_ENTRY_BYTES


def _skipped(ahead: _Ahead) -> str:
    """Go on to the next entry's header, and report what was passed over."""
    start = ahead.offset
    while seen := ahead.look(_LOOK_BYTES):
        for match in _KINDS.finditer(seen):
            if _is_whole(seen[match.start() : match.start() + HEADER_BYTES]):
                ahead.take(match.start())
                return f"bytes {start:,} to {ahead.offset:,} are not what was written: the entries there are lost"
        # A header may begin in the last bytes and end in the next ones.
        ahead.take(len(seen) if len(seen) < _LOOK_BYTES else _LOOK_BYTES - HEADER_BYTES + 1)
    return (
        f"the bundle was cut, or is not what was written, from byte {start:,} to its end at byte {ahead.offset:,}: "
        "export it again, or copy it again"
    )


def _whole(part: _Part, type: type[Body]) -> Body:
    """Return a body that carries its own checksum."""
    body = part.body[CHECKSUM.size :]
    if len(part.body) < CHECKSUM.size or zlib.crc32(body) != CHECKSUM.unpack_from(part.body)[0]:
        raise Damaged(f"the entry {part.kind.decode()} at byte {part.offset:,} is not what was written: it is lost")
    try:
        return msgspec.msgpack.decode(body, type=type)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # ValueError: a text that is not UTF-8
        raise Damaged(
            f"the entry {part.kind.decode()} at byte {part.offset:,} cannot be understood: {error}"
        ) from error


def _manifest(part: _Part) -> Manifest:
    if part.sequence not in (0, zlib.crc32(part.body)):
        raise Damaged(f"the manifest at byte {part.offset:,} is not what was written: whose records these are is lost")
    try:
        return msgspec.json.decode(part.body, type=Manifest)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Damaged(f"the manifest at byte {part.offset:,} is not what was written: {error}") from error
