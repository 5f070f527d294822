"""Refusals in the audit log: all of them are counted, and one a minute of each sender and kind is written down."""

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
class _Told:
    at: float  # monotonic
    untold: int = 0


class Audit:
    """Writes refusals to the events; a flood of them costs a row a minute."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = monotonic) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._told: OrderedDict[tuple[str, str], _Told] = OrderedDict()
        self.refusals: dict[str, int] = {}

    def refused(self, kind: str, actor: str, subject: str, why: str) -> None:
        """Note that ``actor`` was refused something; ``untold`` in the row counts those since the row before."""
        untold = self._due(kind, actor)
        if untold is None:
            return
        structlog.get_logger().warning("refused", kind=kind, actor=actor, subject=subject, why=why, untold=untold)
        write = partial(self._write, now(), kind, actor, subject, {"why": why, "untold": untold})
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            write()
        else:  # everybody else's requests would wait for this row's commit
            loop.run_in_executor(None, write)

    def _write(self, at: float, kind: str, actor: str, subject: str, details: dict[str, Any]) -> None:
        try:
            with self._database.transaction() as session:
                audit_log.record(session, at, kind, actor, subject, details)
        except SQLAlchemyError as error:  # the refusal stands, whether or not it can be written down
            structlog.get_logger().error("refusal_not_written", kind=kind, error=type(error).__name__)

    def _due(self, kind: str, actor: str) -> int | None:
        with self._lock:
            self.refusals[kind] = self.refusals.get(kind, 0) + 1
            told = self._told.get((actor, kind))
            if told is not None and self._clock() - told.at < EVERY_SECONDS:
                told.untold += 1
                return None
            self._told[actor, kind] = _Told(self._clock())
            self._told.move_to_end((actor, kind))
            if len(self._told) > MOST_REMEMBERED:
                self._told.popitem(last=False)
            return told.untold if told is not None else 0
