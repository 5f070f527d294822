"""Read a probe's ring: the bytes of its file, as they stood when they were copied, into records.

The file was written by a training job, perhaps halfway, perhaps with intent to harm: every length is checked
before it is used, and nothing is read but what the file itself holds. The layout is ``collectors/faulthound_probe.py``'s.
"""

from __future__ import annotations

import json
import math
import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from collectors.faulthound_probe import (
    ENTRY,
    HASH,
    HASHES,
    HASHES_FROM,
    HEADER,
    HEADER_BYTES,
    LEFT_AT,
    LENGTH,
    MAGIC,
    MOST_GROUPS,
    STEP,
    TIMING,
    UNSEEN_AT,
    WAITED,
)
from collectors.formats import Damaged, Input, reader
from collectors.records import (
    ARRAY_CODES,
    HASH_COLUMNS,
    OWN_COLUMNS,
    RING_COLUMNS,
    STEP_COLUMNS,
    Group,
    Members,
    Ring,
    Steps,
)

LARGEST_RING_BYTES = 8 << 20
MOST_MEMBERS = 1 << 20
MOST_MEMBERS_IN_ALL = 1 << 22  # of all groups of one ring
LARGEST_VALUE = 1 << 62  # two of them still fit a column
NEWEST_STEPS = 64  # of which the own time is sent, where only the newest entries are wanted
NEWEST_HASHES = 64  # where only the newest entries are wanted: they are of every hundredth step or so


@dataclass(frozen=True, slots=True)
class RingEntry:
    """One operation; instants are UTC nanoseconds, ``left_ns`` -1 while it is inside."""

    number: int
    group: int
    operation: int
    phase: int
    failed: int
    collective_seq: int
    p2p_seq: int
    bytes: int
    entered_ns: int
    left_ns: int
    step: int


@dataclass(frozen=True, slots=True)
class Image:
    """A ring as it stood. ``start_ticks``: when its process began, in clock ticks since boot."""

    pid: int
    start_ticks: int
    boot_id: str
    rank: int | None
    world_size: int | None
    phase: str | None
    role: str | None
    step: int | None
    written: int
    overwritten: int  # entries whose slot was taken since
    swallowed: int
    torn: int  # entries that were being written
    backend: str
    groups: tuple[Group, ...]
    names: tuple[str, ...]
    unseen: tuple[str, ...]
    entries: tuple[RingEntry, ...]  # oldest first
    steps: tuple[tuple[int, int, int], ...]  # number, step, UTC ns of its end
    timings: tuple[tuple[int, str, int, int], ...]  # number, phase, step, device ns
    hashes: tuple[tuple[int, int, int, int], ...]  # number, step, UTC ns of its end, hash of the parameters
    own: tuple[
        tuple[int, int, float, float], ...
    ]  # step, UTC ns of its end, its seconds, those not blocked in communication

    @property
    def newest_ns(self) -> int:
        """Return the newest instant that the ring itself shows, -1 for none."""
        entries = (max(entry.entered_ns, entry.left_ns) for entry in self.entries)
        return max((*entries, *(step[2] for step in self.steps), *(hashed[2] for hashed in self.hashes)), default=-1)

    def record(self) -> Ring:
        """Return the entries as a record."""
        numbers: dict[str, int] = {}
        rows = [self._row(entry, numbers) for entry in self.entries]
        columns = {
            name: array(ARRAY_CODES[kind], [row[index] for row in rows]).tobytes()
            for index, (name, kind) in enumerate(RING_COLUMNS.items())
        }
        hashes = {
            name: array(ARRAY_CODES[kind], [row[index] for row in self.hashes]).tobytes()
            for index, (name, kind) in enumerate(HASH_COLUMNS.items())
        }
        own = {
            name: array(ARRAY_CODES[kind], [row[index] for row in self.own]).tobytes()
            for index, (name, kind) in enumerate(OWN_COLUMNS.items())
        }
        return Ring(
            pid=self.pid,
            backend=self.backend,
            groups=self.groups,
            strings=tuple(numbers),
            count=len(rows),
            columns=columns,
            overwritten=self.overwritten,
            swallowed=self.swallowed,
            unseen_groups=self.unseen,
            boot_id=self.boot_id or None,
            rank=self.rank,
            role=self.role,
            phase=self.phase,
            step=self.step,
            hashed=len(self.hashes),
            hashes=hashes if self.hashes else {},
            timed=len(self.own),
            own=own if self.own else {},
        )

    def _row(self, entry: RingEntry, numbers: dict[str, int]) -> tuple[int, ...]:
        def text(found: str | None) -> int:
            return -1 if found is None else numbers.setdefault(found, len(numbers))

        group = self.groups[entry.group].name if 0 <= entry.group < len(self.groups) else None
        return (
            text(group),
            entry.collective_seq,
            entry.p2p_seq,
            text(_at(self.names, entry.operation)),
            entry.bytes,
            entry.entered_ns,
            entry.left_ns,
            entry.step,
            text(_at(self.names, entry.phase)),
            entry.failed,
        )

    def steps_since(self, number: int) -> Steps | None:
        """Return the steps after the one of that number, None where there are none; a step's seconds are since the last."""
        new = [step for step in self.steps if step[0] > number]
        if not new:
            return None
        before = {step[0]: step[2] for step in self.steps}
        seconds = [(end - before[number - 1]) / 1e9 if number - 1 in before else math.nan for number, _, end in new]
        columns = {
            name: array(ARRAY_CODES[kind], [0 if kind == "<i1" else math.nan] * len(new)).tobytes()
            for name, kind in STEP_COLUMNS.items()
            if name != "step"
        }
        columns["step"] = array("q", [step for _, step, _ in new]).tobytes()
        columns["at"] = array("d", [end / 1e9 for _, _, end in new]).tobytes()
        columns["seconds"] = array("d", seconds).tobytes()
        return Steps(
            told_by="probe",
            count=len(new),
            columns=columns,
            rank=self.rank,
            role=self.role,
            boot_id=self.boot_id or None,
        )


