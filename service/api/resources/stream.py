"""``GET /v1/stream``: what happens with incidents, as server-sent events."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from fastapi import Header, Query, Request, Response

from service.api import auth, fields
from service.api.problems import documented
from service.api.routing import Router
from service.api.state import service_of
from service.api.streams import EventStream, Wish
from service.store.models import Happening

LONGEST_SECONDS = 3_600.0

router = Router("incidents")


@router.get(
    "/v1/stream", dependencies=[auth.READ], response_class=Response,
    responses={
        200: {
            "description": "Server-sent events: `event` is what happened, `id` its place, `data` a HappeningDocument.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **documented("too-many-requests"),
    },
)  # fmt: skip
async def stream_happenings(
    request: Request,
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    incident: Annotated[str | None, Query(pattern=fields.ID_PATTERN, description="Of this incident.")] = None,
    after: Annotated[
        int | None, Query(ge=0, lt=1 << 63, description="Begin after this place; left out: with what comes.")
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,18}$", description="The same, and it comes before `after`."),
    ] = None,
    wait_seconds: Annotated[
        float,
        Query(ge=0, le=LONGEST_SECONDS, allow_inf_nan=False, description="End after so long; 0: with what there is."),
    ] = LONGEST_SECONDS,
) -> EventStream:
    """Stream what happens: opened, symptom, asked, answered, judged, published, merged, closed, feedback, alarm, and more.

    A client that comes back with the last id misses nothing and gets nothing twice.
    """
    streams = service_of(request).streams
    newest = await asyncio.to_thread(streams.newest)
    streams.check_room()  # last, so that nothing is waited for before it is counted
    asked = after if last_event_id is None else int(last_event_id)
    # A place that is not there yet is of another database: what comes here would be passed over.
    place = newest if asked is None else min(asked, newest)
    equal = {Happening.job: job, Happening.incident: incident}
    where = [column == value for column, value in equal.items() if value is not None]
    return EventStream(streams, Wish(place, where, wait_seconds, partial(auth.still_may, request, "read")))
