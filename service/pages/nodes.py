"""``/nodes``: which nodes are not fit and why, and how many should stand by."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import func, select

from service.api.resources import node_records, standbys
from service.api.resources.nodes import REPORTING_SECONDS
from service.api.state import service_of
from service.clock import now
from service.pages.missing import PageRoute
from service.pages.rendering import response
from service.pages.stops import stops
from service.pages.visitors import Looks
from service.store.models import Node

MOST = 500

router = APIRouter(include_in_schema=False, route_class=PageRoute)


@router.get("/nodes", response_class=HTMLResponse)
def nodes_page(request: Request, visitor: Looks) -> HTMLResponse:
    """Show the nodes that are not fit, and what the fleet's rate of failures says of standbys.

    It does not look again by itself: it counts all of the fleet, and what it shows changes by the hour.
    """
    service = service_of(request)
    found = node_records.not_fit(service, now())
    with service.database.session() as session:
        known, stopped = session.scalar(select(func.count()).select_from(Node)) or 0, stops(session)
        silent = select(Node.name, Node.last_seen_at).where(Node.last_seen_at < now() - REPORTING_SECONDS)
        quiet = session.execute(silent.order_by(Node.last_seen_at.desc(), Node.name).limit(MOST + 1)).all()
    return response(
        "nodes.html", "/v1/fleet/records", visitor=visitor, stops=stopped, nodes=found[:MOST], more=len(found) - MOST,
        known=known, silent=quiet[:MOST], more_silent=len(quiet) > MOST, standbys=standbys.document(service),
    )  # fmt: skip
