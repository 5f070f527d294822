"""Who may run the engine: one owner at a time, proved in every transaction by a token that only grows.

    free ──take──▶ held ──prove (every three seconds at least)──▶ held
                    └── not proved for ten seconds, or released ──▶ free

Neither safety nor a takeover depends on the clocks of two machines. A lease that is taken over has a new token, and the
transactions of the old one fail. A candidate takes it once it has seen the same token and proof for ten seconds of its own
monotonic time, whatever instant the row names. An owner that takes again what it holds has lost the process that held it, and
gets a new token too.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sqlalchemy import update
from sqlalchemy.orm import Session

from service.clock import now
from service.store.database import Database
from service.store.models import Lease as Row
from service.store.upserts import upsert

HELD_SECONDS = 10.0  # without a proof; then another engine may take it
RENEW_SECONDS = 3.0
RELEASED = 0.0
LEASE_LOCK = 0x46484E  # "FHN": the number of PostgreSQL's advisory lock for a row that is not there yet


class LeaseLost(Exception):
    """Another owner holds the lease: what this process remembers may be out of date, and nothing of it may be written."""


class Lease:
    """One owner's hold of the lease of this name."""

    def __init__(self, database: Database, name: str, owner: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: of the candidate alone, in seconds that nothing sets."""
        self._database, self._name, self._owner, self._clock = database, name, owner, clock
        self._seen: tuple[int, float] | None = None  # another owner's token and newest proof
        self._seen_since = 0.0
        self.token = 0  # 0: never taken

    def take(self) -> bool:
        """Take the lease if it is free, was not proved for ten seconds or is this owner's own; return whether it is held now."""
        with self._database.session() as session:  # a read, which blocks no writer: a standby asks every second
            if not self._is_free(session.get(Row, self._name)):
                return False
        with self._database.transaction() as session:
            if not self._database.is_sqlite:
                session.connection().exec_driver_sql(f"SELECT pg_advisory_xact_lock({LEASE_LOCK})")
            row = session.get(Row, self._name, with_for_update=True)
            if not self._is_free(row):
                return False
            self.token = (row.token if row is not None else 0) + 1
            held = {"name": self._name, "owner": self._owner, "token": self.token, "until": self._until()}
            upsert(session, Row, [held])
        return True

    def prove(self, session: Session) -> None:
        """Hold the lease for ten more seconds, as the first thing of a transaction; raise ``LeaseLost`` where it was taken.

        The row stays locked to the transaction's end: another engine that takes the lease waits for it, or this one fails.
        """
        mine = (Row.name == self._name, Row.owner == self._owner, Row.token == self.token)
        held = session.execute(update(Row).where(*mine).values(until=self._until()).returning(Row.token))
        if held.first() is None:
            raise LeaseLost(f"the lease {self._name!r} is not {self._owner}'s with token {self.token} any more")

    def release(self) -> None:
        """Release it if it is still held: another engine may take it at once."""
        mine = (Row.name == self._name, Row.owner == self._owner, Row.token == self.token)
        with self._database.transaction() as session:
            session.execute(update(Row).where(*mine).values(until=RELEASED))

    def _is_free(self, row: Row | None) -> bool:
        if row is None or row.owner == self._owner or row.until == RELEASED:
            return True
        if (seen := (row.token, row.until)) != self._seen:
            self._seen, self._seen_since = seen, self._clock()
        return self._clock() - self._seen_since >= HELD_SECONDS

    def _until(self) -> float:
        """Return a value that differs from that of every other proof; for a reader of the table, an instant."""
        return now() + HELD_SECONDS
