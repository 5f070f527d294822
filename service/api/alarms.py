"""``GET /v1/alarms``: what a person should know about the service's own sight."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from sqlalchemy import select

from service.api import auth, fields, pages
from service.api.problems import documented
from service.api.state import of
from service.store.models import Alarm

router = APIRouter(tags=["incidents"])


class AlarmDocument(BaseModel):
    """Something that dims the service's sight: coverage below its bound, clocks apart."""

    id: int
    kind: str
    job: str | None
    text: str
    nodes: list[str]
    raised_at: float
    over_at: float | None = Field(description="null: it goes on.")


@router.get("/v1/alarms", operation_id="list_alarms", dependencies=[auth.READ], responses=documented())
def list_alarms(
    request: Request,
    status: Annotated[
        Literal["raised", "over"] | None, Query(description="Those that go on, or those that do not.")
    ] = None,
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    limit: pages.Limit = 100,
    after: pages.After = None,
) -> pages.Page[AlarmDocument]:
    """List alarms, the newest first."""
    query = select(Alarm).order_by(Alarm.id.desc()).limit(limit + 1)
    if status is not None:
        query = query.where(Alarm.over_at.is_(None) if status == "raised" else Alarm.over_at.is_not(None))
    if job is not None:
        query = query.where(Alarm.job == job)
    if (last := pages.from_cursor(after, int)) is not None:
        query = query.where(Alarm.id < last)
    with of(request).database.session() as session:
        rows, following = pages.cut(session.scalars(query).all(), limit, lambda row: row.id)
    return pages.Page(items=[alarm_document(row) for row in rows], next=following)


def alarm_document(row: Alarm) -> AlarmDocument:
    """Return an alarm as it is shown."""
    return AlarmDocument(**{name: getattr(row, name) for name in AlarmDocument.model_fields})
