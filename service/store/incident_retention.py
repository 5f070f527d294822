"""Incident retention: the records of incidents for some months, all else about them for a year after their closing.

An incident's records are kept by a pin of the engine (``incidents.insert``). Without an end of these pins the log would grow
by every incident, beyond the bound of its size.
"""

from __future__ import annotations

from collections.abc import Callable

from analyzers.remediation.types import ENDED
from service.clock import PROCESS, now
from service.store.clock_watch import oldest_kept_at
from service.store.database import Database
from service.store.incidents import ENGINE
from service.store.models import (
    Alarm,
    Execution,
    Incident,
    Pin,
    Remediation,
    ShadowCase,
    TimelineEntry,
    UnfitNode,
)
from service.store.retention import AUDIT_DAYS, DAY_SECONDS, Rule, delete_rows


class IncidentRetention:
    """The rules, and the sweep that carries them out."""

    def __init__(
        self, database: Database, days: float, clock: Callable[[], float] = now,
        is_sure: Callable[[], bool] = lambda: PROCESS.is_sure,
    ) -> None:  # fmt: skip
        """``days``: how long an incident's records are kept; ``is_sure``: whether the clock is certain."""
        self._database, self._days, self._clock, self._is_sure = database, days, clock, is_sure

    def sweep(self) -> None:
        """Delete the pins of old incidents, and all that is older than the audit log; nothing while the clock is not certain."""
        if not self._is_sure():
            return
        at = self._clock()
        with self._database.session() as session:
            pinned_from_at = oldest_kept_at(session, at, self._days * DAY_SECONDS)
            kept_from_at = oldest_kept_at(session, at, AUDIT_DAYS * DAY_SECONDS)
        rules: tuple[Rule, ...] = (
            (Pin, (Pin.by == ENGINE, Pin.until < pinned_from_at)),
            (Incident, (Incident.closed_at < kept_from_at,)),  # with its verdicts, timeline, feedback and downtime
            (TimelineEntry, (TimelineEntry.incident.is_(None), TimelineEntry.at < kept_from_at)),
            (UnfitNode, (UnfitNode.until < at,)),
            (Alarm, (Alarm.over_at < kept_from_at,)),
            (Remediation, (Remediation.changed_at < kept_from_at, Remediation.status.in_(ENDED))),
            (Execution, (Execution.at < kept_from_at,)),
            (ShadowCase, (ShadowCase.at < kept_from_at,)),
        )
        delete_rows(self._database, rules)
