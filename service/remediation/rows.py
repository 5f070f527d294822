"""The rows of remediation, read and written as ``analyzers.remediation.types``; each call is part of its caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Text, case, cast, delete, insert, or_, select
from sqlalchemy.orm import Session

from analyzers.remediation.approval import claimable_task
from analyzers.remediation.messages import Proposed, RemediationEvent
from analyzers.remediation.policy import rule_for
from analyzers.remediation.types import (
    ENDED,
    UNDER_WAY,
    BreakerTrip,
    Execution,
    Freeze,
    Hold,
    Policy,
    Remediation,
    RemediationState,
    Tally,
)
from service.store.models import Execution as ExecutionRow
from service.store.models import Hold as HoldRow
from service.store.models import Remediation as Row
from service.store.models import ShadowCase, Switch
from service.store.schema import clean
from service.store.upserts import upsert

FREEZE, BREAKER = "freeze", "breaker"  # rows of the switches
UNSETTLED_SECONDS = 7 * 86_400.0  # for which the nodes of an unknown outcome may be out, and count in the job's minimum
MOST_CASES = 1_000  # of shadow mode, the newest

_log = logging.getLogger(__name__)


class Breaker(msgspec.Struct, frozen=True, kw_only=True):
    """The breaker's row."""

    trip: BreakerTrip | None = None
    closed_at: float | None = None


def read_remediations(
    session: Session, now: float, events: Sequence[RemediationEvent] = (), asked: Sequence[str] = ()
) -> dict[str, Remediation]:
    """Return those that have not ended, are to be undone, ended lately with an unknown outcome, or are ``asked`` for."""
    unknown = (Row.status == "done") & (outcome_column() == "unknown")
    unsettled = ((Row.status == "failed") | unknown) & (Row.changed_at >= now - UNSETTLED_SECONDS)
    wanted: list[ColumnElement[bool]] = [*_live(), unsettled, Row.id.in_(asked)]
    for event in events:
        if isinstance(event, Proposed):
            wanted.append(Row.incident == event.incident)
            if event.plan is not None:
                wanted.append(Row.id == event.plan.id)
        elif isinstance(id := getattr(event, "id", None), str):
            wanted.append(Row.id == id)
    return _found(session, wanted)


def read_live(session: Session) -> dict[str, Remediation]:
    """Return those that have not ended, or are to be undone."""
    return _found(session, _live())


def parse_row(row: Row) -> Remediation | None:
    """Return the remediation of a row; None where a newer program has written it."""
    return _remediation(row.document, row.id)


def read_under_way(session: Session, job: str) -> list[Remediation]:
    """Return what has begun for a job without an outcome yet."""
    return list(_found(session, [(Row.job == job) & Row.status.in_(UNDER_WAY)]).values())


def read_one(session: Session, id: str) -> Remediation | None:
    """Return one remediation, ended or not."""
    row = session.get(Row, id)
    return None if row is None else parse_row(row)


def outcome_column() -> ColumnElement[str]:
    """Return the outcome's expression. PostgreSQL cannot read a document with a NUL: its outcome is unknown."""
    broken = cast(Row.document, Text).contains("\\u0000", autoescape=True)
    return case((broken, "unknown"), else_=Row.document["outcome"].as_string())


def write_remediation(session: Session, one: Remediation) -> None:
    """Write a remediation."""
    document = _storable(msgspec.to_builtins(one))
    row = {
        "id": one.id, "incident": one.incident, "job": document["job"], "kind": one.kind, "status": one.status,
        "task": claimable_task(one), "nodes": list(document["nodes"]), "proposed_at": one.proposed_at,
        "changed_at": one.changed_at, "version": one.version, "document": document,
    }  # fmt: skip
    upsert(session, Row, [row])


def read_holds(session: Session) -> dict[str, Hold]:
    """Return all holds; an expired one stays until a tick has ended it."""
    return {
        row.id: Hold(
            id=row.id, by=row.by, reason=row.reason, made_at=row.made_at, until=row.until, node=row.node, job=row.job
        )
        for row in session.scalars(select(HoldRow).order_by(HoldRow.made_at, HoldRow.id))
    }


