"""One run's yield on its way to the spool: checked, stamped with node and time, and handed over cursor by cursor."""

from __future__ import annotations

import threading
from typing import Any, Protocol

import msgspec

from collectors.agent.packing import encode_tick
from collectors.agent.segment import Entry
from collectors.live import Cursor, Readings
from collectors.live.sources.host import Host
from collectors.records import CommandResult, DeviceState, KernelEvent, LogEvent, ProcessState, Record, Unread, block

PENDING_BYTES = 4 << 20  # that a run may yield before a Cursor; beyond it the yield is handed over without one
RECORD_BYTES_MAX = 6 << 20  # unpacked: a segment with nothing else is still below the 8 MiB of the service's batch
RUN_BYTES_MAX = 32 << 20  # of one run
ENDED = frozenset("XZ")
STOPPED = frozenset("T")
UNREAD_MOST = 1024


class EntrySink(Protocol):
    """Where entries go: the spool of a running agent, or a list."""

    def add(self, entry: Entry, *, urgent: bool = False) -> None:
        """Keep an entry."""


class InvalidYield(Exception):
    """A collector yielded what no batch can hold; the message says what."""


class Stamp:
    """Fills in what only the agent knows: node, boot and the two clocks."""

    def __init__(self, host: Host) -> None:
        self.node, self.clock, self.boot_id = host.node, host.clock, host.boot_id

    def record(self, record: Record) -> Record:
        """Return the record with its node, and with its times where it has none of its own."""
        if record.node not in (None, self.node):
            raise InvalidYield(f"a record of node {record.node!r}: this agent sends records of {self.node!r} only")
        filled: dict[str, Any] = {} if record.node else {"node": self.node}
        if record.at is None:
            filled["at"] = self.clock.now()
            if record.monotonic_at is None:
                filled["monotonic_at"] = self.clock.monotonic()
            else:
                filled["at"] += record.monotonic_at - self.clock.monotonic()
        # A record with a time but no monotonic one may be of an earlier boot: none is invented for it.
        if record.boot_id is None and (record.monotonic_at is not None or "monotonic_at" in filled):
            filled["boot_id"] = self.boot_id
        return msgspec.structs.replace(record, **filled) if filled else record


class RunOutput:
    """What a run has yielded and not handed over yet; safe for the thread that watches the run."""

    def __init__(self, name: str, stamp: Stamp, sink: EntrySink, host: Host, *, urgent: bool = False) -> None:
        """``urgent``: a command waits for all of it, and not only for the records that are urgent by themselves."""
        self.records = 0
        self.unread: list[Unread] = []  # the first of them: a command's answer states what was not read
        self._name, self._stamp, self._sink, self._host, self._all_urgent = name, stamp, sink, host, urgent
        self._lock = threading.Lock()
        self._entry, self._urgent = Entry(), urgent
        self._pending_bytes = self._bytes = 0

    def take(self, yielded: object) -> None:
        """Take what a collector yielded; raise ``InvalidYield`` where it cannot be kept."""
        if isinstance(yielded, Record):
            self._record(yielded)
        elif isinstance(yielded, Readings):
            self._readings(yielded)
        elif isinstance(yielded, Cursor):
            self._cursor(yielded.value)
        else:
            raise InvalidYield(f"yielded a {type(yielded).__name__}: a collector yields records, Readings and Cursors")
        if self._bytes > RUN_BYTES_MAX:
            raise InvalidYield(f"yielded more than {RUN_BYTES_MAX:,} bytes in one run")

    def hand_over(self) -> None:
        """Give the sink what has come so far."""
        with self._lock:
            entry, self._entry, self._pending_bytes = self._entry, Entry(), 0
            if entry:
                self._sink.add(entry, urgent=self._urgent)
                self._urgent = self._all_urgent
                self.records += len(entry.records) + len(entry.ticks)
                self._host.cursors.update(entry.cursors)

    def _record(self, record: Record) -> None:
        kind = type(record).__name__
        try:
            data = block.encode([self._stamp.record(record)])
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidYield(f"a {kind} that cannot be encoded: {error}") from error
        if len(data) > RECORD_BYTES_MAX:
            raise InvalidYield(f"a {kind} of {len(data):,} bytes, more than {RECORD_BYTES_MAX:,}")
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
            tick = encode_tick(readings, self._name, at, monotonic + at - now, self._stamp.boot_id)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidYield(str(error)) from error
        self._make_room(len(tick.values))
        with self._lock:
            self._entry.ticks.append(tick)
            self._count(len(tick.values))

    def _cursor(self, value: Any) -> None:
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidYield(f"a Cursor that JSON cannot hold: {error}") from error
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
        return record.state in STOPPED | ENDED or record.exit_code is not None or record.signal is not None
    return isinstance(record, (KernelEvent, LogEvent, DeviceState, CommandResult))
