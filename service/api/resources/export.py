"""``GET /v1/jobs/{job}/export``: the batches of a job's nodes in a span of time, as a bundle that streams."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from fastapi import Request
from fastapi.responses import StreamingResponse
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from collectors.records import Device, Members, block, bundle, directory_sender
from collectors.records import Placement as PlacementRecord
from service.api import auth, fields, spans
from service.api.declaration import Declaration
from service.api.problems import Problem, documented
from service.api.resources.jobs import found
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.store.models import Attempt, Job, Node
from service.store.placements import OBSERVED_SECONDS, job_nodes

DEFAULT_SECONDS = 600.0

router = Router("jobs")


@router.get(
    "/v1/jobs/{job:path}/export",
    dependencies=[auth.READ],
    response_class=StreamingResponse,
    responses=spans.ANSWER | documented("not-found"),
)
def export_job(
    request: Request, job: fields.JobPath, since: fields.Since = None, until: fields.Until = None
) -> StreamingResponse:
    """Stream what the job's nodes sent between two instants of receipt, the last ten minutes by default."""
    service = service_of(request)
    end = now() if until is None else until
    start = max(0.0, end - DEFAULT_SECONDS) if since is None else since
    _check_span(start, end, service.settings.export_hours)
    with service.database.session() as session:
        row = found(session, job)
        attempt = _newest_attempt(session, job, start, end)
        placed = frozenset(job_nodes(session, job, start, end))
        declared = Declaration(**row.declared) if row.declared_at is not None else None
        nodes = placed or (frozenset(declared.nodes) if declared else frozenset())
        span = spans.received(session, start, end, nodes | {directory_sender(job)})
        sizes = spans.sizes(session, span)
        manifest = bundle.Manifest(
            job=job, attempt=attempt, since=start, until=end, nodes=tuple(sorted(nodes)), version=spans.program(),
            missing=tuple(spans.missing(session, span, sizes)),
        )  # fmt: skip
        leading = [*_declared(row, declared, attempt), *_devices(session, sorted(nodes), start)]
    return spans.streamed(service.database, manifest, span, sum(sizes.values()), leading)


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
    ran = (Attempt.job == job, Attempt.first_seen_at < until, Attempt.last_seen_at >= since - OBSERVED_SECONDS)
    return session.scalar(select(func.max(Attempt.number)).where(*ran))


def _declared(row: Job, declared: Declaration | None, attempt: int | None) -> list[bundle.Batch]:
    """Return the declared rank map as a batch of its own: agents see a process, and its owner knows its role."""
    if declared is None or not declared.nodes or attempt not in (None, declared.attempt):
        return []
    placement = PlacementRecord(
        source=bundle.DECLARATION, at=row.declared_at, job=row.name, attempt=declared.attempt,
        ranks=Members.of(range(declared.world_size)), nodes=tuple(declared.nodes), world_size=declared.world_size,
        roles=declared.roles_by_rank(),
    )  # fmt: skip
    return [bundle.Batch(0, row.declared_at or 0.0, block.encode([placement], pack=True))]


def _devices(session: Session, nodes: list[str], since: float) -> Iterator[bundle.Batch]:
    """Yield what the nodes have, as they reported it before the span: agents send it hourly, and readings name devices by it."""
    for first in range(0, len(nodes), spans.FEW_NODES):
        some = nodes[first : first + spans.FEW_NODES]
        for node in session.scalars(select(Node).where(Node.name.in_(some)).order_by(Node.name)):
            known = [msgspec.convert(values, Device) for values in node.devices.values()]
            if earlier := [one for one in known if (one.at or 0.0) < since]:
                yield bundle.Batch(0, since, block.encode(earlier, pack=True), node.name)
