"""Refusals in the audit log: all are counted, and one a minute of each sender and kind is written."""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service.clock import now
from service.store import audit_log
from service.store.database import Database

EVERY_SECONDS = 60.0
MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class _Written:
    at: float  # monotonic
    omitted: int = 0


class Audit:
    """Writes refusals to the events; a flood of them costs a row a minute."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = monotonic) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._written: OrderedDict[tuple[str, str], _Written] = OrderedDict()
        self.refusals: dict[str, int] = {}

    def refused(self, kind: str, actor: str, subject: str, why: str) -> None:
        """Record that ``actor`` was refused; ``untold`` in the row counts the refusals since the row before."""
        omitted = self._due(kind, actor)
        if omitted is None:
            return
        structlog.get_logger().warning("refused", kind=kind, actor=actor, subject=subject, why=why, untold=omitted)
        write = partial(self._write, now(), kind, actor, subject, {"why": why, "untold": omitted})
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            write()
        else:  # in a thread: else all other requests would wait for this commit
            loop.run_in_executor(None, write)

    def _write(self, at: float, kind: str, actor: str, subject: str, details: dict[str, Any]) -> None:
        try:
            with self._database.transaction() as session:
                audit_log.record(session, at, kind, actor, subject, details)
        except SQLAlchemyError as error:  # the request stays refused, whether or not that can be written
            structlog.get_logger().error("refusal_not_written", kind=kind, error=type(error).__name__)

    def _due(self, kind: str, actor: str) -> int | None:
        with self._lock:
            self.refusals[kind] = self.refusals.get(kind, 0) + 1
            written = self._written.get((actor, kind))
            if written is not None and self._clock() - written.at < EVERY_SECONDS:
                written.omitted += 1
                return None
            self._written[actor, kind] = _Written(self._clock())
            self._written.move_to_end((actor, kind))
            if len(self._written) > MOST_REMEMBERED:
                self._written.popitem(last=False)
            return written.omitted if written is not None else 0
