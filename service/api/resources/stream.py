"""``GET /v1/stream``: the timeline of all incidents, as server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from service.api import auth, fields
from service.api.problems import documented
from service.api.routing import Router
from service.api.state import service_of
from service.api.streams import StreamRoute, Subscription, events
from service.store.models import TimelineEntry

LONGEST_SECONDS = 3_600.0

router = Router("incidents", route_class=StreamRoute)


async def _newest(request: Request) -> AsyncIterator[int]:
    """Yield the newest place, while the stream is counted; a stream too many, and a database that fails, are problems."""
    streams = service_of(request).streams
    async with streams.admit():
        yield await asyncio.to_thread(streams.newest)


@router.get(
    "/v1/stream", dependencies=[auth.READ], response_class=EventSourceResponse, summary="Stream timeline entries",
    responses={
        200: {
            "description": "Server-sent events: `event` is the kind, `id` the place, `data` a TimelineEntryDocument.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **documented("too-many-requests"),
    },
)  # fmt: skip
async def stream_happenings(
    request: Request,
    newest: Annotated[int, Depends(_newest)],
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    incident: Annotated[str | None, Query(pattern=fields.ID_PATTERN, description="Of this incident.")] = None,
    after: Annotated[
        int | None, Query(ge=0, lt=1 << 63, description="Begin after this place; left out: with the next event.")
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            alias="Last-Event-ID", pattern=r"^[0-9]{1,18}$", description="The same; it takes precedence over `after`."
        ),
    ] = None,
    wait_seconds: Annotated[
        float,
        Query(
            ge=0, le=LONGEST_SECONDS, allow_inf_nan=False, description="End after so long; 0: after the present events."
        ),
    ] = LONGEST_SECONDS,
) -> AsyncIterator[ServerSentEvent]:
    """Stream the timeline: opened, symptom, asked, answered, judged, published, merged, closed, feedback, alarm, and more.

    A client that comes back with the last id misses no event and gets none twice.
    """
    streams = service_of(request).streams
    asked = after if last_event_id is None else int(last_event_id)
    # A place after the newest is of another database: new entries would be skipped.
    place = newest if asked is None else min(asked, newest)
    equal = {TimelineEntry.job: job, TimelineEntry.incident: incident}
    where = [column == value for column, value in equal.items() if value is not None]
    async for event in events(
        streams, Subscription(place, where, wait_seconds, partial(auth.still_may, request, "read"))
    ):
        yield event
