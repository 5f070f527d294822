"""Retention: batches are deleted by age and by the log's size, and with them the rows derived from them.

The oldest go first, a few at a time, so that the log waits for no deletion longer than for another commit. Where the log is
too large, the nodes that have most of it give first, each its own oldest: a sender that floods the log turns over its own
records. A pin keeps the batches and blocks of its span, and what the log's readers have not read stays too. While the
service's clock is not certain nothing is old; the bound of the size needs no clock and holds all the same. A declaration is
never deleted for its age: without it a job could be taken below its minimum.

The records of incidents are kept for some months, and all else about them for a year after their closing. They are kept by a pin
of the engine (``incidents.insert``): without an end of these pins the log would grow by every incident, beyond its bound.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Row, delete, exists, func, select, true, tuple_
from sqlalchemy.orm import Session

from analyzers.incidents.shedding import level
from analyzers.remediation.types import ENDED
from collectors.records import directory_sender
from service.clock import PROCESS, now
from service.settings import Settings
from service.store import placements
from service.store.clock_watch import oldest_kept_at
from service.store.database import Database
from service.store.incidents import ENGINE
from service.store.models import (
    Alarm,
    Attempt,
    AuditEvent,
    Base,
    Batch,
    Block,
    Command,
    Cursor,
    Execution,
    Incident,
    Job,
    Node,
    Pin,
    Placement,
    Progress,
    Remediation,
    RemovedBatches,
    ShadowCase,
    TimelineEntry,
    UnfitNode,
)
from service.store.upserts import upsert

DAY_SECONDS = 86_400.0
AUDIT_DAYS = 365.0  # events outlive what they are about
ROWS_AT_ONCE = 500
BYTES_AT_ONCE = 16 << 20
VACUUM_PAGES = 1_000  # given back in one transaction: 8 MB
SPARE_BYTES = 16 << 20  # free pages that a SQLite file keeps, or a twentieth of it: the next batches take them
READERS = ("follower", "compaction")
SPARE = 0.01  # of the bound is freed beyond it: else each sweep would take a little from each node
REMOVED = "retention"  # row of the cursors: the highest sequence that was deleted: an export reports what is missing

_log = logging.getLogger(__name__)


Rule = tuple[type[Base], tuple[ColumnElement[bool], ...]]


def delete_rows(database: Database, rules: Iterable[Rule]) -> None:
    """Delete the rows of each table for which all its conditions hold."""
    for model, where in rules:
        with database.session() as session:  # nearly always nothing: then no writer has to wait
            if session.scalar(select(exists().where(*where))) is not True:
                continue
        with database.transaction() as session:
            session.execute(delete(model).where(*where))


class RetentionBounds(Protocol):
    """The settings that bound what is kept."""

    retention_days: float
    retention_bytes: int


@dataclass(slots=True)
class Swept:
    """What one sweep did."""

    batches: int = 0
    bytes: int = 0
    blocks: int = 0
    log_bytes: int = 0  # that are left
    over_bytes: int = 0  # of those, past the bound: pinned, or not yet read


@dataclass(frozen=True, slots=True)
class _Kept:
    """The span of a pin; ``nodes`` None: of all nodes."""

    since: float
    until: float
    nodes: frozenset[str] | None

    def holds(self, node: str, since: float, until: float) -> bool:
        return since <= self.until and until >= self.since and (self.nodes is None or node in self.nodes)


class Retention:
    """The rules of a store, and the sweep that carries them out."""

    def __init__(
        self, database: Database, bounds: Settings | RetentionBounds, clock: Callable[[], float] = now,
        is_sure: Callable[[], bool] = lambda: PROCESS.is_sure,
    ) -> None:  # fmt: skip
        """``is_sure``: whether the clock is certain, so that anything is old."""
        self._database, self._bounds, self._clock, self._is_sure = database, bounds, clock, is_sure

    def sweep(self) -> Swept:
        """Delete what is past the bounds."""
        at, is_sure = self._clock(), self._is_sure()
        too_old_at = audit_before_at = float("-inf")
        with self._database.session() as session:
            kept = _kept(session)
            if is_sure:
                too_old_at = oldest_kept_at(session, at, self._bounds.retention_days * DAY_SECONDS)
                audit_before_at = oldest_kept_at(session, at, AUDIT_DAYS * DAY_SECONDS)
            total = session.scalar(select(func.coalesce(func.sum(Batch.size_bytes), 0))) or 0
        swept = Swept(log_bytes=int(total))
        self._sweep_batches(swept, kept, too_old_at, most_bytes=swept.log_bytes)
        reached = self._sweep_shares(swept, kept)
        reached_at = self._sweep_batches(swept, kept, too_old_at, most_bytes=self._bounds.retention_bytes)
        swept.blocks = self._sweep_blocks(kept, reached_at)
        swept.blocks += sum(self._sweep_blocks(kept, at, node) for node, at in reached.items() if at > reached_at)
        if is_sure:
            self._sweep_rows(min([too_old_at, *(span.since for span in kept)]), audit_before_at)
        swept.over_bytes = max(0, swept.log_bytes - self._bounds.retention_bytes)
        if swept.over_bytes:
            _log.warning("retention_blocked over_bytes=%d why=pinned_or_not_yet_read", swept.over_bytes)
        if self._database.is_sqlite:
            self._shrink()
        return swept

    def _sweep_shares(self, swept: Swept, kept: Sequence[_Kept]) -> dict[str, float]:
        """Where the log is too large, bring the nodes that have most of it to one size; return what instant each came to."""
        most_bytes = self._bounds.retention_bytes
        if swept.log_bytes <= most_bytes:
            return {}
        with self._database.session() as session:
            query = select(Batch.node, func.sum(Batch.size_bytes)).group_by(Batch.node)
            sizes = {node: int(size) for node, size in session.execute(query)}
        share = level(sizes.values(), int((1.0 - SPARE) * most_bytes))
        reached: dict[str, float] = {}
        goes: list[Row[Any]] = []
        for node in sorted(node for node, size in sizes.items() if size > share):
            for row in self._oldest_of(node, sizes[node] - share, kept):
                goes.append(row)
                reached[node] = row.received_at
                if len(goes) >= ROWS_AT_ONCE:
                    self._delete(swept, goes, of_shares=True)
                    goes = []
        self._delete(swept, goes, of_shares=True)
        return reached

    def _oldest_of(self, node: str, excess: int, kept: Sequence[_Kept]) -> Iterator[Row[Any]]:
        """Yield a node's oldest batches that no pin holds, until they have so many bytes."""
        for page in self._pages(node):
            for row in page:
                if excess <= 0:
                    return
                if not any(span.holds(row.node, row.received_at, row.received_at) for span in kept):
                    excess -= row.size_bytes
                    yield row

    def _sweep_batches(self, swept: Swept, kept: Sequence[_Kept], too_old_at: float, most_bytes: int) -> float:
        """Delete batches from the oldest on, for their age or the log's size; return the instant of receipt that it came to."""
        reached_at = too_old_at
        for page in self._pages():
            goes: list[Row[Any]] = []
            excess = swept.log_bytes - most_bytes
            for row in page:
                if row.received_at >= too_old_at and excess <= 0:
                    self._delete(swept, goes)
                    return reached_at
                reached_at = max(reached_at, row.received_at)
                if not any(span.holds(row.node, row.received_at, row.received_at) for span in kept):
                    goes.append(row)
                    excess -= row.size_bytes
            self._delete(swept, goes)
        return reached_at

    def _pages(self, node: str | None = None) -> Iterator[Sequence[Any]]:
        """Yield what the readers have read, of a node or of all, the oldest first; the order is that of an index."""
        of_node = true() if node is None else Batch.node == node
        order = (Batch.received_at, Batch.size_bytes, Batch.sequence)
        after: tuple[float, int, int] = (float("-inf"), 0, 0)
        while True:
            with self._database.session() as session:
                page = session.execute(
                    select(*order, Batch.node)
                    .where(of_node, tuple_(*order) > after, Batch.sequence <= _read_up_to(session))
                    .order_by(*order).limit(ROWS_AT_ONCE)
                ).all()  # fmt: skip
            if not page:
                return
            after = (page[-1].received_at, page[-1].size_bytes, page[-1].sequence)
            yield page

    def _delete(self, swept: Swept, goes: Sequence[Row[Any]], *, of_shares: bool = False) -> None:
        for some in _by_size(goes):
            with self._database.transaction() as session:
                deleted = [row.sequence for row in some]
                session.execute(delete(Batch).where(Batch.sequence.in_(deleted)))
                if of_shares:
                    _note_removed(session, some)
                else:
                    row = {"reader": REMOVED, "sequence": max(deleted)}
                    upsert(session, Cursor, [row], where=lambda table, new: new.sequence > table.sequence)
            size_bytes = sum(row.size_bytes for row in some)
            swept.batches += len(some)
            swept.bytes += size_bytes
            swept.log_bytes -= size_bytes

    def _sweep_blocks(self, kept: Sequence[_Kept], before_at: float, node: str | None = None) -> int:
        """Delete the blocks of the minutes whose batches are deleted, of a node or of all."""
        of_node = true() if node is None else Block.node == node
        order = (Block.minute, Block.node, Block.scope)
        after: tuple[int, str, str] = (-1, "", "")
        deleted = 0
        while True:
            with self._database.transaction() as session:
                ended = Block.minute < int(max(0.0, before_at) // 60)
                page = session.execute(
                    select(*order).where(of_node, tuple_(*order) > after, ended).order_by(*order).limit(ROWS_AT_ONCE)
                ).all()
                if not page:
                    return deleted
                after = (page[-1].minute, page[-1].node, page[-1].scope)
                goes = [
                    tuple(row) for row in page
                    if not any(span.holds(row.node, row.minute * 60.0, row.minute * 60.0 + 60.0) for span in kept)
                ]  # fmt: skip
                if goes:
                    session.execute(delete(Block).where(tuple_(*order).in_(goes)))
                deleted += len(goes)

    def _sweep_rows(self, before_at: float, audit_before_at: float) -> None:
        """Delete rows without records: nodes, jobs and their runs, ended commands; events after a year."""
        has_attempts = exists().where(Attempt.job == Job.name)
        rules: tuple[Rule, ...] = (
            (Placement, (Placement.last_seen_at < before_at,)),
            (Attempt, (Attempt.last_seen_at < before_at,)),
            (Progress, (Progress.at < before_at,)),
            (Job, (Job.last_seen_at < before_at, Job.declared_at.is_(None), ~has_attempts)),
            (Node, (Node.last_seen_at < before_at,)),
            (Command, (Command.expires_at < before_at,)),
            (AuditEvent, (AuditEvent.at < audit_before_at,)),
            (RemovedBatches, (RemovedBatches.received_at < before_at,)),
        )
        delete_rows(self._database, rules)

    def _shrink(self) -> None:
        """Give free pages back to the file system; the file is cut at the next checkpoint."""
        while True:
            with self._database.session() as session:
                free, pages, size = (
                    int(session.connection().exec_driver_sql(f"PRAGMA {name}").scalar_one())
                    for name in ("freelist_count", "page_count", "page_size")
                )
            spare = max(SPARE_BYTES // size, pages // 20)
            if free <= spare:
                return
            self._database.shrink(min(VACUUM_PAGES, free - spare))


def _note_removed(session: Session, gone: Iterable[Row[Any]]) -> None:
    """Note up to where nodes have given batches up: an export states whose records are missing."""
    newest: dict[str, Row[Any]] = {}
    for row in gone:
        if row.node not in newest or row.sequence > newest[row.node].sequence:
            newest[row.node] = row
    rows = [{"node": node, "sequence": row.sequence, "received_at": row.received_at} for node, row in newest.items()]
    upsert(session, RemovedBatches, rows, where=lambda table, new: new.sequence > table.sequence)


def _kept(session: Session) -> list[_Kept]:
    """Return the spans of the pins. A job's is of the nodes that it ran on, and so grows while the job moves."""
    kept = []
    for pin in session.scalars(select(Pin)):
        nodes: frozenset[str] | None = None
        if pin.job is not None:
            hosts = placements.job_nodes(session, pin.job, pin.since, pin.until)
            nodes = frozenset({*hosts, directory_sender(pin.job)})
        kept.append(_Kept(pin.since, pin.until, nodes))
    return kept


def _read_up_to(session: Session) -> int:
    """Return the place of the log that every reader has passed; one that has not begun has passed none."""
    places = session.scalars(select(Cursor.sequence).where(Cursor.reader.in_(READERS))).all()
    return min(places) if len(places) == len(READERS) else 0


def _by_size(rows: Iterable[Row[Any]]) -> Iterator[list[Row[Any]]]:
    some: list[Row[Any]] = []
    size_bytes = 0
    for row in rows:
        if some and size_bytes + row.size_bytes > BYTES_AT_ONCE:
            yield some
            some, size_bytes = [], 0
        some.append(row)
        size_bytes += row.size_bytes
    if some:
        yield some


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
