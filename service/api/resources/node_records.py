"""What is remembered of a node, its state by that, and its return."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Request, Response
from pydantic import Field
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Weights
from analyzers.model.doc import doc
from analyzers.remediation.node_history import HOUR_SECONDS, HistoryLine, NodeEvent, update_record
from service.api import answers, auth, etags, fields, paging
from service.api.auth import Caller
from service.api.problems import Problem, documented, not_found
from service.api.resources.nodes import reported_name
from service.api.routing import Router
from service.api.state import Service, service_of
from service.api.steps import DryRun
from service.clock import now
from service.remediation import node_records, node_standing
from service.remediation.node_standing import NodeStanding, State
from service.store import audit_log
from service.store.models import Node

router = Router("nodes")


class NodeRecordDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a node, and what is remembered of it. Instants are UTC seconds."""

    node: Annotated[str, doc("The node.")]
    state: Annotated[
        State,
        doc(
            "suspected: an incident or a remediation would take it out. out: it was taken out. burn_in: it has returned, "
            "and is no spare yet. offender: the same, and it was evicted too often for good hours to clear it."
        ),
    ]
    why: Annotated[str, doc("The reason of the state.")]
    since: Annotated[float | None, doc("When the state began; null: unknown.")]
    until: Annotated[float | None, doc("The earliest end of the state; null: unknown.")]
    probability: Annotated[
        float, doc("That it is faulty, by all that is remembered; it fades to the fleet's own rate.")
    ]
    evictions: Annotated[tuple[float, ...], doc("Recent evictions, without those that an acquittal cancelled.")]
    acquittals: Annotated[int, doc("How often its eviction cured nothing.")]
    good_seconds: Annotated[float, doc("How long jobs ran well on it under burn-in.")]
    needed_seconds: Annotated[float, doc("How much of that ends the burn-in.")]
    history: Annotated[tuple[HistoryLine, ...], doc("The newest lines, the oldest of them first.")]
    version: Annotated[int, doc("Its ETag.")]


class ReturnedRequest(fields.Body):
    """A node serves again."""

    reason: fields.Text = Field(description="Why.")
    checked: bool = Field(False, description="It has passed a check: it needs no burn-in.")


@router.get(
    "/v1/fleet/records", dependencies=[auth.READ], responses=documented()
)  # fmt: skip
def list_node_records(
    request: Request, limit: paging.Limit = 100, after: paging.After = None
) -> paging.Page[NodeRecordDocument]:
    """List the nodes that are not fit, by name: suspected, out, under burn-in, offenders."""
    last = paging.from_cursor(after, str) or ""
    found = [one for one in not_fit(service_of(request), now()) if one.node > last]
    return paging.page(found[: limit + 1], limit, lambda one: one.node, lambda one: one)


@router.get(
    "/v1/nodes/{node}/record", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def get_node_record(request: Request, response: Response, node: fields.NodePath) -> NodeRecordDocument:
    """Get the state of a node, what is remembered of it, and its recent history."""
    service = service_of(request)
    with service.database.session() as session:
        found = _known(session, service, reported_name(session, node), now())
    response.headers["ETag"] = etags.etag(found.record.version)
    return document(found, service.weights())


@router.post(
    "/v1/nodes/{node}/returned",
    responses=documented("conflict", "not-found", "precondition-failed", "precondition-required"),
)  # fmt: skip
def return_node(
    request: Request,
    node: fields.NodePath,
    asked: ReturnedRequest,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: etags.IfMatch = None,
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> NodeRecordDocument:
    """Return a node that was taken out. It is under burn-in then, unless it has passed a check."""
    service = service_of(request)

    def make() -> NodeRecordDocument:
        return _returned(service, node, asked, caller, if_match, dry_run=dry_run)

    if dry_run:
        return make()
    return service.answers.once(caller.actor, key, (f"returned {node}", asked), NodeRecordDocument, make)


def not_fit(service: Service, at: float) -> list[NodeRecordDocument]:
    """Return the nodes that are not fit, by name."""
    weights = service.weights()
    with service.database.session() as session:
        found = node_standing.read_standings(session, at, weights).values()
    return [document(one, weights) for one in found if one.state != "fit"]


def document(one: NodeStanding, weights: Weights) -> NodeRecordDocument:
    """Return a node's standing as the API shows it."""
    record = one.record
    return NodeRecordDocument(
        node=record.node, state=one.state, why=one.why, since=one.since, until=one.until,
        probability=round(one.probability, 4), evictions=record.evictions, acquittals=record.acquittals,
        good_seconds=record.stood_seconds, needed_seconds=weights.burn_in.hours * HOUR_SECONDS,
        history=record.history, version=record.version,
    )  # fmt: skip


def _known(session: Session, service: Service, node: str, at: float) -> NodeStanding:
    found = node_standing.read_standings(session, at, service.weights(), [node])[node]
    if found.state == "fit" and not found.record.version and session.get(Node, node) is None:
        raise not_found("node", node, "/v1/nodes lists those that have reported")
    return found


def _returned(
    service: Service, node: str, asked: ReturnedRequest, caller: Caller, if_match: str | None, *, dry_run: bool
) -> NodeRecordDocument:
    at, weights = now(), service.weights()
    with service.database.transaction() as session:
        node = reported_name(session, node)
        node_records.read_record(session, node, to_change=True)  # held to the commit
        found = _known(session, service, node, at)
        etags.check(if_match, found.record.version, f"the record of node {node}", f"/v1/nodes/{node}/record")
        if why_not := _refusal(found, checked=asked.checked):
            raise Problem("conflict", why_not)
        record = found.record
        for kind in ("returned", "probe_passed") if asked.checked else ("returned",):
            record = update_record(record, NodeEvent(kind=kind, note=f"{caller.actor}: {asked.reason}"), at, weights)
        if not dry_run:
            record = node_records.write_record(session, record, at)
            details = {"reason": asked.reason, "checked": asked.checked}
            audit_log.record(session, at, "node_returned", caller.actor, node, details)
        return document(node_standing.read_standing(session, record, at, weights), weights)


def _refusal(found: NodeStanding, *, checked: bool) -> str:
    """Say why a node cannot be returned now; empty: it can."""
    node = found.record.node
    if found.under_way:
        return f"{found.why}: undo {found.under_way}, or wait for its end"
    if found.state == "out" or (found.record.burn_in == "burning_in" and checked):
        return ""
    if found.record.burn_in == "burning_in":
        return f"{node} has returned already and is under burn-in: report that it has passed a check, or wait"
    return f"{node} was not taken out ({found.why}): only a node that is out can be returned"
