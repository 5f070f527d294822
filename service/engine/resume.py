"""An engine that starts resumes where the last one stopped: the open incidents from their table, the rest from the log.

    log   ──────────┬───────────────────────┬──────────────────────┬───────────► what comes
                    │ of the nodes of open  │ of all nodes, an     │ place of the
                    └ incidents, since each └ hour or 5,000        └ cursor
                      one's records begin     batches

Batches before the cursor are only observed: they have been decided on. An incident that was being judged is judged again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from analyzers.incidents.downtime import Downtime
from analyzers.incidents.memory import take_learned
from analyzers.incidents.messages import UNDECODABLE, Alarm, Received
from analyzers.incidents.state import LIMITS, EngineState, EvidenceLimits
from analyzers.incidents.step import observe_batch, remember_declared, restore_incidents
from analyzers.knowledge import Knowledge
from collectors.records import block, directory_sender
from collectors.records.record import Damaged
from service.engine import downtimes, learned
from service.store import declarations, incidents
from service.store.database import Database
from service.store.log import AHEAD_SECONDS, Stored, sane
from service.store.models import Alarm as AlarmRow
from service.store.models import Batch, Cursor

LEAST_SECONDS, MOST_SECONDS = 300.0, 3_600.0  # of the log of all nodes that is observed again
ENOUGH_BATCHES = 5_000  # past the least: from an hour of a small fleet the step rhythm of its jobs is learned again
MOST_BATCHES = 100_000  # of the nodes of open incidents, since the oldest of them
PAGE_BATCHES = 64

_ROW = (Batch.sequence, Batch.node, Batch.batch_id, Batch.sent_at, Batch.received_at, Batch.records, Batch.block)
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Resumed:
    """The state that an engine begins with."""

    state: EngineState
    sequence: int  # of the newest batch that was decided on
    downtimes: dict[str, Downtime]


def resume_engine(
    database: Database, knowledge: Knowledge, now: float, alive: Callable[[], None],
    limits: EvidenceLimits = LIMITS,
) -> Resumed:  # fmt: skip
    """Return the state as it was; ``alive`` is called between batches, because this may take a while."""
    with database.session() as session:
        place = _place(session)
        stored = list(incidents.remembered(session, now - MOST_SECONDS))
        waiting = {downtime.incident: downtime for downtime in downtimes.read_open(session, now)}
        start = _start(session, place, now)
        alarms = list(_raised(session))
        declared = list(declarations.changed(session, {}, now))
        known = learned.read(session, now)
    state = EngineState(knowledge, limits=limits)
    state.hosts_before = {key: hosts for key, one in known.items() if (hosts := learned.hosts_in(one)) is not None}
    for one in declared:
        remember_declared(state, one)
    still_open = [one.incident for one in stored if one.incident.closed_at is None]
    since = min((incident.after for incident in still_open), default=start)
    nodes = sorted({node for one in still_open for node in (*one.nodes, directory_sender(one.job or ""))})
    old = (Batch.sequence > since, Batch.sequence <= start, Batch.node.in_(nodes))
    observed = 0
    for stored_batch in _read(database, old, MOST_BATCHES) if since < start else ():
        _observe(state, sane(stored_batch, now), alive)
        observed += 1
    if observed >= MOST_BATCHES:
        _log.warning("engine_resumed_in_part batches=%d why=open_incidents_are_too_large_or_too_old", observed)
    for stored_batch in _read(database, (Batch.sequence > start, Batch.sequence <= place)):
        _observe(state, sane(stored_batch, now), alive)
    state.sequence = max(state.sequence, place)
    state.learned = known
    for key in list(state.jobs):
        take_learned(state, key)
    restore_incidents(state, [(one.incident, one.context) for one in stored])
    state.fleet.restore((), alarms)  # else they would stay raised
    return Resumed(state, place, waiting)


def received_event(stored: Stored) -> Received:
    """Return a batch of the log as an event; one that cannot be decoded still shows that its node sends."""
    try:
        decoded = block.decode_counting(stored.block)
        records, unreadable = tuple(decoded.records), decoded.malformed
    except Damaged:  # the follower has logged it
        records, unreadable = (), UNDECODABLE
    return Received(
        sequence=stored.sequence, received_at=stored.received_at, node=stored.node, records=records,
        sent_at=stored.sent_at, unreadable=unreadable,
    )  # fmt: skip


def _place(session: Session) -> int:
    """Return the cursor; where there is none, the log's end: batches from before the first engine are not judged."""
    cursor = session.get(Cursor, incidents.READER)
    return cursor.sequence if cursor is not None else session.scalar(select(func.max(Batch.sequence))) or 0


def _raised(session: Session) -> Iterator[Alarm]:
    for row in session.scalars(select(AlarmRow).where(AlarmRow.over_at.is_(None)).order_by(AlarmRow.id)):
        yield Alarm(kind=row.kind, text=row.text, nodes=tuple(row.nodes), job=row.job)


def _start(session: Session, place: int, now: float) -> int:
    dated = (Batch.sequence <= place, Batch.received_at <= now + AHEAD_SECONDS)
    at = session.scalar(select(Batch.received_at).where(*dated).order_by(Batch.sequence.desc()).limit(1))
    if at is None:
        return place
    least, most = (_before(session, at - seconds, place) for seconds in (LEAST_SECONDS, MOST_SECONDS))
    return max(most, min(least, place - ENOUGH_BATCHES))


def _before(session: Session, at: float, place: int) -> int:
    """Return the number before the first batch that was received since an instant."""
    order = (Batch.received_at, Batch.size_bytes, Batch.sequence)
    first = session.scalar(select(Batch.sequence).where(Batch.received_at >= at).order_by(*order).limit(1))
    return place if first is None else max(0, min(place, first - 1))


def _read(database: Database, where: Iterable[ColumnElement[bool]], most: int | None = None) -> Iterator[Stored]:
    """Yield batches of the log in order, in short transactions, so that the log's retention does not wait."""
    after = -1
    left = most
    while left is None or left > 0:
        with database.session() as session:
            page = select(*_ROW).where(*where, Batch.sequence > after).order_by(Batch.sequence)
            rows = session.execute(page.limit(PAGE_BATCHES if left is None else min(PAGE_BATCHES, left))).all()
        if not rows:
            return
        after = rows[-1].sequence
        left = None if left is None else left - len(rows)
        yield from (Stored(*row) for row in rows)


def _observe(state: EngineState, stored: Stored, alive: Callable[[], None]) -> None:
    alive()
    try:
        observe_batch(state, received_event(stored))
    except Exception:  # noqa: BLE001 - one bad batch must not keep every engine from starting
        _log.exception("batch_not_observed sequence=%d", stored.sequence)