def parse(data: bytes | memoryview, most: int | None = None) -> Image:
    """Return what the bytes of a ring hold; raise ``Damaged`` where they are no ring.

    ``most``: only the newest entries, so many at most, and as many of the older ones that are still inside.
    """
    if len(data) > LARGEST_RING_BYTES:
        raise Damaged(f"the ring has {len(data):,} bytes, more than {LARGEST_RING_BYTES:,}")
    if len(data) < HEADER_BYTES:
        raise Damaged(f"a ring has a header of {HEADER_BYTES} bytes and this was cut at byte {len(data)}")
    magic, *fields = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise Damaged(f"this is no ring of version {MAGIC[7]}: byte 0 begins {magic!r}, not {MAGIC!r}")
    sizes, (pid, ticks, utc, monotonic, written, swallowed, step, _, _), rest = fields[:6], fields[6:15], fields[15:]
    rank, world_size, phase, role, groups_used, names_used, boot = rest
    header, groups_bytes, names_bytes, steps, timings, entries = sizes
    names_from = header + groups_bytes
    steps_from = names_from + names_bytes
    timings_from = steps_from + steps * STEP.size
    entries_from = timings_from + timings * TIMING.size
    if header != HEADER_BYTES or entries_from + entries * ENTRY.size != len(data) or not entries:
        raise Damaged(f"the ring's header at byte 8 gives {sizes}, which does not make {len(data):,} bytes")
    names = tuple(part.decode("utf-8", "replace") for part in _parts(data, names_from, names_bytes, names_used))
    groups, backends = _groups(_parts(data, header, groups_bytes, groups_used))
    offset = utc - monotonic
    if not 0 <= offset < LARGEST_VALUE:
        raise Damaged(f"the ring's clocks at byte 48 are {utc} and {monotonic}, which is impossible")
    chosen = _chosen(memoryview(data)[entries_from:].cast("q"), most)
    slots = [ENTRY.unpack_from(data, entries_from + index * ENTRY.size) for index in chosen]
    found = [_entry(slot, offset) for slot in slots if _consistent(slot)]
    ends = sorted((slot[0], slot[1], slot[2] + offset) for slot in _whole(data, STEP, steps_from, steps))
    timed = sorted(_whole(data, TIMING, timings_from, timings))
    flags = bytes(data[UNSEEN_AT : UNSEEN_AT + MOST_GROUPS])
    return Image(
        pid=pid,
        start_ticks=ticks,
        boot_id=boot.rstrip(b"\0").decode("ascii", "replace"),
        rank=rank if rank >= 0 else None,
        world_size=world_size if world_size >= 0 else None,
        phase=_at(names, phase),
        role=_at(names, role),
        step=step if step >= 0 else None,
        written=max(written, 0),
        overwritten=max(written - entries, 0),
        swallowed=max(swallowed, 0),
        torn=len(slots) - len(found),
        backend=backends[0].rpartition(":")[2] if backends else "",
        groups=groups,
        names=names,
        unseen=tuple(dict.fromkeys(group.name for group, flag in zip(groups, flags, strict=False) if flag)),
        entries=tuple(sorted(found, key=lambda entry: entry.number)),
        steps=tuple(ends),
        timings=tuple((slot[0], _at(names, slot[1]) or "", slot[3], slot[4]) for slot in timed if not slot[2]),
        hashes=_hashes(data, names_from, names_bytes, names_used, offset)[0 if most is None else -NEWEST_HASHES :],
        own=_own(ends, timed, names)[0 if most is None else -NEWEST_STEPS :],
    )


