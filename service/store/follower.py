"""The reader of the log: derives nodes, jobs, attempts, placements and commands' outcomes, and hands the records on.

What it derived and how far it has come are written in one transaction, so that after a crash it goes on where it was.
Consumers come after the commit, in memory; after a restart each resumes by its own means.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from sqlalchemy.orm import Session

from collectors.records import CommandResult, Record, Samples, block
from collectors.records.record import Damaged
from service.clock import now
from service.store import audit_log
from service.store.commands import Commands
from service.store.database import TRANSIENT_ERRORS, Database
from service.store.log import Log, Stored, sane
from service.store.models import Cursor
from service.store.observations import FORGOTTEN_SECONDS, Observations
from service.store.upserts import upsert

READER = "follower"
TURN_BATCHES = 256
TURN_BYTES = 256 << 20  # that the records of a turn may take in memory, or those of a single larger batch
TIMES_IN_MEMORY = 20  # a body's texts and numbers as objects, at the worst; columns and member lists take what they are
TURN_SECONDS = 0.2  # between two reads of the log: batches that arrive meanwhile share a transaction
IDLE_SECONDS = 1.0  # without a call to wake: another process may be appending
AGAIN_SECONDS = 1.0  # after the database failed
MOST_TRIES = 10  # of the same batches; if the database takes other writes then, they fail for what they hold
MOST_RESULTS = 256  # of one batch

_log = logging.getLogger(__name__)


class Consumer(Protocol):
    """What wants to see every batch once, in order, from the follower's thread."""

    def add(self, stored: Stored, records: Sequence[Record]) -> None:
        """Take up one batch."""

    def resume(self, log: Log, until_sequence: int, since: float, now: float) -> None:
        """Take up again, after a restart, what came since an instant and up to a place of the log."""


@dataclass(slots=True)
class FollowerCounts:
    """What the follower has done since it began, for the metrics."""

    batches: int = 0
    records: int = 0
    unknown_records: int = 0  # of kinds that this version keeps and does not know
    malformed_records: int = 0  # of known kinds, or none, with a value that no reader accepts
    undecodable_batches: int = 0
    underivable_batches: int = 0
    consumer_failures: int = 0


@dataclass(frozen=True, slots=True)
class _Read:
    stored: Stored
    records: Sequence[Record]
    unknown: int
    malformed: int
    damage: str | None


