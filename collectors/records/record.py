"""What every record has, and the member lists that thousands of records share."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from sys import byteorder
from typing import Annotated, Any, Literal
from weakref import WeakValueDictionary

import msgspec

# What every reader of a record may rely on. A record outside these bounds is decoded nowhere: not by an agent, at intake,
# from the log, in a replay or from a file. They are far beyond what readers and collectors write.
MOST_RANKS = 1 << 17  # of a job: more than any that was reported
LARGEST_RANK = (1 << 30) - 1
Name = Annotated[str, msgspec.Meta(max_length=4_096)]
Text = Annotated[str, msgspec.Meta(max_length=65_536)]
Integer = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]  # what a column of a table or array holds
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
Rank = Annotated[int, msgspec.Meta(ge=0, le=LARGEST_RANK)]
WorldSize = Annotated[int, msgspec.Meta(ge=0, le=MOST_RANKS)]
Attempt = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
Real = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]  # finite
Instant = Annotated[float, msgspec.Meta(ge=-1e11, le=1e11)]  # seconds; later than the year 5000 is none
FEW = msgspec.Meta(max_length=4_096)  # of threads, frames, devices of one place
MANY = msgspec.Meta(max_length=1 << 20)  # of ranks, strings, groups

ARRAY_CODES = {"<i1": "b", "<i4": "i", "<i8": "q", "<f4": "f", "<f8": "d"}
"""Type of a column → the code of ``array.array``."""


def column_bytes(column: array[Any]) -> bytes:
    """Return a column's bytes, the least significant first."""
    if byteorder == "big":
        column = column[:]
        column.byteswap()
    return column.tobytes()


class Members:
    """The member ranks of a process group, sorted as the source gave them, as int32 little-endian bytes.

    One object is shared by every group of every dump that has the same members (``intern``): the world group of a
    16,384-rank job would otherwise be repeated in each of its 16,384 dumps. The block codec writes each distinct value
    once. A list lives as long as a record that has it: a service reads records for months.
    """

    __slots__ = ("__weakref__", "data")
    _interned: WeakValueDictionary[bytes, Members] = WeakValueDictionary()

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, ranks: Iterable[int]) -> Members:
        """Intern the members given as integers."""
        return cls.intern(array("i", ranks).tobytes())

    @classmethod
    def intern(cls, data: bytes) -> Members:
        """Return the one shared object for these bytes."""
        found = cls._interned.get(data)
        if found is None:
            found = cls._interned[data] = cls(data)
        return found

    def ranks(self) -> tuple[int, ...]:
        """Return the members as integers, in the source's order."""
        return tuple(memoryview(self.data).cast("i"))

    @property
    def usable(self) -> bool:
        """Whether these are whole numbers of ranks, and not more than any job has."""
        if len(self.data) % 4 or len(self.data) > 4 * MOST_RANKS:
            return False
        # As unsigned numbers a negative rank is larger than every rank.
        return not self.data or max(memoryview(self.data).cast("I")) <= LARGEST_RANK

    def __len__(self) -> int:
        return len(self.data) // 4

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Members) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        return f"Members({list(self.ranks()[:8])}{'…' if len(self) > 8 else ''})"


class Damaged(ValueError):
    """The content is not what it began as; the message names the offset. Records already yielded stand."""


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", omit_defaults=True):
    """What every record has. ``at`` and ``received_at`` are UTC seconds since 1970, ``monotonic_at`` since boot."""

    source: Text = ""  # "dumps/_dump_7", "dumps.tar:a/b.json", "kern.log:812": path, member, line
    at: Instant | None = None
    monotonic_at: Instant | None = None
    boot_id: Name | None = None
    received_at: Instant | None = None
    node: Name | None = None
    job: Name | None = None
    attempt: Attempt | None = None
    rank: Rank | None = None
    role: Name | None = None
    phase: Name | None = None
    step: Integer | None = None


DIRECTORY = "directory"  # the source of what the directory of a job's roles reports
_DIRECTORY_SENDER = "roles:"  # no node's name holds a colon


def directory_sender(job: str) -> str:
    """Return the name under which the directory of a job's roles is in the log."""
    # It loads OpenSSL, 3.5 MB in each of the agent's processes, of which none has this to do.
    import hashlib

    return _DIRECTORY_SENDER + hashlib.sha256(job.encode(errors="replace")).hexdigest()[:32]


def is_directory(sender: str) -> bool:
    """Whether a batch of the log is of a directory of roles, and of no node."""
    return sender.startswith(_DIRECTORY_SENDER)


def of_sender(records: Iterable[Record], node: str, received_at: float) -> Iterator[Record]:
    """Yield the records of a batch as its sender's. A record with ``received_at`` is one whose ``node`` has sent it.

    Only a directory's are different: it has readings of its own job's roles, and a process has said on which node it is.
    """
    for record in records:
        reads_role = record.__struct_config__.tag == "role_state"
        if is_directory(node):
            if reads_role and record.job is not None and directory_sender(record.job) == node:
                yield msgspec.structs.replace(record, source=DIRECTORY, received_at=received_at)
            continue
        if reads_role and record.source == DIRECTORY:
            continue
        changes: dict[str, Any] = {"node": node, "received_at": received_at}
        if placed := getattr(record, "nodes", ()):  # a placement: each process is where the agent runs that saw it
            changes["nodes"] = (node,) * len(placed)
        yield msgspec.structs.replace(record, **changes)


Outcome = Literal["unrecognised", "damaged", "refused", "empty", "limit"]


class Unread(Record, frozen=True, kw_only=True, tag="unread"):
    """A file, or a part of one, that gave no record: never silently dropped, never guessed."""

    reason: Text
    outcome: Outcome = "unrecognised"
    offset: Integer | None = None
