"""``GET /v1/jobs/{job}/roles/stream``: the changes of a job's role directory, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from time import monotonic
from typing import Annotated

import msgspec
from fastapi import Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service.api import auth, fields
from service.api.auth import Caller
from service.api.problems import documented
from service.api.role_documents import directory_document, wait
from service.api.routing import Router
from service.api.state import service_of
from service.api.streams import CHECK_SECONDS, RETRY_MILLISECONDS, StreamRoute

LONGEST_SECONDS = 3_600.0

router = Router("roles", route_class=StreamRoute)


@router.get(
    "/v1/jobs/{job:path}/roles/stream", response_class=EventSourceResponse, summary="Stream changes of the roles",
    responses={
        200: {
            "description": "Server-sent events: `event` is `roles`, `id` the version, `data` a DirectoryDocument.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **documented("too-many-requests"),
    },
)  # fmt: skip
async def stream_roles(
    request: Request,
    job: fields.JobPath,
    caller: Annotated[Caller, auth.ROLES_READ],
    after: fields.AfterVersion = 0,
    wait_seconds: Annotated[
        float, Query(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False, description="End after so long.")
    ] = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream a job's directory: first what changed after a version, then each change."""
    auth.check_job(request, caller, job)
    service, deadline = service_of(request), monotonic() + wait_seconds
    allowed = partial(auth.still_may, request, "read", "roles")
    yield ServerSentEvent(id=str(after), retry=RETRY_MILLISECONDS)
    while not service.role_watch.closed and await allowed():
        found = await asyncio.to_thread(service.roles.read, job, after)
        if found is not None and found.slots:
            rules = await asyncio.to_thread(service.role_rules)
            data = msgspec.json.encode(directory_document(job, found, rules)).decode()
            yield ServerSentEvent(raw_data=data, event="roles", id=str(found.version))
        after = found.version if found is not None else 0
        if (left := deadline - monotonic()) <= 0:
            return
        await wait(service, job, after, min(left, CHECK_SECONDS))
