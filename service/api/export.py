"""``GET /v1/jobs/{job}/export``: the batches of a job's nodes in a span of time, as a bundle that streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import Session

from collectors import block, bundle
from collectors.records import Members
from collectors.records import Placement as PlacementRecord
from service.api import auth, fields
from service.api.declaration import Declaration
from service.api.jobs import found
from service.api.problems import Problem, documented
from service.api.state import of
from service.clock import now
from service.store.database import Database
from service.store.models import Attempt, Batch, Cursor, Job
from service.store.registry import SIGHTING_SECONDS, job_nodes
from service.store.retention import REMOVED
from service.telling.hostlists import fold_hosts
from service.telling.instants import rfc3339

BUNDLE_TYPE = "application/vnd.faulthound.bundle"
DEFAULT_SECONDS = 600.0
LOOK_ROWS = 2_000  # of the log at once: the job's nodes are found among all
BLOCKS_AT_ONCE = 16
FEW_NODES = 500  # so many the database picks out itself

router = APIRouter(tags=["jobs"])


class Overtaken(Exception):
    """Retention was faster than the export."""


@dataclass(frozen=True, slots=True)
class _Span:
    """What is exported: batches of these nodes, received from ``since`` on and before ``until``."""

    since: float
    until: float
    nodes: frozenset[str]
    first: int  # sequence numbers; none: first > last
    last: int

    def where(self) -> list[ColumnElement[bool]]:
        inside = [Batch.received_at >= self.since, Batch.received_at < self.until]
        inside += [
            Batch.sequence >= self.first,
            Batch.sequence <= self.last,
        ]  # what comes while it streams is not in it
        return [*inside, Batch.node.in_(self.nodes)] if len(self.nodes) <= FEW_NODES else inside


@router.get(
    "/v1/jobs/{job:path}/export",
    operation_id="export_job",
    dependencies=[auth.READ],
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A bundle; the header Faulthound-Bytes says about how large it will be.",
            "content": {BUNDLE_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
        **documented("not-found"),
    },
)
def export_job(
    request: Request, job: fields.JobPath, since: fields.Since = None, until: fields.Until = None
) -> StreamingResponse:
    """Stream what the job's nodes sent between two instants of receipt, the last ten minutes by default."""
    service = of(request)
    end = now() if until is None else until
    start = max(0.0, end - DEFAULT_SECONDS) if since is None else since
    _check_span(start, end, service.settings.export_hours)
    with service.database.session() as session:
        row = found(session, job)
        attempt = _newest_attempt(session, job, start, end)
        placed = frozenset(job_nodes(session, job, start, end))
        declared = Declaration(**row.declared) if row.declared_at is not None else None
        span = _span(session, start, end, placed or (frozenset(declared.nodes) if declared else frozenset()))
        sizes = _sizes(session, span)
        manifest = bundle.Manifest(
            job=job, attempt=attempt, since=start, until=end, nodes=tuple(sorted(span.nodes)), version=_version(),
            missing=tuple(_missing(session, span, sizes)),
        )  # fmt: skip
        leading = _declared(row, declared, attempt)
    headers = {
        "Faulthound-Bytes": str(sum(sizes.values())),
        "Content-Disposition": 'attachment; filename="bundle.fhz"',
    }
    batches = _batches(service.database, span, leading, sum(sizes.values()))
    return StreamingResponse(bundle.write(manifest, batches), headers=headers, media_type=BUNDLE_TYPE)


def _check_span(since: float, until: float, most_hours: float) -> None:
    if since >= until:
        raise Problem(
            "invalid", f"since ({since:.3f}) is not before until ({until:.3f}): there is nothing between them"
        )
    if until - since > most_hours * 3_600:
        raise Problem(
            "too-large",
            f"{(until - since) / 3_600:,.1f} hours are asked for and {most_hours:g} are the most: export them in parts",
        )


def _newest_attempt(session: Session, job: str, since: float, until: float) -> int | None:
    ran = (Attempt.job == job, Attempt.first_seen_at < until, Attempt.last_seen_at >= since - SIGHTING_SECONDS)
    return session.scalar(select(func.max(Attempt.number)).where(*ran))


def _span(session: Session, since: float, until: float, nodes: frozenset[str]) -> _Span:
    # Sequence numbers grow with the time of receipt, but for those of one commit: the first and the last bound the rest.
    inside = select(func.min(Batch.sequence), func.max(Batch.sequence)).where(
        Batch.received_at >= since, Batch.received_at < until
    )
    first, last = session.execute(inside).one()
    return _Span(since, until, nodes, first or 1, last or 0)


def _sizes(session: Session, span: _Span) -> dict[str, int]:
    query = select(Batch.node, func.sum(Batch.size_bytes)).where(*span.where()).group_by(Batch.node)
    return {node: int(size) for node, size in session.execute(query) if node in span.nodes}


def _missing(session: Session, span: _Span, sizes: Mapping[str, int]) -> Iterator[str]:
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
    if not span.nodes:
        yield "no agent saw a rank of the job in this span"
    if silent := span.nodes - set(sizes):
        yield f"nothing came in this span from {len(silent):,} of the job's nodes: {fold_hosts(sorted(silent)[:1_000])}"


def _declared(row: Job, declared: Declaration | None, attempt: int | None) -> list[bundle.Batch]:
    """Return the declared rank map as a batch of its own: agents see a process, and its owner knows its role."""
    if declared is None or not declared.nodes or attempt not in (None, declared.attempt):
        return []
    placement = PlacementRecord(
        source="declaration", at=row.declared_at, job=row.name, attempt=declared.attempt,
        ranks=Members.of(range(declared.world_size)), nodes=tuple(declared.nodes), world_size=declared.world_size,
        roles=declared.roles_by_rank(),
    )  # fmt: skip
    return [bundle.Batch(0, row.declared_at or 0.0, block.encode([placement], pack=True))]


def _batches(
    database: Database, span: _Span, leading: Sequence[bundle.Batch], size_bytes: int
) -> Iterator[bundle.Batch]:
    """Yield the batches in the log's order; a session for each handful, so that a slow client holds up nobody.

    Raise ``Overtaken`` where they are not the bytes that were promised: the answer breaks off, and nobody takes it for whole.
    """
    yield from leading
    left = size_bytes
    sequences = _sequences(database, span)
    while some := list(islice(sequences, BLOCKS_AT_ONCE)):
        query = select(Batch.sequence, Batch.received_at, Batch.block).where(Batch.sequence.in_(some))
        with database.session() as session:
            rows: Sequence[Any] = session.execute(query.order_by(Batch.sequence)).all()
        for row in rows:
            left -= len(row.block)
            yield bundle.Batch(row.sequence, row.received_at, row.block)
    if left:
        raise Overtaken(
            f"retention deleted {left:,} bytes of the span while it was exported: export what is left again"
        )


def _sequences(database: Database, span: _Span) -> Iterator[int]:
    at = span.first - 1
    while at < span.last:
        query = select(Batch.sequence, Batch.node).where(Batch.sequence > at, *span.where())
        with database.session() as session:
            rows = session.execute(query.order_by(Batch.sequence).limit(LOOK_ROWS)).all()
        if not rows:
            return
        yield from (row.sequence for row in rows if row.node in span.nodes)
        at = rows[-1].sequence


def _version() -> str:
    try:
        return version("faulthound")
    except PackageNotFoundError:
        return ""
