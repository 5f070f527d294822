"""``GET /v1/alarms``: what limits the service's own view of the fleet."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from fastapi import Query, Request
from sqlalchemy import select

from analyzers.model.doc import doc
from service.api import auth, fields, paging
from service.api.routing import Router
from service.api.state import service_of
from service.store.models import Alarm

router = Router("incidents")


class AlarmDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Something that limits the service's view: coverage below its bound, clocks apart."""

    id: Annotated[int, doc("Its number.")]
    kind: Annotated[str, doc("coverage, clock, service_clock, records and so on.")]
    job: Annotated[str | None, doc("The job that it is of; null: the fleet.")]
    text: Annotated[str, doc("One sentence: what, how much, and the bound.")]
    nodes: Annotated[tuple[str, ...], doc("The nodes that it is about.")]
    raised_at: Annotated[float, doc("When it was raised, UTC seconds.")]
    over_at: Annotated[float | None, doc("When it ended, UTC seconds; null: it is still raised.")]


@router.get("/v1/alarms", dependencies=[auth.READ])
def list_alarms(
    request: Request,
    status: Annotated[Literal["raised", "over"] | None, Query(description="Still raised, or over.")] = None,
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    limit: paging.Limit = 100,
    after: paging.After = None,
) -> paging.Page[AlarmDocument]:
    """List alarms, the newest first."""
    query = select(Alarm).order_by(Alarm.id.desc()).limit(limit + 1)
    if status is not None:
        query = query.where(Alarm.over_at.is_(None) if status == "raised" else Alarm.over_at.is_not(None))
    if job is not None:
        query = query.where(Alarm.job == job)
    if (last := paging.from_cursor(after, int)) is not None:
        query = query.where(Alarm.id < last)
    with service_of(request).database.session() as session:
        return paging.page(session.scalars(query).all(), limit, lambda row: row.id, alarm_document)


def alarm_document(row: Alarm) -> AlarmDocument:
    """Return an alarm as it is shown."""
    return paging.from_row(row, AlarmDocument)
