"""The spool: what the collectors yield, on disk at once and in order, until the service acknowledges it.

    add ──► NUMBER-RANDOM.seg ──seal──► NUMBER-RANDOM.RECORDS.FROM.UNTIL.fhb ──► acknowledged: deleted
            the open segment            one batch, a packed block                refused: put aside into refused/

A batch's id is its segment's name, chosen when the segment was opened: an agent that dies between two steps repeats the
step with the same id, by which the service recognises it. Beyond ``bytes_max`` the oldest batches are dropped and counted.
Where the disk takes nothing, segments and batches stay in memory, within a bound of their own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from collectors.agent import state as states
from collectors.agent.packing import Sealed, seal
from collectors.agent.segment import Entry, Segment, read
from collectors.live.sources.clock import Clock

SEGMENT_BYTES = 4 << 20  # beyond which a segment is sealed early
MEMORY_BYTES = 8 << 20  # of batches that no disk holds
REFUSED_SHARE = 4  # of the spool's bound, as a divisor, is what the refused folder may hold
GROWING_SHARE = 8  # of the spool's bound, as a divisor, is what may wait while segments grow
URGENT_SECONDS = 0.5
WAITING_BATCHES, WAITING_SECONDS = 3, 60.0  # while so many wait for the service, a segment may grow for so long
_BATCH = re.compile(r"(?P<id>\d{12}-[0-9a-f]{8})\.(?P<records>\d+)\.(?P<from_ms>\d+)\.(?P<until_ms>\d+)\.fhb")

log = logging.getLogger("faulthound.agent")


@dataclass(slots=True, eq=False)
class Batch:
    """A sealed segment that waits for the service."""

    id: str
    records: int
    size_bytes: int
    from_at: float  # UTC seconds
    until_at: float
    path: Path | None = None
    data: bytes = b""  # where the disk did not take it
    segment: Path | None = None  # which stays until such a batch is delivered
    in_flight: bool = False

    def read(self) -> bytes:
        """Return the block; raise OSError where the disk cannot read it."""
        return self.path.read_bytes() if self.path is not None else self.data


class Spool:
    """Safe for threads: collectors add, one thread seals, one ships."""

    def __init__(self, folder: Path, node: str, clock: Clock, *, bytes_max: int, seal_seconds: float) -> None:
        """Open the folder, and seal what an earlier agent left open."""
        self.folder, self.node = folder, node
        self.wake = threading.Event()  # something is to be sealed early
        self.trouble = ""  # why the disk takes nothing; empty: it does
        self._clock, self._bytes_max, self._seal_seconds = clock, bytes_max, seal_seconds
        self._changed = threading.Condition()
        self._batches: list[Batch] = []
        self._open: Segment | None = None
        self._due_at = self._grown_at = float("inf")  # time.monotonic()
        self._full: list[Segment] = []
        self._spent: list[Path] = []  # segments to delete as soon as the state with their cursors is on disk
        self.state, why = states.load(folder / "state.json")
        if why:
            log.warning("state_lost reason=%r", why)
        self._recover()

    # Adding and sealing

    def add(self, entry: Entry, *, urgent: bool = False) -> None:
        """Keep an entry. An urgent one is sealed within a second, the others when the segment is due."""
        entry.at = self._clock.now()
        with self._changed:
            if self._open is not None and self._open.bytes + entry.size_bytes() > SEGMENT_BYTES:
                self._full.append(self._close_open())
            if self._open is None:
                self._open = self._new_segment()
            self._open.append(entry)
            if urgent:
                self._due_at = min(self._due_at, time.monotonic() + URGENT_SECONDS)
            if urgent or self._full:
                self.wake.set()

    def _close_open(self) -> Segment:
        assert self._open is not None
        segment, self._open = self._open, None
        self._due_at = self._grown_at = float("inf")
        return segment

    def _seal_at(self) -> float:
        """Return when the open segment is due: later while others wait with much room left: few large batches arrive sooner."""
        has_room = GROWING_SHARE * sum(batch.size_bytes for batch in self._batches) <= self._bytes_max
        behind = len(self._batches) >= WAITING_BATCHES
        return max(self._due_at, self._grown_at) if behind and has_room else self._due_at

    def due_in(self) -> float:
        """Return the seconds until something is to be sealed."""
        with self._changed:
            return 0.0 if self._full else max(0.0, self._seal_at() - time.monotonic())

    def seal(self, *, now: bool = False) -> None:
        """Seal what is full or due; ``now``: what is open, too."""
        with self._changed:
            self.wake.clear()
            taken, self._full = self._full, []
            if self._open is not None and (now or self._seal_at() <= time.monotonic()):
                taken.append(self._close_open())
        for segment in taken:
            segment.close()
            self._note(segment.error)
            self._publish(segment.path, self._sealed(segment.path, segment.entries()))

    def _sealed(self, path: Path, entries: Iterable[Entry]) -> Sealed:
        try:
            return seal(entries, self.node)
        except Exception:
            # One that cannot be sealed must not stop every later start; it stays for a person to examine.
            log.exception("segment_unreadable path=%s", path)
            with contextlib.suppress(OSError):
                path.rename(path.with_suffix(".unreadable"))
            return Sealed()

    def _new_segment(self) -> Segment:
        self.state.number += 1
        self._due_at = time.monotonic() + self._seal_seconds
        self._grown_at = time.monotonic() + WAITING_SECONDS
        # Random: an agent whose state folder was wiped must not repeat an id that the service knows.
        return Segment(self.folder / f"{self.state.number:012d}-{os.urandom(4).hex()}.seg")

    def _publish(self, segment: Path, sealed: Sealed) -> None:
        """Make a batch of what was sealed and give it to the shipper; then the segment is deleted."""
        batch = None
        if sealed.records:
            batch = Batch(segment.stem, sealed.records, len(sealed.data), sealed.from_at, sealed.until_at)
            self._store(batch, sealed.data)
            if batch.path is None:
                batch.segment = segment
        with self._changed:
            self.state.cursors |= sealed.cursors
            if sealed.unusable:
                self.state.dropped.add(0, sealed.unusable, 0, sealed.from_at, sealed.until_at)
            if batch is None or batch.segment is None:
                self._spent.append(segment)
            self._save()
            if batch is not None:
                self._batches.append(batch)
                self._enforce()
            self._changed.notify_all()

    def _store(self, batch: Batch, data: bytes) -> None:
        span = f"{max(0, int(batch.from_at * 1000))}.{max(0, int(batch.until_at * 1000))}"
        path = self.folder / f"{batch.id}.{batch.records}.{span}.fhb"
        try:
            states.replace(path, data)
        except OSError as error:
            batch.data = data
            self._note(error)
        else:
            batch.path = path
            self._note(None)

    def _note(self, error: OSError | None) -> None:
        trouble = f"{self.folder} takes nothing: {error.strerror or error}" if error else ""
        if trouble != self.trouble:
            (log.error if trouble else log.info)("spool trouble=%r", trouble)
        self.trouble = trouble

    # Shipping

    def next(self, timeout_seconds: float) -> Batch | None:
        """Return the oldest batch, which is not dropped until it is released; None: there is none yet."""
        with self._changed:
            if not self._batches:
                self._changed.wait(timeout_seconds)
            if not self._batches:
                return None
            self._batches[0].in_flight = True
            return self._batches[0]

    def keep(self, batch: Batch) -> None:
        """Release a batch that could not be delivered."""
        with self._changed:
            batch.in_flight = False
            self._enforce()

    def delivered(self, batch: Batch, rejected_records: int = 0) -> None:
        """Delete a batch that the service has."""
        with self._changed:
            self.state.rejected_records += rejected_records
            self._remove(batch)

    def refused(self, batch: Batch) -> None:
        """Put aside a batch that the service will never accept; the folder keeps the newest for a person to examine."""
        with self._changed:
            self.state.refused_batches += 1
            with contextlib.suppress(OSError):
                aside = self.folder / "refused"
                aside.mkdir(mode=0o700, exist_ok=True)
                if batch.path is not None:
                    batch.path.replace(aside / batch.path.name)
                _bound(aside, self._bytes_max // REFUSED_SHARE)
            self._remove(batch)
            self._save()

    def lost(self, batch: Batch) -> None:
        """Count a batch as dropped that the disk cannot read."""
        with self._changed:
            self._drop([batch])

    def _remove(self, batch: Batch) -> None:
        self._batches.remove(batch)
        if batch.path is not None:
            _unlink(batch.path)
        if batch.segment is not None:
            self._spent.append(batch.segment)
            self._save()

    # The bound

    def _enforce(self) -> None:
        """Drop the oldest batches over the bound: of all bytes, and of those that only memory holds."""
        on_disk = [batch for batch in self._batches if batch.path is not None]
        in_memory = [batch for batch in self._batches if batch.path is None]
        for batches, bytes_max in ((on_disk, self._bytes_max), (in_memory, MEMORY_BYTES)):
            over, dropping = sum(batch.size_bytes for batch in batches) - bytes_max, []
            for batch in batches:
                if over > 0 and not batch.in_flight:
                    dropping.append(batch)
                    over -= batch.size_bytes
            if dropping:
                self._drop(dropping)

    def _drop(self, batches: list[Batch]) -> None:
        for batch in batches:
            self.state.dropped.add(1, batch.records, batch.size_bytes, batch.from_at, batch.until_at)
        # Counted first, by name: a kill between the two steps neither loses the count nor counts twice.
        self.state.dropping = [batch.id for batch in batches]
        self._save()
        for batch in batches:
            self._remove(batch)
        log.warning("spool_dropped batches=%d in_all=%d", len(batches), self.state.dropped.batches)

    def held(self) -> tuple[int, int]:
        """Return how many batches are spooled, and their bytes."""
        with self._changed:
            return len(self._batches), sum(batch.size_bytes for batch in self._batches)

    # State and recovery

    def _save(self) -> None:
        try:
            states.replace(self.folder / "state.json", msgspec.json.encode(self.state), durable=False)
        except OSError as error:
            self._note(error)  # the segments stay, and with them the cursors
            return
        for segment in self._spent:
            _unlink(segment)
        self._spent.clear()

    def _recover(self) -> None:
        done = set(self.state.dropping)  # counted, but perhaps not yet deleted
        for path in sorted(self.folder.iterdir()):
            if (number := path.name[:12]).isdigit():
                self.state.number = max(self.state.number, int(number))
            if path.suffix == ".tmp":
                _unlink(path)
            elif match := _BATCH.fullmatch(path.name):
                span = int(match["from_ms"]) / 1000, int(match["until_ms"]) / 1000
                self._batches.append(Batch(match["id"], int(match["records"]), path.stat().st_size, *span, path))
        for batch in [batch for batch in self._batches if batch.id in done]:
            self._remove(batch)
        done |= {batch.id for batch in self._batches}
        for path in sorted(self.folder.glob("*.seg")):
            sealed = self._sealed(path, _salvaged(path))
            # Where its batch was made, or dropped and counted, only the segment's cursors are still needed.
            self._publish(path, Sealed(cursors=sealed.cursors) if path.stem in done else sealed)
        self._batches.sort(key=lambda batch: batch.id)
        self.state.dropping = []
        self._enforce()


def _salvaged(path: Path) -> list[Entry]:
    try:
        return list(read(path))
    except OSError as error:
        log.warning("segment_lost path=%s reason=%r", path, error.strerror)
        return []


def _bound(folder: Path, bytes_max: int) -> None:
    for path in sorted(folder.iterdir(), reverse=True):
        bytes_max -= path.stat().st_size
        if bytes_max < 0:
            path.unlink()


def _unlink(path: Path) -> None:
    # A file that cannot be deleted is sent again by the next agent, under an id that the service knows.
    with contextlib.suppress(OSError):
        path.unlink()
