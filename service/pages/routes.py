"""Addresses of pages: ``/``, ``/incidents/{id}``, ``/remediations``, ``/holds``, ``/nodes``; and those their forms go to."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import select

from service.api import fields
from service.api.resources import now as current
from service.api.resources.holds import VERSION as HOLD_VERSION
from service.api.state import service_of
from service.clock import now
from service.pages import incidents, proposals
from service.pages.missing import PageRoute
from service.pages.rendering import response
from service.pages.stops import stops
from service.pages.visitors import Looks
from service.reports.hostlists import fold_hosts
from service.store.models import Hold

MOST_HOLDS = 500

router = APIRouter(include_in_schema=False, route_class=PageRoute)
Pause = Annotated[bool, Query(description="Do not look again.")]
Version = Annotated[int | None, Query(ge=1, lt=1 << 31, description="Of the verdict; the newest, if left out.")]


@router.get("/", response_class=HTMLResponse)
def now_page(request: Request, visitor: Looks, pause: Pause = False) -> HTMLResponse:
    """Show what goes on: open incidents, what is done about them, jobs, what is not seen, and how the engine stands."""
    service = service_of(request)
    document = current.document(service)
    with service.database.session() as session:
        under_way, stopped = proposals.under_way(service, session, document.at), stops(session)
    return response(
        "now.html", "/v1/now", visitor=visitor, stops=stopped, goes_on=True, paused=pause, doc=document,
        open_rows=incidents.rows(document.incidents), closed_rows=incidents.rows(document.closed),
        silent=fold_hosts(document.sight.silent),
        remedies=under_way,
    )  # fmt: skip


@router.get("/incidents/{id}", response_class=HTMLResponse)
def incident_page(
    request: Request, visitor: Looks, id: fields.IdPath, version: Version = None, pause: Pause = False
) -> HTMLResponse:
    """Show one incident: its verdict, how it changed, what happened, and what people say."""
    return incidents.page(service_of(request), visitor, id, version, paused=pause)


@router.get("/remediations", response_class=HTMLResponse)
def remediations_page(request: Request, visitor: Looks, pause: Pause = False) -> HTMLResponse:
    """Show what was proposed and done, the newest first, and what stops all of it."""
    return proposals.page(service_of(request), visitor, paused=pause)


@router.get("/holds", response_class=HTMLResponse)
def holds_page(request: Request, visitor: Looks, pause: Pause = False) -> HTMLResponse:
    """Show what is held, by whom and until when."""
    held = select(Hold).where(Hold.until > now()).order_by(Hold.made_at.desc(), Hold.id.desc()).limit(MOST_HOLDS)
    with service_of(request).database.session() as session:
        found, stopped = session.scalars(held).all(), stops(session)
    return response(
        "holds.html",
        "/v1/holds",
        visitor=visitor,
        stops=stopped,
        goes_on=not visitor.signed_in,
        paused=pause,
        holds=found,
        hold_version=HOLD_VERSION,
    )
