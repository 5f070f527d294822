"""The inspection of a batch before it is stored: it must be whole, within its bounds, and of the node that sent it.

The records are decoded as every reader of the log decodes them: what one of them could not use is counted in the answer. It
is stored all the same, because an agent may be of a later version than its service.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import msgspec

from collectors.records import block
from collectors.records.record import Damaged

SMALL_BYTES = 1 << 20  # unpacked: so much can hold no more objects than a process has room for
MOST_OBJECTS = 1_000_000  # in a larger batch; a record's columns are one object each
DEEPEST = 64  # real records are five deep


class TooMuch(Exception):
    """The batch is past a bound."""


class Broken(Exception):
    """The batch is not what an agent writes."""


class NotYours(Exception):
    """A record of the batch is of another node."""


@dataclass(frozen=True, slots=True)
class Inspected:
    """How many records a batch has, and how many of which kind this version only keeps; ``malformed``: of known kinds."""

    records: int
    skipped: dict[str, int] = field(default_factory=dict)
    malformed: int = 0
    unpacked_bytes: int = 0


class _Claims(msgspec.Struct):
    kind: str = "?"
    node: str | None = None
    nodes: msgspec.Raw = msgspec.Raw()


def inspect(data: bytes, node: str, *, most_records: int, largest_bytes: int) -> Inspected:
    """Return what a block holds; raise ``TooMuch``, ``Broken`` or ``NotYours``."""
    body = _unpacked(data, largest_bytes)
    if len(body) > SMALL_BYTES:
        _weigh(body)
    try:
        lists, records = msgspec.msgpack.decode(body, type=tuple[msgspec.Raw, msgspec.Raw])
        if (count := _length(records)) > most_records:
            raise TooMuch(f"the batch has {count:,} records and {most_records:,} are the most: send it in parts")
        _check_members(lists)
        claims = _claimed(records)
        decoded = block.decode_body(body)
    except (msgspec.DecodeError, Damaged, RecursionError) as error:
        raise Broken(f"the block's body is no list of records: {error}") from error
    for index, claim in enumerate(claims):
        check_claims(index, claim.kind, claim.node, _placed_on(claim), node)
    return Inspected(len(claims), decoded.skipped, decoded.malformed, len(body))


def check_claims(index: int, kind: str, node: str | None, placed_on: tuple[str, ...], sender: str) -> None:
    """Raise ``NotYours`` where a record is of a node that is not its sender."""
    for other in (node, *placed_on):
        if other is not None and other != sender:
            raise NotYours(f"record {index} ({kind}) is of node {other[:255]!a}, and {sender} sent it")


def _unpacked(data: bytes, largest_bytes: int) -> bytes | memoryview:
    try:
        body = block.body(data, largest_bytes=largest_bytes)
    except block.TooLarge as error:
        raise TooMuch(f"{error}: send it in parts") from error
    except Damaged as error:
        raise Broken(str(error)) from error
    length = block.HEADER.unpack_from(data)[3]
    if (extra := len(data) - block.HEADER.size - length) > 0:
        raise Broken(f"{extra:,} bytes follow the block: send one block a request")
    return body


def _claimed(records: msgspec.Raw) -> list[_Claims]:
    """Return whose each record says it is; one of which that cannot be read is no record of any version."""
    try:
        return msgspec.msgpack.decode(records, type=list[_Claims])
    except UnicodeDecodeError:
        return [_claim(raw) for raw in msgspec.msgpack.decode(records, type=list[msgspec.Raw])]


def _claim(raw: msgspec.Raw) -> _Claims:
    try:
        return msgspec.msgpack.decode(raw, type=_Claims)
    except UnicodeDecodeError:
        return _Claims()


def _placed_on(claim: _Claims) -> tuple[str, ...]:
    if claim.kind != "placement" or not bytes(claim.nodes):
        return ()
    try:
        return msgspec.msgpack.decode(claim.nodes, type=tuple[str, ...])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()  # then the record cannot be decoded either


def _check_members(lists: msgspec.Raw) -> None:
    if any(len(members) % 4 for members in msgspec.msgpack.decode(lists, type=list[bytes])):
        raise Broken("a member list of the block is cut: it is no row of 32-bit ranks")


def _length(raw: msgspec.Raw) -> int:
    """Return how many elements an array has, from its first bytes."""
    head = bytes(memoryview(raw)[:5])
    if head[0] & 0xF0 == 0x90:
        return head[0] & 0x0F
    for first, form in ((0xDC, ">xH"), (0xDD, ">xI")):
        if head[0] == first:
            return int(struct.unpack_from(form, head)[0])
    raise Broken("the block's body is no list of records")


# The first byte of a MessagePack value → how it goes on (github.com/msgpack/msgpack/blob/master/spec.md): bytes that
# follow, or where its length stands and what each unit of the length is.
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4}
_FIXED |= {0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17}
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xC7: 1, 0xC8: 2, 0xC9: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXTENDED = {0xC7, 0xC8, 0xC9}  # one byte more: the type
_NESTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}  # bytes of the count, values an element


def _weigh(body: bytes | memoryview) -> None:
    """Count the values of a large body: a byte each is enough for millions of objects of a hundred bytes.

    The bytes of columns are stepped over, so that a batch as agents send it is through in some hundred steps.
    """
    at, objects, open_counts = 0, 0, [1]
    while open_counts:
        if open_counts[-1] == 0:
            open_counts.pop()
            continue
        open_counts[-1] -= 1
        objects += 1
        if at >= len(body):
            raise Broken("the block's body ends inside a record")
        at, inside = _step(body, at)
        if inside:
            open_counts.append(inside)
        if objects > MOST_OBJECTS or len(open_counts) > DEEPEST:
            raise TooMuch(
                f"the batch has more than {MOST_OBJECTS:,} values, or is more than {DEEPEST} deep: send it in parts"
            )


def _step(body: bytes | memoryview, at: int) -> tuple[int, int]:
    """Return where the value at ``at`` ends, and how many values are inside it, which follow there."""
    first = body[at]
    if first < 0x80 or first >= 0xE0:
        return at + 1, 0
    if first < 0xA0:
        return at + 1, (first & 0x0F) * (2 if first < 0x90 else 1)
    if first < 0xC0:
        return at + 1 + (first & 0x1F), 0
    if first in _FIXED:
        return at + 1 + _FIXED[first], 0
    if first in _SIZED:
        width = _SIZED[first]
        return at + 1 + width + int.from_bytes(body[at + 1 : at + 1 + width]) + (first in _EXTENDED), 0
    if first in _NESTED:
        width, each = _NESTED[first]
        return at + 1 + width, each * int.from_bytes(body[at + 1 : at + 1 + width])
    raise Broken(f"byte {at:,} of the block's body begins no value")
