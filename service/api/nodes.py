"""The nodes that have reported: when last, with which clock, and what their agents see."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from service.api import auth, fields, pages
from service.api.problems import documented, not_found
from service.api.state import of
from service.clock import now
from service.remediation.node_standing import Standing, State, read_standings
from service.store.models import Node

router = APIRouter(tags=["nodes"])


class NodeSummary(BaseModel):
    """A machine that has reported. Instants are UTC seconds."""

    name: str
    first_seen_at: float
    last_seen_at: float
    agent_version: str
    boot_id: str | None
    clock_offset_seconds: float | None = Field(description="The node's clock less the service's, at its newest batch.")
    state: State = Field(description="How it stands; /v1/nodes/{node}/record says more.")
    why: str = Field(description="Why so.")


class NodeDocument(NodeSummary):
    """A machine, what it has, and what its agent sees and cannot see."""

    coverage: dict[str, Any] = Field(description="The newest Coverage record.")
    devices: dict[str, Any] = Field(description="The newest Device record of each device, by its id.")


@router.get("/v1/nodes", operation_id="list_nodes", dependencies=[auth.READ], responses=documented())
def list_nodes(
    request: Request,
    limit: pages.Limit = 100,
    after: pages.After = None,
    since: fields.Since = None,
) -> pages.Page[NodeSummary]:
    """List nodes by name; `since`: those that have reported after it."""
    # Without what only a node's own page shows: a thousand accounts and lists of devices are some hundred megabytes.
    query = select(Node).options(defer(Node.coverage), defer(Node.devices)).order_by(Node.name).limit(limit + 1)
    if (last := pages.from_cursor(after, str)) is not None:
        query = query.where(Node.name > last)
    if since is not None:
        query = query.where(Node.last_seen_at >= since)
    with of(request).database.session() as session:
        rows, following = pages.cut(session.scalars(query).all(), limit, lambda node: node.name)
        standings = _standings(request, session, [node.name for node in rows])
    return pages.Page(items=[NodeSummary(**_summary(node, standings[node.name])) for node in rows], next=following)


@router.get("/v1/nodes/{node}", operation_id="get_node", dependencies=[auth.READ], responses=documented("not-found"))
def get_node(request: Request, node: fields.NodePath) -> NodeDocument:
    """Get one node, its devices and its agent's coverage."""
    with of(request).database.session() as session:
        found = session.get(Node, node)
        if found is None:
            raise not_found("node", node, "/v1/nodes lists those that have reported")
        standing = _standings(request, session, [node])[node]
    return NodeDocument(**_summary(found, standing), coverage=found.coverage, devices=found.devices)


def _standings(request: Request, session: Session, names: list[str]) -> dict[str, Standing]:
    return read_standings(session, now(), of(request).weights(), names)


def _summary(node: Node, standing: Standing) -> dict[str, Any]:
    told = {"state": standing.state, "why": standing.why}
    return told | {name: getattr(node, name) for name in NodeSummary.model_fields if name not in told}
