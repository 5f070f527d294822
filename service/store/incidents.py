"""The rows of incidents as the engine writes them and takes them up again; each call is a part of its caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.orm import Session

from analyzers.incidents.messages import Open, Publish
from analyzers.model.incident import Incident
from analyzers.model.verdict import (
    TAKES_NODES,
    Verdict,
    to_json,
)
from collectors.records import Record, block
from collectors.records.record import Damaged
from service.store.models import Batch, Cursor, Downtime, Feedback, Pin, UnfitNode
from service.store.models import Incident as Row
from service.store.models import Verdict as VerdictRow
from service.store.schema import clean

READER = "engine"  # of the log: its row in the table of cursors
ENGINE = "engine"  # who made a pin, or sent a command
PIN_SLACK_SECONDS = 60.0
UNFIT_SECONDS = 86_400.0  # after the closing: operators have decided by then
LARGEST = (1 << 31) - 1  # of a column for attempts and steps

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the store has of an incident for an engine that starts."""

    incident: Incident
    context: tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far behind the log the engine is."""

    batches: int  # numbers between its place and the log's end; some may never have been given
    seconds: float  # that the oldest batch it has not seen has waited


def insert(session: Session, opened: Open) -> bool:
    """Store a new incident, and keep its records from retention; return whether it is new."""
    incident = opened.incident
    if session.get(Row, incident.id) is not None:
        return False
    job = None if incident.job is None else clean(incident.job, 255)
    attempt = bounded(incident.attempt)
    row = Row(
        id=incident.id, kind=incident.kind, job=job, attempt=attempt, opened_at=incident.opened_at,
        onset_at=incident.onset_at, closed_at=None, closed_because="", merged_into=None, nodes=_nodes(incident),
        version=1, verdict_version=0, culprits=[], state=to_values(incident), context=block.encode(opened.context, pack=True),
        pin=_pinned(session, incident, job).id,
    )  # fmt: skip
    session.add(row)
    session.flush()  # others refer to it
    if job is not None:
        cost = Downtime(
            incident=incident.id, job=job, attempt=attempt, onset_at=incident.onset_at,
            detected_at=incident.opened_at, last_step=bounded(incident.last_step),
        )  # fmt: skip
        session.add(cost)
        session.flush()
    return True


def save(session: Session, incident: Incident, *, changed: bool) -> None:
    """Store what the engine remembers of an incident that is still open; ``changed``: so that its readers see it."""
    values: dict[str, Any] = {
        "state": to_values(incident),
        "nodes": _nodes(incident),
        "merged_into": incident.merged_into,
    }
    if changed:
        values["version"] = Row.version + 1
    session.execute(update(Row).where(Row.id == incident.id, Row.closed_at.is_(None)).values(values))


def publish(session: Session, published: Publish, at: float) -> bool:
    """Store a version of an incident's verdict; return False where the incident was closed meanwhile."""
    row = session.get(Row, published.incident, with_for_update=True)
    if row is None or row.closed_at is not None:
        return False
    verdict = published.verdict
    session.add(
        VerdictRow(
            incident=row.id, version=published.version, at=at, cut=msgspec.to_builtins(published.cut),
            knowledge=verdict.knowledge, program=verdict.version, document=to_json(verdict),
            claims=list(published.claims),
        )
    )  # fmt: skip
    row.version += 1
    row.verdict_version = published.version
    row.symptom, row.cause, row.abstained = verdict.symptom, verdict.cause, verdict.abstained
    row.action = verdict.action.kind
    row.culprits = [
        {"root": one.root, "kind": one.kind, "id": one.id, "ranks": list(one.ranks), "probability": one.probability}
        | ({"role": one.role} if one.role else {})
        for one in verdict.culprits
    ]
    _mark_unfit(session, row.id, verdict, at)
    session.execute(
        update(Downtime).where(Downtime.incident == row.id, Downtime.verdict_at.is_(None)).values(verdict_at=at)
    )
    session.execute(
        update(Pin)
        .where(*own_pin(row), Pin.until < published.cut.at + PIN_SLACK_SECONDS)
        .values(until=published.cut.at + PIN_SLACK_SECONDS)
    )
    session.flush()
    return True


def close(session: Session, id: str, at: float, because: str, *, recovered: bool = True) -> bool:
    """Close an incident; return False where it is closed already.

    The records of one that named nothing are kept no longer than all others. A named node stays unfit for a day, unless
    the job recovered by itself or a person closed the incident: the restart that follows must not choose that node again.
    """
    row = session.get(Row, id, with_for_update=True)
    if recovered:
        session.execute(delete(UnfitNode).where(UnfitNode.incident == id))
    else:
        session.execute(update(UnfitNode).where(UnfitNode.incident == id).values(until=at + UNFIT_SECONDS))
    if row is None or row.closed_at is not None:
        return False
    row.closed_at, row.closed_because, row.version = at, clean(because, 1_000), row.version + 1
    if not row.culprits and row.pin is not None:
        session.execute(delete(Pin).where(*own_pin(row)))
        row.pin = None
    session.flush()
    return True


def acquit(session: Session, id: str) -> None:
    """Let the nodes that an incident named be fit again: its verdict was wrong."""
    session.execute(delete(UnfitNode).where(UnfitNode.incident == id))


