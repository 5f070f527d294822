"""The records of nodes in the store: one row for each node that was ever named or taken out."""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec
from msgspec.structs import replace
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Weights
from analyzers.remediation import node_history
from analyzers.remediation.node_history import NodeRecord
from service.store.models import NodeRecord as Row
from service.store.upserts import upsert

MOST_NAMES = 500  # that one statement asks for

_log = logging.getLogger(__name__)


def read_record(session: Session, node: str, *, to_change: bool = False) -> NodeRecord:
    """Return the record of a node. ``to_change``: lock it until this transaction ends."""
    # Records are written past the session's own objects, so an earlier read may be old.
    row = session.get(Row, node, with_for_update=to_change or None, populate_existing=True)
    return (_read(row) if row is not None else None) or NodeRecord(node=node)


def read_records(session: Session, nodes: Collection[str]) -> dict[str, NodeRecord]:
    """Return the records of some nodes; most have none."""
    names = sorted(nodes)
    found: dict[str, NodeRecord] = {}
    for start in range(0, len(names), MOST_NAMES):
        found |= _found(session, Row.node.in_(names[start : start + MOST_NAMES]))
    return found


def read_unsettled(session: Session) -> dict[str, NodeRecord]:
    """Return the records of those that are out or under burn-in."""
    return _found(session, _burn_in().in_(("out", "burning_in")) | _was_out())


def read_out(session: Session) -> dict[str, NodeRecord]:
    """Return the records of those that were taken out and have not come back."""
    return {node: record for node, record in _found(session, _was_out()).items() if record.is_out()}


def read_burning_in(session: Session) -> dict[str, NodeRecord]:
    """Return the records of those under burn-in."""
    return _found(session, _burn_in() == "burning_in")


def read_log_odds_shifts(session: Session, nodes: Collection[str], now: float, weights: Weights) -> dict[str, float]:
    """Return how far their past shifts the log odds of a verdict that names these nodes now, where it does."""
    found = read_records(session, nodes).values()
    moved = {one.node: node_history.log_odds_shift(one, now, weights) for one in found}
    return {node: weight for node, weight in moved.items() if weight}


def write_record(session: Session, record: NodeRecord, now: float, *, decided: bool = True) -> NodeRecord:
    """Write a node's record and return it. ``decided``: its ETag grows, because people decide by what has changed."""
    if decided:
        record = replace(record, version=record.version + 1)
    row = {"node": record.node, "changed_at": now, "document": msgspec.to_builtins(record)}
    upsert(session, Row, [row])
    return record


def _was_out() -> ColumnElement[bool]:
    """Return the condition that a node was taken out after it last came back, or never did."""
    out_at, returned_at = (Row.document[name].as_float() for name in ("out_at", "returned_at"))
    away: ColumnElement[bool] = out_at.is_not(None) & (returned_at.is_(None) | (returned_at < out_at))
    return away


def _burn_in() -> ColumnElement[str]:
    state: ColumnElement[str] = Row.document["burn_in"].as_string()
    return state


def _found(session: Session, *where: ColumnElement[bool]) -> dict[str, NodeRecord]:
    rows = session.scalars(select(Row).where(*where).order_by(Row.node))
    return {row.node: record for row in rows if (record := _read(row)) is not None}


def _read(row: Row) -> NodeRecord | None:
    """Return the record of a row; None where it cannot be read, which shifts no odds."""
    try:
        return msgspec.convert(row.document, NodeRecord)
    except msgspec.ValidationError as error:
        _log.error("node_record_unreadable node=%s reason=%s", row.node, error)
        return None