def read_executions(session: Session, after: float) -> list[Execution]:
    """Return the executions after an instant."""
    rows = session.scalars(select(ExecutionRow).where(ExecutionRow.at > after).order_by(ExecutionRow.id))
    return [Execution(remediation=row.remediation, at=row.at, nodes=tuple(row.nodes)) for row in rows]


def read_freeze(session: Session) -> Freeze | None:
    """Return the freeze; None: there is none."""
    row = session.get(Switch, FREEZE)
    return None if row is None or row.document is None else msgspec.convert(row.document, Freeze)


def read_breaker(session: Session) -> Breaker:
    """Return the breaker."""
    row = session.get(Switch, BREAKER)
    return Breaker() if row is None or row.document is None else msgspec.convert(row.document, Breaker)


def version_of(session: Session, switch: str) -> int:
    """Return the ETag of a switch; 0: it was never set."""
    row = session.get(Switch, switch)
    return 0 if row is None else row.version


def count_cases(session: Session, policy: Policy) -> dict[str, Tally]:
    """Return for each rule, as it is now, in how many incidents it would have been right.

    All that it would have done for one incident is one case, and wrong where any part was.
    """
    if not any(rule.mode != "propose" for rule in policy.rules):
        return {}
    known = (ShadowCase.closed_at.is_not(None), ShadowCase.correct.is_not(None))
    newest = select(ShadowCase).where(*known).order_by(ShadowCase.closed_at.desc()).limit(MOST_CASES)
    cases = [(_remediation(row.document, row.remediation), bool(row.correct)) for row in session.scalars(newest)]
    found = {}
    for rule in policy.rules:
        alone = Policy(rules=(rule,))
        judged: dict[str, bool] = {}
        for one, right in cases:
            if one is not None and one.rule == rule.name and rule_for(alone, one) is rule:
                judged[one.incident] = right and judged.get(one.incident, True)
        found[rule.name] = Tally(seen=len(judged), right=sum(judged.values()))
    return found


def write_changes(session: Session, before: RemediationState, after: RemediationState) -> None:
    """Write what a step has changed in the state beside remediations."""
    for new in after.executions:
        if new not in before.executions:
            row = {"remediation": new.remediation, "at": new.at, "nodes": list(new.nodes)}
            session.execute(insert(ExecutionRow), [row])
    _write_holds(session, before, after)
    if after.freeze != before.freeze:
        _throw(session, FREEZE, None if after.freeze is None else msgspec.to_builtins(after.freeze))
    stood, stands = (Breaker(trip=state.trip, closed_at=state.breaker_closed_at) for state in (before, after))
    if stands != stood:
        _throw(session, BREAKER, msgspec.to_builtins(stands))


def _write_holds(session: Session, before: RemediationState, after: RemediationState) -> None:
    if gone := before.holds.keys() - after.holds.keys():
        session.execute(delete(HoldRow).where(HoldRow.id.in_(gone)))
    for id, hold in after.holds.items():
        if before.holds.get(id) != hold:
            values = msgspec.to_builtins(hold)
            upsert(session, HoldRow, [values | {"by": clean(hold.by, 255), "reason": clean(hold.reason, 1_000)}])


def _throw(session: Session, name: str, document: dict[str, Any] | None) -> None:
    upsert(session, Switch, [{"name": name, "document": document, "version": version_of(session, name) + 1}])


def _storable(value: Any) -> Any:
    """Return a copy whose texts PostgreSQL can read."""
    match value:
        case str():
            return clean(value, len(value))
        case list() | tuple():
            return [_storable(one) for one in value]
        case dict():
            return {_storable(key): _storable(one) for key, one in value.items()}
    return value


def _live() -> list[ColumnElement[bool]]:
    return [Row.status.not_in(ENDED), Row.task.is_not(None)]


def _found(session: Session, wanted: Sequence[ColumnElement[bool]]) -> dict[str, Remediation]:
    found = session.scalars(select(Row).where(or_(*wanted)).order_by(Row.proposed_at, Row.id))
    return {row.id: one for row in found if (one := parse_row(row)) is not None}


def _remediation(document: dict[str, Any], id: str) -> Remediation | None:
    try:
        return msgspec.convert(document, Remediation)
    except msgspec.ValidationError as error:
        _log.error("remediation_unreadable remediation=%s reason=%s", id, error)
        return None