@reader(
    "probe_ring", made_by="the probe (probe.md), `/dev/shm/faulthound-UID/PID.ring`",
    gives="one rank's collectives, sends and receives, steps, its own time, and hashes of its parameters",
    sniff=lambda head, _source: 100 if head.startswith(MAGIC[:6]) else 0,
)  # fmt: skip
def read(input: Input) -> Iterator[Ring | Steps]:
    """Yield a ring as of the newest instant that it shows, and its steps."""
    image = parse(input.stream.read(LARGEST_RING_BYTES + 1))
    at = image.newest_ns / 1e9 if image.newest_ns >= 0 else None
    yield msgspec.structs.replace(image.record(), source=input.source, at=at, undated=True)
    if (steps := image.steps_since(0)) is not None:
        yield msgspec.structs.replace(steps, source=input.source, at=at)


def _at(texts: tuple[str, ...], index: int) -> str | None:
    return texts[index] if 0 <= index < len(texts) else None


def _parts(data: bytes | memoryview, start: int, size: int, used: int) -> Iterator[bytes]:
    """Yield a table's texts; what a wild length leaves of the table is not read."""
    offset, end = start, start + min(used, size)
    while offset + LENGTH.size <= end:
        (length,) = LENGTH.unpack_from(data, offset)
        offset += LENGTH.size + length
        if offset > end:
            return
        yield bytes(data[offset - length : offset])


def _hashes(
    data: bytes | memoryview, names_from: int, names_bytes: int, names_used: int, offset: int
) -> tuple[tuple[int, int, int, int], ...]:
    """Return the hashes behind the names, oldest first; none where the names of an earlier probe reach so far."""
    if names_used > HASHES_FROM or HASHES_FROM + HASHES * HASH.size > names_bytes:
        return ()
    slots = _whole(data, HASH, names_from + HASHES_FROM, HASHES)
    return tuple(sorted((number, step, ended + offset, value) for number, step, ended, value, _ in slots))


def _own(
    ends: list[tuple[int, int, int]], timed: list[tuple[int, ...]], names: tuple[str, ...]
) -> tuple[tuple[int, int, float, float], ...]:
    """Return the steps of which it is known how long they were blocked, oldest first."""
    waited = {slot[3]: slot[4] for slot in timed if slot[2] and _at(names, slot[1]) == WAITED}
    found = []
    for (number, _, before), (following, step, end) in pairwise(ends):
        blocked = waited.get(step, -1)
        if following == number + 1 and 0 <= blocked <= end - before:
            found.append((step, end, (end - before) / 1e9, (end - before - blocked) / 1e9))
    return tuple(found)


def _groups(parts: Iterator[bytes]) -> tuple[tuple[Group, ...], tuple[str, ...]]:
    groups: list[Group] = []
    backends: list[str] = []
    left = MOST_MEMBERS_IN_ALL
    for part in parts:
        try:
            name, description, backend, text = map(str, json.loads(part))
            members = expand(text, min(left, MOST_MEMBERS))
        except (ValueError, TypeError, RecursionError):
            name, description, backend, members = "?", "", "", None
        left -= len(members or ())
        groups.append(Group(name, description, Members.of(members) if members else None))
        backends.append(backend)
    return tuple(groups[:MOST_GROUPS]), tuple(backends)


def expand(text: str, most: int) -> list[int]:
    """Read ``0-7,16`` and ``0-24:8`` as ranks; raise ``ValueError`` where they are more than ``most`` or no ranks."""
    ranks: list[int] = []
    for part in text.split(",") if text else ():
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        found = range(int(first), int(last or first) + 1, int(step or 1))
        if len(ranks) + len(found) > most or found[-1] >= MOST_MEMBERS or found[0] < 0:
            raise ValueError(f"{text[:80]!r} is more than {most:,} ranks")
        ranks.extend(found)
    return ranks


def _chosen(words: memoryview, most: int | None) -> list[int]:
    """Return the slots in use that are wanted. A slot is ten words: its number is the first, the eighth when it was left."""
    size = ENTRY.size // 8
    numbers = words[::size].tolist()
    used = [index for index, number in enumerate(numbers) if number]
    if most is None or len(used) <= most:
        return used
    used.sort(key=numbers.__getitem__)
    inside = words[LEFT_AT // 8 :: size].tolist()
    return [index for index in used[:-most] if inside[index] == -1][-most:] + used[-most:]


def _consistent(slot: tuple[int, ...]) -> bool:
    """Say whether a slot was written whole: its two numbers agree, and no value is one that only noise can have."""
    return 0 < slot[0] == slot[-1] and all(-1 <= value < LARGEST_VALUE for value in slot)


def _whole(data: bytes | memoryview, layout: struct.Struct, start: int, count: int) -> Iterator[tuple[int, ...]]:
    return filter(_consistent, layout.iter_unpack(data[start : start + count * layout.size]))


def _entry(slot: tuple[int, ...], offset: int) -> RingEntry:
    number, group, operation, phase, failed, collective, p2p, size, entered, left, step, _ = slot
    left = left + offset if left >= 0 else -1
    return RingEntry(
        number, group, operation, phase, int(failed != 0), collective, p2p, size, entered + offset, left, step
    )
