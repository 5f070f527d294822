"""The nodes that have reported: when last, with which clock, and what their agents see."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Request
from sqlalchemy import func, select
from sqlalchemy.orm import Session, defer

from analyzers.model.doc import doc
from service.api import auth, fields, paging
from service.api.problems import documented, not_found
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.remediation.node_standing import NodeStanding, State, read_standings
from service.store.models import Node

REPORTING_SECONDS = 60.0  # a node that was seen so lately reports; agents ship every ten seconds

router = Router("nodes")


class SeenNode(msgspec.Struct, frozen=True, kw_only=True):
    """A machine that has reported. Instants are UTC seconds."""

    name: Annotated[str, doc("Its name, as its agent reports it.")]
    first_seen_at: Annotated[float, doc("When it first reported.")]
    last_seen_at: Annotated[float, doc("When it last reported.")]
    agent_version: Annotated[str, doc("The version of its agent.")]
    boot_id: Annotated[str | None, doc("The id of its current boot; null: unknown.")]
    clock_offset_seconds: Annotated[float | None, doc("The node's clock less the service's, at its newest batch.")]


class NodeSummary(SeenNode, frozen=True, kw_only=True):
    """A machine that has reported, and its state. Instants are UTC seconds."""

    state: Annotated[State, doc("Whether it is fit; /v1/nodes/{node}/record has more.")]
    why: Annotated[str, doc("The reason of the state.")]
    silent_seconds: Annotated[
        float | None,
        doc(f"For how long it has been silent; null: it has reported in the last {REPORTING_SECONDS:.0f} s."),
    ] = None


class NodeDocument(NodeSummary, frozen=True, kw_only=True):
    """A machine, its devices, and what its agent sees and cannot see."""

    coverage: Annotated[dict[str, Any], doc("The newest Coverage record.")]
    devices: Annotated[dict[str, Any], doc("The newest Device record of each device, by its id.")]


@router.get("/v1/nodes", dependencies=[auth.READ])
def list_nodes(
    request: Request,
    limit: paging.Limit = 100,
    after: paging.After = None,
    since: fields.Since = None,
) -> paging.Page[NodeSummary]:
    """List nodes by name; `since`: those that have reported after it."""
    # Without what only a node's own page shows: a thousand accounts and lists of devices are some hundred megabytes.
    query = select(Node).options(defer(Node.coverage), defer(Node.devices)).order_by(Node.name).limit(limit + 1)
    if (last := paging.from_cursor(after, str)) is not None:
        query = query.where(Node.name > last)
    if since is not None:
        query = query.where(Node.last_seen_at >= since)
    with service_of(request).database.session() as session:
        rows, following = paging.cut(session.scalars(query).all(), limit, lambda node: node.name)
        standings = _standings(request, session, [node.name for node in rows])
    at = now()
    return paging.Page(items=tuple(_shown(node, standings[node.name], at) for node in rows), next=following)


@router.get("/v1/nodes/{node}", dependencies=[auth.READ], responses=documented("not-found"))
def get_node(request: Request, node: fields.NodePath) -> NodeDocument:
    """Get one node, its devices and its agent's coverage."""
    with service_of(request).database.session() as session:
        node = reported_name(session, node)
        found = session.get(Node, node)
        if found is None:
            raise not_found("node", node, "/v1/nodes lists those that have reported")
        standing = _standings(request, session, [node])[node]
    summary = msgspec.structs.asdict(_shown(found, standing, now()))
    return NodeDocument(**summary, coverage=found.coverage, devices=found.devices)


def reported_name(session: Session, node: str) -> str:
    """Return a node's name as its agent reports it: host names are the same in any case. An unknown name stays as it is."""
    alike = session.scalars(select(Node.name).where(func.lower(Node.name) == node.lower()).limit(2)).all()
    return alike[0] if len(alike) == 1 else node


def _standings(request: Request, session: Session, names: list[str]) -> dict[str, NodeStanding]:
    return read_standings(session, now(), service_of(request).weights(), names)


def _shown(node: Node, standing: NodeStanding, at: float) -> NodeSummary:
    seen = msgspec.structs.asdict(paging.from_row(node, SeenNode))
    silent = at - node.last_seen_at
    return NodeSummary(
        **seen, state=standing.state, why=standing.why,
        silent_seconds=round(silent, 1) if silent > REPORTING_SECONDS else None,
    )  # fmt: skip
