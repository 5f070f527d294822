"""The repository of remediations: one step at a time, in one transaction.

    lock ─► state (what is stored, the fleet, the policy) ─► step ─► rows ─► audit log ─► timeline and stream

The lock is held to the commit. Of two schedulers that want the same claim the second gets the first one's claim as the reason. A
process that is killed before its commit has done nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from analyzers.remediation import breaker
from analyzers.remediation.messages import (
    AuditEntry,
    Proposed,
    RemediationEvent,
    RemediationInstruction,
    RemediationRefused,
    RemediationTick,
    Store,
)
from analyzers.remediation.policy import is_by_rule
from analyzers.remediation.step import step
from analyzers.remediation.types import UNBEGUN, Policy, Remediation, RemediationState
from service.remediation import fleet_facts, rows
from service.store import audit_log, timeline
from service.store.database import Database
from service.store.models import Incident

REMEDIATION_LOCK = 0x464852  # "FHR": the number of PostgreSQL's advisory lock

Check = Callable[[Session, RemediationState], None]
_log = logging.getLogger(__name__)


class _Audited(NamedTuple):
    """An audit entry, and its remediation."""

    what: AuditEntry
    about: Remediation | None


class _Happened(NamedTuple):
    """The result of an event."""

    state: RemediationState
    instructions: list[RemediationInstruction]
    audited: list[_Audited]


class RemediationRepository:
    """Remediations, holds, the freeze and the breaker, changed by events."""

    def __init__(self, database: Database, policy: Callable[[], Policy] = Policy) -> None:
        self._database, self._policy = database, policy

    def handle(self, event: RemediationEvent, now: float, check: Check | None = None) -> list[RemediationInstruction]:
        """Apply an event; return the instructions. Where it raises ``RemediationRefused`` nothing has changed.

        ``check`` gets the state before the event, under the same lock, and may raise.
        """
        with self._database.transaction() as session:
            return self.within(session, event, now, check)

    def rehearse(
        self, event: RemediationEvent, now: float, check: Check | None = None
    ) -> tuple[RemediationState, list[RemediationInstruction]]:
        """Return the result of an event without changing anything."""
        with self._database.session() as session:
            state = self._load(session, now, [event])
            if check is not None:
                check(session, state)
            return step(state, event, now)

    def state(self, now: float, *asked: str) -> RemediationState:
        """Return the state that a step would see now, with the remediations ``asked``, ended ones too."""
        with self._database.session() as session:
            return self.read(session, now, *asked)

    def read(self, session: Session, now: float, *asked: str) -> RemediationState:
        """Return the same in the reader's own transaction."""
        return self._load(session, now, asked=asked)

    def within(
        self, session: Session, event: RemediationEvent, now: float, check: Check | None = None
    ) -> list[RemediationInstruction]:
        """Apply an event as the last part of its caller's transaction."""
        self._lock(session)
        state = self._load(session, now, [event])
        if check is not None:
            check(session, state)
        happened = _happen(session, state, event, now)
        _write_audit(session, happened.audited, now)
        return happened.instructions

    def all_within(self, session: Session, events: Sequence[RemediationEvent], now: float) -> None:
        """Apply several events in order to one state; leave out those that are refused."""
        if not events:
            return
        self._lock(session)
        state = self._load(session, now, events)
        audited: list[_Audited] = []
        for event in events:
            try:
                happened = _happen(session, state, event, now)
            except RemediationRefused as refused:
                _log.info("remediation_refused event=%s code=%s why=%s", type(event).__name__, refused.code, refused)
            else:
                state = happened.state
                audited += happened.audited
        _write_audit(session, audited, now)

    def _lock(self, session: Session) -> None:
        if not self._database.is_sqlite:  # which has one writer anyway
            session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": REMEDIATION_LOCK})

    def _load(
        self, session: Session, now: float, events: Sequence[RemediationEvent] = (), asked: Sequence[str] = ()
    ) -> RemediationState:
        """Return the state for these events; without events, for a reader."""
        policy, stands = self._policy(), rows.read_breaker(session)
        remediations = rows.read_remediations(session, now, events, asked)
        judges = not events or any(isinstance(event, Proposed | RemediationTick) for event in events)
        judged = any(one.status in UNBEGUN and is_by_rule(one) for one in remediations.values())
        return RemediationState(
            remediations=remediations,
            executions=rows.read_executions(session, breaker.counted_after(policy.limits, now)),
            holds=rows.read_holds(session),
            freeze=rows.read_freeze(session),
            trip=stands.trip,
            breaker_closed_at=stands.closed_at,
            policy=policy,
            tallies=rows.count_cases(session, policy) if judges or judged else {},  # else no policy has a say
            facts=fleet_facts.load_facts(session, now, _concerned(remediations, events)),
        )


def _happen(session: Session, state: RemediationState, event: RemediationEvent, now: float) -> _Happened:
    """Step, and write all rows except the audit entries, which come last."""
    after, instructions = step(state, event, now)
    for one in instructions:
        if isinstance(one, Store):
            rows.write_remediation(session, one.remediation)
    rows.write_changes(session, state, after)
    about = after.remediations
    audited = [_Audited(one, about.get(one.remediation or "")) for one in instructions if isinstance(one, AuditEntry)]
    return _Happened(after, instructions, audited)


def _concerned(remediations: dict[str, Remediation], events: Sequence[RemediationEvent]) -> list[Remediation]:
    """Return the remediations whose facts the events need; for a reader all of them."""
    if not events:
        return list(remediations.values())
    found: list[Remediation] = []
    for event in events:
        if isinstance(event, RemediationTick):
            found += [one for one in remediations.values() if one.status in UNBEGUN]
        elif isinstance(event, Proposed):
            found += [] if event.plan is None else [event.plan]
        elif (one := remediations.get(getattr(event, "id", ""))) is not None:
            found.append(one)
    return found


def _write_audit(session: Session, audited: Sequence[_Audited], now: float) -> None:
    """Write the audit log, then the timeline and stream at the end of the transaction."""
    for one, _ in audited:
        subject = one.remediation or str(one.details.get("hold") or "")
        audit_log.record(session, now, one.kind, one.by, subject, one.details)
    # The incidents are locked before the timeline, in the same order as in every other writer.
    incidents = sorted({about.incident for _, about in audited if about is not None})
    there = select(Incident.id).where(Incident.id.in_(incidents)).order_by(Incident.id)
    known = set(session.scalars(there.with_for_update(read=True, key_share=True))) if incidents else set()
    for one, about in audited:
        details: dict[str, Any] = one.details | {"by": one.by}
        if about is None:
            timeline.add(session, now, one.kind, None, details.get("job"), details)
            continue
        incident = about.incident if about.incident in known else None
        timeline.add(session, now, one.kind, incident, about.job, details | {"remediation": about.id})