class Follower:
    """A place in the log and the thread that moves it."""

    def __init__(
        self,
        database: Database,
        log: Log,
        consumers: Sequence[Consumer] = (),
        window_seconds: float = 600.0,
        clock: Callable[[], float] = now,
    ) -> None:
        """``window_seconds``: how far back consumers resume."""
        self.counts = FollowerCounts()
        self.observations = Observations()
        self.sequence = 0  # up to here everything is derived
        self.resumed = False
        self._database, self._log, self._consumers, self._clock = database, log, consumers, clock
        self._commands = Commands(database, clock)
        self._window_seconds = window_seconds
        self._ahead: deque[Stored] = deque()
        self._derived: deque[_Read] = deque()  # and not yet handed on
        self._given = 0  # how many consumers have the first of those
        self._oldest_waiting_at: float | None = None
        self._tries = 0  # since a batch was last derived
        self._forgot_at = clock()
        self._awake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """End the thread after the transaction that it is in."""
        self._closing.set()
        self._awake.set()
        if self._thread.is_alive():
            self._thread.join()

    def wake(self) -> None:
        """Say that the log has grown."""
        self._awake.set()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def lag_seconds(self) -> float:
        """How long the oldest batch that is known to be unread has waited; 0.0 where all is read."""
        oldest = self._oldest_waiting_at
        return 0.0 if oldest is None else max(0.0, self._clock() - oldest)

    def turn(self) -> int:
        """Read, derive and hand on up to 256 batches; return how many there were."""
        self._hand_on()
        if not self._ahead:
            at = self._clock()
            self._ahead.extend(sane(stored, at) for stored in self._log.read_from(self.sequence, TURN_BATCHES))
        self._oldest_waiting_at = self._ahead[0].received_at if self._ahead else None
        if not self._ahead:
            return 0
        read = self._decode()
        self._derive(read)
        self._hand_on()
        return len(read)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._awake.clear()
            try:
                if not self.resumed:
                    self._resume()
                while (read := self.turn()) and not self._closing.is_set():
                    if read < TURN_BATCHES:
                        self._closing.wait(TURN_SECONDS)
                self._forget()
                self._awake.wait(IDLE_SECONDS)
            except TRANSIENT_ERRORS as error:
                self._oldest_waiting_at = self._oldest_waiting_at or self._clock()
                _log.warning("follower_waits reason=%s", str(error.__cause__ or error).partition("\n")[0])
                self._closing.wait(AGAIN_SECONDS)
            except Exception:  # noqa: BLE001 - without this thread nothing is derived until the service is restarted
                _log.exception("follower_failed sequence=%d", self.sequence)
                self._closing.wait(AGAIN_SECONDS)

    def _forget(self) -> None:
        if abs((at := self._clock()) - self._forgot_at) >= FORGOTTEN_SECONDS / 10:
            self.observations.forget(at - FORGOTTEN_SECONDS)
            self._forgot_at = at

    def _resume(self) -> None:
        with self._database.session() as session:
            cursor = session.get(Cursor, READER)
        self.sequence = cursor.sequence if cursor else 0
        at = self._clock()
        for consumer in self._consumers:
            try:
                consumer.resume(self._log, self.sequence, at - self._window_seconds, at)
            except TRANSIENT_ERRORS:
                raise
            except Exception:  # noqa: BLE001 - new batches matter more than old ones
                _log.exception("consumer_not_resumed")
                self.counts.consumer_failures += 1
        self.resumed = True

    def _decode(self) -> list[_Read]:
        read: list[_Read] = []
        size_bytes = 0
        for stored in self._ahead:
            if size_bytes >= TURN_BYTES:
                break
            try:
                decoded = block.decode_counting(stored.block)
            except Damaged as error:
                read.append(_Read(stored, (), 0, 0, str(error)))
            else:
                size_bytes += _memory_bytes(decoded)
                malformed = decoded.malformed
                unknown = sum(decoded.skipped.values()) - malformed
                read.append(_Read(stored, decoded.records, unknown, malformed, None))
        return read

    def _derive(self, read: Sequence[_Read], *, again: bool = False, lasting: bool = False) -> None:
        """Write what the batches report and that they are done; one that cannot be written is left out alone.

        Each is tried twice, the second time from what the tables have: retention may have taken a row that is remembered.
        """
        try:
            with self._database.transaction() as session:
                self._write(session, read)
        except Exception as error:
            self.observations.forget()
            lasting = lasting or (isinstance(error, TRANSIENT_ERRORS) and self._lasting())
            if isinstance(error, TRANSIENT_ERRORS) and not lasting:
                raise
            if not again:
                for one in read:
                    self._derive([one], again=True, lasting=lasting)
                return
            _log.exception("batch_underivable sequence=%d", read[0].stored.sequence)
            self._pass_over(read[0].stored, f"{type(error).__name__}: {error}")
            self.counts.underivable_batches += 1
        self._done(read)

    def _lasting(self) -> bool:
        """Whether a failure of the database is that of the batches: they have failed often, and other writes succeed."""
        self._tries += 1
        if self._tries <= MOST_TRIES:
            return False
        with self._database.transaction() as session:
            self._move(session, self.sequence)
        return True

    def _pass_over(self, stored: Stored, reason: str) -> None:
        with self._database.transaction() as session:
            self._skip(session, stored, "batch_underivable", reason)
            self._move(session, stored.sequence)

    def _write(self, session: Session, read: Sequence[_Read]) -> None:
        self.observations.load(session, [one.stored for one in read])
        for one in read:
            if one.damage is not None:
                self._skip(session, one.stored, "batch_undecodable", one.damage)
            self.observations.note(session, one.stored, one.records)
            results = (record for record in one.records if isinstance(record, CommandResult))
            for result in islice(results, MOST_RESULTS):
                self._commands.finish(
                    session, one.stored.node, result.command, result.outcome, result.text, one.stored.received_at
                )
        self.observations.write(session)
        self._move(session, read[-1].stored.sequence)

    def _skip(self, session: Session, stored: Stored, kind: str, reason: str) -> None:
        details = {"sequence": stored.sequence, "batch": stored.batch_id, "bytes": len(stored.block), "reason": reason}
        audit_log.record(session, self._clock(), kind, f"agent@{stored.node}", stored.node, details)

    def _move(self, session: Session, sequence: int) -> None:
        row = {"reader": READER, "sequence": sequence}
        upsert(session, Cursor, [row], where=lambda table, new: new.sequence > table.sequence)

    def _done(self, read: Sequence[_Read]) -> None:
        for one in read:
            self._ahead.popleft()
            self._derived.append(one)
            self.counts.batches += 1
            self.counts.records += len(one.records)
            self.counts.unknown_records += one.unknown
            self.counts.malformed_records += one.malformed
            self.counts.undecodable_batches += one.damage is not None
        self.sequence, self._tries = read[-1].stored.sequence, 0

    def _hand_on(self) -> None:
        """Give the consumers what is derived; one whose database fails gets the same batch again."""
        while self._derived:
            one = self._derived[0]
            for place in range(self._given, len(self._consumers)):
                try:
                    self._consumers[place].add(one.stored, one.records)
                except TRANSIENT_ERRORS:
                    raise
                except Exception:  # noqa: BLE001 - the other consumers and later batches must go on
                    _log.exception("consumer_failed sequence=%d", one.stored.sequence)
                    self.counts.consumer_failures += 1
                self._given = place + 1
            self._derived.popleft()
            self._given = 0


def _memory_bytes(decoded: block.Decoded) -> int:
    """Return how much memory a batch's records take at the worst."""
    columns = sum(len(one.values) + len(one.ticks) for one in decoded.records if isinstance(one, Samples))
    return columns + TIMES_IN_MEMORY * (decoded.size_bytes - columns)
