"""``GET /v1/jobs/{job}/samples``: what the job's nodes sampled in a span of time, as one array."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
from fastapi import Query, Request, Response

from analyzers.model.doc import doc
from service.api import auth, fields
from service.api.problems import Problem, documented
from service.api.resources.jobs import found
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.store.placements import job_nodes
from service.store.window.assembly import assemble
from service.store.window.tail import Cube, TooMany

DEFAULT_SECONDS = 600.0
MOST_TICKS = 2_000
MOST_VALUES = 2_000_000  # 1,024 GPUs × 20 metrics × ten minutes and some

router = Router("jobs")


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """Samples on a grid of ten seconds."""

    ticks: Annotated[list[float], doc("The instants of the grid, UTC seconds.")]
    devices: Annotated[list[tuple[str, str]], doc("Node and device.")]
    metrics: Annotated[list[str], doc("The names of the metrics.")]
    values: Annotated[
        list[list[list[float | None]]],
        doc("By tick, device and metric; null: not read. A counter is its growth since a reading of the span."),
    ]


@router.get(
    "/v1/jobs/{job:path}/samples", dependencies=[auth.READ], response_model=Samples,
    responses=documented("not-found", "too-large"),
)  # fmt: skip
def get_samples(
    request: Request,
    job: fields.JobPath,
    scope: Annotated[
        str, Query(pattern=r"^[a-z_]{1,64}$", description="gpu, dcgm, infiniband, network, host, process …")
    ],
    metric: Annotated[list[str] | None, Query(max_length=64, description="These only; none: all of the scope.")] = None,
    since: fields.Since = None,
    until: fields.Until = None,
) -> Response:
    """Return what the nodes of a job sampled, the last ten minutes by default."""
    service = service_of(request)
    at = now()
    end = at if until is None else until
    start = max(0.0, end - DEFAULT_SECONDS) if since is None else since
    ticks = (end - start) / service.tail.tick_seconds
    if not 0 < ticks <= MOST_TICKS:
        raise Problem(
            "invalid", f"{start:.3f} to {end:.3f} has {ticks:,.0f} ticks: ask for 1 to {MOST_TICKS:,} at once"
        )
    with service.database.session() as session:
        found(session, job)
        nodes = job_nodes(session, job, start, end)
    try:
        cube = assemble(service.tail, service.database, scope, nodes, metric, start, end, at, MOST_VALUES)
    except TooMany as many:
        raise Problem("too-large", f"{many}: name metrics, or a shorter span") from None
    return Response(msgspec.json.encode(_document(cube)), media_type="application/json")


def _document(cube: Cube) -> Samples:
    values = cube.values.astype(object)
    values[np.isnan(cube.values)] = None
    return Samples(
        ticks=cube.ticks.tolist(), devices=list(cube.devices), metrics=list(cube.metrics), values=values.tolist()
    )
