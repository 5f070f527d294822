"""The audit log, the newest event first."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from service.api import auth, pages
from service.api.problems import documented
from service.api.state import of
from service.store import events

router = APIRouter(tags=["events"])


class EventDocument(BaseModel):
    """Something that was done, or refused."""

    sequence: int
    at: float = Field(description="UTC seconds.")
    kind: str
    actor: str
    subject: str
    details: dict[str, Any]


@router.get("/v1/events", operation_id="list_events", dependencies=[auth.READ], responses=documented())
def list_events(
    request: Request,
    limit: pages.Limit = 100,
    after: pages.After = None,
    kind: Annotated[str | None, Query(pattern=r"^[a-z_]{1,64}$", description="Of this kind only.")] = None,
) -> pages.Page[EventDocument]:
    """List what was done and refused, the newest first."""
    before = pages.from_cursor(after, int)
    with of(request).database.session() as session:
        found = events.newest(session, limit + 1, before, kind)
    rows, following = pages.cut(found, limit, lambda event: event.sequence)
    items = [EventDocument(**{name: getattr(event, name) for name in EventDocument.model_fields}) for event in rows]
    return pages.Page(items=items, next=following)
