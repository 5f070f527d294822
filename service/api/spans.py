"""What a bundle has of the log: the batches of some nodes in a span, and which of them the store no longer has."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import chain, islice
from typing import Any

from fastapi.responses import StreamingResponse
from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import Session

from collectors.records import bundle, is_directory
from service.reports.hostlists import fold_hosts
from service.reports.instants import rfc3339
from service.store.database import Database
from service.store.models import Batch, Cursor, RemovedBatches
from service.store.retention import REMOVED

BUNDLE_TYPE = "application/vnd.faulthound.bundle"
ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A bundle; the header Faulthound-Bytes has its approximate size.",
        "content": {BUNDLE_TYPE: {"schema": {"type": "string", "format": "binary"}}},
    }
}
LOOK_ROWS = 2_000  # of the log in one query
BLOCKS_AT_ONCE = 16
FEW_NODES = 500  # so many nodes the database filters itself


class Overtaken(Exception):
    """Retention was faster than the export."""


@dataclass(frozen=True, slots=True)
class ExportSpan:
    """What is exported: batches of these nodes, received from ``since`` on and before ``until``."""

    since: float
    until: float
    nodes: frozenset[str]
    first: int  # sequence numbers; none: first > last
    last: int

    def where(self) -> list[ColumnElement[bool]]:
        """Return the condition of its batches; where there are many nodes, of others' too."""
        inside = [Batch.received_at >= self.since, Batch.received_at < self.until]
        # What arrives while it streams is not in it.
        inside += [Batch.sequence >= self.first, Batch.sequence <= self.last]
        return [*inside, Batch.node.in_(self.nodes)] if len(self.nodes) <= FEW_NODES else inside


def received(session: Session, since: float, until: float, nodes: frozenset[str]) -> ExportSpan:
    """Return the span between two instants of receipt."""
    # Sequence numbers grow with the time of receipt, but for those of one commit: the first and the last bound the rest.
    inside = select(func.min(Batch.sequence), func.max(Batch.sequence)).where(
        Batch.received_at >= since, Batch.received_at < until
    )
    first, last = session.execute(inside).one()
    return ExportSpan(since, until, nodes, first or 1, last or 0)


def between(session: Session, after: int, through: int, nodes: frozenset[str]) -> ExportSpan:
    """Return the span of the batches with ``after < sequence <= through``; its instants are those of their receipt."""
    inside = select(func.min(Batch.received_at), func.max(Batch.received_at))
    row = session.execute(inside.where(Batch.sequence > after, Batch.sequence <= through)).one()
    since, until = (0.0 if at is None else float(at) for at in row)
    return ExportSpan(since, math.nextafter(until, math.inf), nodes, after + 1, through)


def sizes(session: Session, span: ExportSpan) -> dict[str, int]:
    """Return how many bytes each of the nodes sent; one that sent nothing is not in it."""
    query = select(Batch.node, func.sum(Batch.size_bytes)).where(*span.where()).group_by(Batch.node)
    return {node: int(size) for node, size in session.execute(query) if node in span.nodes}


def missing(session: Session, span: ExportSpan, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield what is missing from the bundle, one sentence each."""
    removed = session.get(Cursor, REMOVED)
    if removed is not None:
        whole = select(Batch.received_at).where(Batch.sequence > removed.sequence).order_by(Batch.sequence).limit(1)
        since = session.scalar(whole)
        if since is None or since > span.since:
            until = "all of them" if since is None else f"what was received before {rfc3339(since)}"
            kept = session.scalar(select(exists().where(Batch.sequence < removed.sequence)))
            yield (
                f"the service no longer has every record from {rfc3339(span.since)} on: retention removed {until}"
                f"{', but for what is pinned' if kept else ''}"
            )
    if given := given_up(session, span):
        yield given
    if all(map(is_directory, span.nodes)):
        yield "no agent saw a rank of the job in this span"
    if silent := {node for node in span.nodes - set(sizes) if not is_directory(node)}:
        yield f"nothing came in this span from {len(silent):,} of the job's nodes: {fold_hosts(sorted(silent)[:1_000])}"


def given_up(session: Session, span: ExportSpan) -> str:
    """Say of which nodes retention took records since the span's first, for they had most of the log; empty: of none."""
    taken = select(RemovedBatches.node, RemovedBatches.received_at).where(RemovedBatches.received_at >= span.since)
    nodes = {row.node: row.received_at for row in session.execute(taken) if row.node in span.nodes}
    if not nodes:
        return ""
    until = rfc3339(max(nodes.values()))
    return (
        "retention removed records of nodes that had more than their share of the log, "
        f"received until {until}: {fold_hosts(sorted(nodes)[:1_000])}"
    )


def streamed(
    database: Database,
    manifest: bundle.Manifest,
    span: ExportSpan,
    size_bytes: int,
    leading: Sequence[bundle.Batch | bundle.Published] = (),
) -> StreamingResponse:
    """Answer with a bundle: what leads, and the span's batches. It breaks off where they are not the bytes promised."""
    headers = {
        "Faulthound-Bytes": str(size_bytes),
        "Content-Disposition": 'attachment; filename="bundle.fhz"',
    }
    entries = chain(leading, _batches(database, span, size_bytes))
    return StreamingResponse(bundle.write(manifest, entries), headers=headers, media_type=BUNDLE_TYPE)


def _batches(database: Database, span: ExportSpan, size_bytes: int) -> Iterator[bundle.Batch]:
    """Yield the batches in the log's order; a session for each handful, so that a slow client blocks no writer.

    Raise ``Overtaken`` where bytes of the promised size are missing: the answer breaks off, and no client takes it for whole.
    """
    left = size_bytes
    sequences = _sequences(database, span)
    while some := list(islice(sequences, BLOCKS_AT_ONCE)):
        query = select(Batch).where(Batch.sequence.in_(some))
        with database.session() as session:
            rows = session.scalars(query.order_by(Batch.sequence)).all()
        for row in rows:
            left -= len(row.block)
            yield bundle.Batch(row.sequence, row.received_at, row.block, row.node, row.sent_at)
    if left:
        raise Overtaken(
            f"retention deleted {left:,} bytes of the span while it was exported: export what is left again"
        )


def _sequences(database: Database, span: ExportSpan) -> Iterator[int]:
    at = span.first - 1
    while at < span.last:
        query = select(Batch.sequence, Batch.node).where(Batch.sequence > at, *span.where())
        with database.session() as session:
            rows = session.execute(query.order_by(Batch.sequence).limit(LOOK_ROWS)).all()
        if not rows:
            return
        yield from (row.sequence for row in rows if row.node in span.nodes)
        at = rows[-1].sequence


def program() -> str:
    """Return the version of this program."""
    try:
        return version("faulthound")
    except PackageNotFoundError:
        return ""
