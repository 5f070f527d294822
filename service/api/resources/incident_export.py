"""``GET /v1/incidents/{id}/export``: the batches that an incident was judged from, and each version of its verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fastapi import Request
from fastapi.responses import StreamingResponse
from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from collectors.records import bundle, directory_sender
from service.api import auth, fields, spans
from service.api.incident_documents import found, plan_of
from service.api.problems import documented
from service.api.routing import Router
from service.api.state import service_of
from service.store import incidents
from service.store.models import Batch, Cursor, Incident, Pin, Verdict
from service.store.retention import REMOVED

router = Router("incidents")


@router.get(
    "/v1/incidents/{id}/export",
    dependencies=[auth.READ],
    response_class=StreamingResponse,
    responses=spans.ANSWER | documented("not-found"),
)
def export_incident(request: Request, id: fields.IdPath) -> StreamingResponse:
    """Stream what the newest version of the verdict was judged from, and all versions: what `faulthound replay` reads."""
    service = service_of(request)
    with service.database.session() as session:
        row = found(session, id)
        published = session.scalars(
            select(Verdict).options(defer(Verdict.claims)).where(Verdict.incident == id).order_by(Verdict.version)
        ).all()
        nodes = tuple(row.state.get("nodes", row.nodes))
        senders = frozenset({*nodes, directory_sender(row.job or "")})
        span = spans.between(session, _after(row), _through(session, row, published), senders)
        sizes = spans.sizes(session, span)
        manifest = bundle.Manifest(
            job=row.job or "", attempt=row.attempt, since=span.since, until=span.until, nodes=tuple(sorted(nodes)),
            version=spans.program(), missing=tuple(_missing(session, row, span)),
            incident=bundle.Incident(
                id=id, kind=row.kind, job=row.job, attempt=row.attempt, after=_after(row), opened_at=row.opened_at,
                nodes=nodes, cuts=tuple(one.cut for one in published), plan=plan_of(session, row),
            ),
        )  # fmt: skip
        leading: list[bundle.Batch | bundle.Published] = [*_versions(published), *_context(row)]
    return spans.streamed(service.database, manifest, span, sum(sizes.values()), leading)


def _after(row: Incident) -> int:
    return int(row.state.get("after", 0))


def _through(session: Session, row: Incident, published: Sequence[Verdict]) -> int:
    """Return the last batch that a version saw; where none is published, the last that came while it was open."""
    if published:
        return max(int(one.cut.get("through", 0)) for one in published)
    newest = select(func.max(Batch.sequence)).where(Batch.sequence > _after(row))
    if row.closed_at is not None:
        newest = newest.where(Batch.received_at <= row.closed_at)
    return session.scalar(newest) or _after(row)


def _missing(session: Session, row: Incident, span: spans.ExportSpan) -> Iterator[str]:
    """Yield what was removed. A pin over the whole span has kept it, whatever else was removed around it."""
    pin = session.scalar(select(Pin).where(*incidents.own_pin(row)))
    if pin is not None and pin.until >= span.until:
        return
    if given := spans.given_up(session, span):
        yield given
    removed = session.get(Cursor, REMOVED)
    if removed is None or removed.sequence < span.first:
        return
    yield (
        f"retention has removed batches up to number {removed.sequence:,}, and the incident begins with {span.first:,}: "
        "its first records may be missing, and a replay may give another verdict"
    )


def _versions(published: Sequence[Verdict]) -> Iterator[bundle.Published]:
    for one in published:
        yield bundle.Published(
            version=one.version, at=one.at, cut=one.cut, knowledge=one.knowledge, program=one.program,
            document=one.document,
        )  # fmt: skip


def _context(row: Incident) -> Iterator[bundle.Batch]:
    """Yield the records before the first batch that still held."""
    if row.context:
        yield bundle.Batch(0, row.opened_at, row.context)
