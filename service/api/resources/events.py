"""The audit log, the newest event first."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query, Request

from analyzers.model.doc import doc
from service.api import auth, paging
from service.api.routing import Router
from service.api.state import service_of
from service.store import audit_log

router = Router("events")


class EventDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done, or refused."""

    sequence: Annotated[int, doc("Its place in the audit log.")]
    at: Annotated[float, doc("When, UTC seconds.")]
    kind: Annotated[str, doc("What was done: token_made, job_declared, scope_refused and so on.")]
    actor: Annotated[str, doc("Who did it: a token's name and id, or an agent.")]
    subject: Annotated[str, doc("What it was done to.")]
    details: Annotated[dict[str, Any], doc("More of it, by kind.")]


@router.get("/v1/events", dependencies=[auth.READ])
def list_events(
    request: Request,
    limit: paging.Limit = 100,
    after: paging.After = None,
    kind: Annotated[str | None, Query(pattern=r"^[a-z_]{1,64}$", description="Of this kind only.")] = None,
) -> paging.Page[EventDocument]:
    """List what was done and refused, the newest first."""
    before = paging.from_cursor(after, int)
    with service_of(request).database.session() as session:
        found = audit_log.newest(session, limit + 1, before, kind)
    return paging.page(found, limit, lambda event: event.sequence, lambda event: paging.from_row(event, EventDocument))