def remembered(session: Session, closed_since: float) -> Iterator[Remembered]:
    """Yield the incidents that are open, and those that were closed since an instant: they show what is settled.

    One that cannot be read is logged and left out: the engine ignores it until it is closed by hand.
    """
    wanted = Row.closed_at.is_(None) | (Row.closed_at >= closed_since)
    for row in session.scalars(select(Row).where(wanted).order_by(Row.opened_at, Row.id)):
        try:
            incident = msgspec.convert(row.state, Incident)
            context = tuple(block.decode(row.context)) if row.context else ()
        except (msgspec.ValidationError, Damaged) as error:
            _log.error("incident_unreadable incident=%s reason=%s", row.id, str(error).partition("\n")[0])
            continue
        if row.closed_at is not None:
            incident = msgspec.structs.replace(incident, closed_at=row.closed_at, closed_because=row.closed_because)
        yield Remembered(incident, context)


def closed_among(session: Session, ids: Collection[str]) -> Sequence[str]:
    """Return those of these incidents that are closed, or deleted."""
    if not ids:
        return []
    found = set(session.scalars(select(Row.id).where(Row.id.in_(ids), Row.closed_at.is_(None))))
    return sorted(set(ids) - found)


def lag(session: Session, now: float) -> Lag:
    """Return how far the engine is behind the log's end."""
    place = session.scalar(select(Cursor.sequence).where(Cursor.reader == READER)) or 0
    newest = session.scalar(select(func.max(Batch.sequence))) or 0
    first = select(Batch.received_at).where(Batch.sequence > place).order_by(Batch.sequence).limit(1)
    waiting_since = session.scalar(first)
    return Lag(max(0, newest - place), 0.0 if waiting_since is None else max(0.0, now - waiting_since))


def to_values(incident: Incident) -> dict[str, Any]:
    """Return an incident as plain values."""
    values: dict[str, Any] = msgspec.to_builtins(incident)
    return values


def _pinned(session: Session, incident: Incident, job: str | None) -> Pin:
    """Keep the incident's records: from the first that its judgements see, to the newest that one was published from."""
    first = select(Batch.received_at).where(Batch.sequence > incident.after).order_by(Batch.sequence).limit(1)
    since = session.scalar(first)
    pin = Pin(
        job=job, since=min(incident.onset_at, incident.opened_at if since is None else since),
        until=incident.opened_at + PIN_SLACK_SECONDS, reason=_reason(incident.id), by=ENGINE,
        made_at=incident.opened_at,
    )  # fmt: skip
    session.add(pin)
    session.flush()
    return pin


def own_pin(row: Row) -> tuple[ColumnElement[bool], ...]:
    """Return the condition of an incident's pin. The number alone would not do: SQLite gives that of a deleted one again."""
    return Pin.id == row.pin, Pin.by == ENGINE, Pin.reason == _reason(row.id)


def _reason(incident: str) -> str:
    return f"incident {incident}"


def _mark_unfit(session: Session, id: str, verdict: Verdict, at: float) -> None:
    """Store which nodes the newest verdict takes out, in place of those of the version before."""
    session.execute(delete(UnfitNode).where(UnfitNode.incident == id))
    if verdict.action.kind not in TAKES_NODES:
        return
    named = dict.fromkeys(clean(name, 255) for name in verdict.action.nodes)
    for node in sorted(named.keys() - acquitted(session, id)):
        why = clean(verdict.action.why, 1_000)
        session.add(UnfitNode(node=node, incident=id, at=at, action=verdict.action.kind, why=why))


def acquitted(session: Session, id: str) -> set[str]:
    """Return the nodes that an operator has judged wrongly taken out; a new version does not change that."""
    return _acquitted(session, Feedback.incident == id).get(id, set())


def acquitted_since(session: Session, at: float) -> dict[str, set[str]]:
    """Return the same of the incidents that were opened since an instant, by incident."""
    return _acquitted(session, Feedback.incident.in_(select(Row.id).where(Row.opened_at >= at)))


class _Taken(msgspec.Struct, frozen=True):
    nodes: tuple[str, ...] = ()


class _Asked(msgspec.Struct, frozen=True):
    """Of a verdict no more than is asked for: what else a newer program wrote into it does not matter here."""

    action: _Taken


def _acquitted(session: Session, incidents: ColumnElement[bool]) -> dict[str, set[str]]:
    judged = (VerdictRow.incident == Feedback.incident) & (VerdictRow.version == Feedback.verdict_version)
    asked = select(VerdictRow.incident, VerdictRow.document).join(Feedback, judged)
    found: dict[str, set[str]] = {}
    for id, document in session.execute(asked.where(incidents, Feedback.judgement == "wrong")):
        try:
            nodes = msgspec.json.decode(document, type=_Asked).action.nodes
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            _log.error("verdict_unreadable incident=%s reason=%s", id, error)
            continue
        found.setdefault(id, set()).update(clean(node, 255) for node in nodes)
    return found


def _nodes(incident: Incident) -> list[str]:
    return [clean(node, 255) for node in incident.nodes]


def bounded(number: int | None) -> int | None:
    """Return a number that fits its column; a record's number has no bound."""
    return number if number is not None and abs(number) <= LARGEST else None
