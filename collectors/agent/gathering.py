"""One run's yield on its way to the spool: checked, stamped with node and time, and handed over cursor by cursor."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import msgspec

from collectors.agent.columns import tick_of
from collectors.agent.segment import Entry
from collectors.live import Cursor, Readings
from collectors.live.sources.host import Host
from collectors.records import CommandResult, DeviceState, KernelEvent, LogEvent, ProcessState, Record, Unread, block

PENDING_BYTES = 4 << 20  # that a run may yield before a Cursor; then what there is goes without one
RECORD_BYTES_MAX = 6 << 20  # unpacked: a segment with nothing else is still below the 8 MiB of the service's batch
RUN_BYTES_MAX = 32 << 20  # of one run
ENDED = frozenset("XZ")
UNREAD_MOST = 1024


class Keeps(Protocol):
    """Where entries go: the spool of a running agent, a list of a single look."""

    def add(self, entry: Entry, *, urgent: bool = False) -> None:
        """Keep an entry."""


class Garbage(Exception):
    """A collector yielded what no batch can hold; the message says what."""


class Stamp:
    """Fills in what only the agent knows: node, boot and the two clocks."""

    def __init__(self, host: Host) -> None:
        self.node, self.clock, self.boot_id = host.node, host.clock, host.boot_id

    def record(self, record: Record) -> Record:
        """Return the record with its node, and with its times where it has none of its own."""
        if record.node not in (None, self.node):
            raise Garbage(f"a record of node {record.node!r}: this agent speaks for {self.node!r} only")
        filled: dict[str, Any] = {} if record.node else {"node": self.node}
        if record.at is None:
            filled["at"] = self.clock.now()
            if record.monotonic_at is None:
                filled["monotonic_at"] = self.clock.monotonic()
            else:
                filled["at"] += record.monotonic_at - self.clock.monotonic()
        # A record that has a time but no monotonic one may be of an earlier boot: nothing is made up for it.
        if record.boot_id is None and (record.monotonic_at is not None or "monotonic_at" in filled):
            filled["boot_id"] = self.boot_id
        return msgspec.structs.replace(record, **filled) if filled else record


class Gathering:
    """What a run has yielded and not handed over yet; safe for the thread that watches the run."""

    def __init__(self, name: str, stamp: Stamp, spool: Keeps, host: Host, *, asked: bool = False) -> None:
        self.records = 0
        self.unread: list[Unread] = []  # the first of them: a command's answer tells of what was not got
        self._name, self._stamp, self._spool, self._host, self._asked = name, stamp, spool, host, asked
        self._lock = threading.Lock()
        self._entry, self._urgent = Entry(), asked
        self._pending_bytes = self._bytes = 0

    def take(self, yielded: object) -> None:
        """Take what a collector yielded; raise ``Garbage`` where it is nothing that can be kept."""
        if isinstance(yielded, Record):
            self._record(yielded)
        elif isinstance(yielded, Readings):
            self._readings(yielded)
        elif isinstance(yielded, Cursor):
            self._cursor(yielded.value)
        else:
            raise Garbage(f"yielded a {type(yielded).__name__}: a collector yields records, Readings and Cursors")
        if self._bytes > RUN_BYTES_MAX:
            raise Garbage(f"yielded more than {RUN_BYTES_MAX:,} bytes in one run")

    def hand_over(self) -> None:
        """Give the spool what has come so far."""
        with self._lock:
            entry, self._entry, self._pending_bytes = self._entry, Entry(), 0
            if not entry:
                return
            self._spool.add(entry, urgent=self._urgent)
            self._urgent = self._asked
            self.records += len(entry.records) + len(entry.ticks)
            self._host.cursors.update(entry.cursors)

    def _record(self, record: Record) -> None:
        try:
            data = block.encode([self._stamp.record(record)])
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Garbage(f"a {type(record).__name__} that cannot be encoded: {error}") from error
        if len(data) > RECORD_BYTES_MAX:
            raise Garbage(f"a {type(record).__name__} of {len(data):,} bytes, more than {RECORD_BYTES_MAX:,}")
        self._make_room(len(data))
        if isinstance(record, Unread) and len(self.unread) < UNREAD_MOST:
            self.unread.append(record)
        with self._lock:
            self._entry.records.append(data)
            self._urgent |= is_urgent(record)
            self._count(len(data))

    def _readings(self, readings: Readings) -> None:
        now, monotonic = self._stamp.clock.now(), self._stamp.clock.monotonic()
        at = now if readings.at is None else float(readings.at)
        try:
            tick = tick_of(readings, self._name, at, monotonic + at - now, self._stamp.boot_id)
        except (TypeError, ValueError, OverflowError) as error:
            raise Garbage(str(error)) from error
        self._make_room(len(tick.values))
        with self._lock:
            self._entry.ticks.append(tick)
            self._count(len(tick.values))

    def _cursor(self, value: Any) -> None:
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Garbage(f"a Cursor that JSON cannot hold: {error}") from error
        with self._lock:
            self._entry.cursors[self._name] = value
        self.hand_over()

    def _make_room(self, size_bytes: int) -> None:
        if self._pending_bytes + size_bytes > PENDING_BYTES:
            self.hand_over()

    def _count(self, size_bytes: int) -> None:
        self._pending_bytes += size_bytes
        self._bytes += size_bytes


def is_urgent(record: Record) -> bool:
    """Return whether a record should reach the service within a second or so."""
    if isinstance(record, ProcessState):
        return record.state in ENDED or record.exit_code is not None or record.signal is not None
    return isinstance(record, (KernelEvent, LogEvent, DeviceState, CommandResult))
