"""What is remembered of a node, how it stands by that, and that it is back."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Weights
from analyzers.remediation.node_history import HOUR_SECONDS, NodeEvent, update_record
from service.api import answers, auth, fields, pages, tags
from service.api.auth import Caller
from service.api.problems import Problem, documented, not_found
from service.api.state import Service, of
from service.api.steps import DryRun, Strict
from service.clock import now
from service.remediation import node_records, node_standing
from service.remediation.node_standing import Standing, State
from service.store import events
from service.store.models import Node

router = APIRouter(tags=["nodes"])


class HistoryLine(BaseModel):
    """One thing that happened to a node."""

    at: float
    kind: str = Field(
        description="As in docs/ladder.md: named, evicted, cured, not_cured, returned, trouble and so on."
    )
    note: str = Field(description="The remediation or incident, or who said it and why.")


class NodeRecordDocument(BaseModel):
    """How a node stands, and what is remembered of it. Instants are UTC seconds."""

    node: str
    state: State = Field(
        description="suspected: an incident or a remediation would take it out. out: it was taken out. burn_in: it came "
        "back, and counts as no spare yet. offender: so too, and it was evicted too often for good hours to clear it."
    )
    why: str
    since: float | None
    until: float | None = Field(description="The earliest end of the state; null where nobody can say.")
    probability: float = Field(
        description="That it is faulty, by all that is remembered; fades to the fleet's own rate."
    )
    evictions: list[float] = Field(description="Of late, without those that an acquittal took back.")
    acquittals: int = Field(description="How often its leaving has cured nothing.")
    good_seconds: float = Field(description="In which jobs ran well on it under burn-in.")
    needed_seconds: float = Field(description="Of those, for the burn-in to end.")
    history: list[HistoryLine] = Field(description="The newest lines, the oldest of them first.")
    version: int = Field(description="Its ETag.")


class ReturnedWish(Strict):
    """That a node serves again."""

    reason: fields.Text
    checked: bool = Field(False, description="It has passed a check: it needs no burn-in.")


@router.get(
    "/v1/fleet/records", operation_id="list_node_records", dependencies=[auth.READ], responses=documented()
)  # fmt: skip
def list_node_records(
    request: Request, limit: pages.Limit = 100, after: pages.After = None
) -> pages.Page[NodeRecordDocument]:
    """List the nodes that are not fit, by name: suspected, out, under burn-in, offenders."""
    last = pages.from_cursor(after, str) or ""
    found = [one for one in not_fit(of(request), now()) if one.node > last]
    items, following = pages.cut(found[: limit + 1], limit, lambda one: one.node)
    return pages.Page(items=list(items), next=following)


@router.get(
    "/v1/nodes/{node}/record", operation_id="get_node_record", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def get_node_record(request: Request, response: Response, node: fields.NodePath) -> NodeRecordDocument:
    """Get how a node stands, what is remembered of it, and what happened to it of late."""
    service = of(request)
    with service.database.session() as session:
        found = _known(session, service, node, now())
    response.headers["ETag"] = tags.etag(found.record.version)
    return document(found, service.weights())


@router.post(
    "/v1/nodes/{node}/returned", operation_id="return_node",
    responses=documented("conflict", "not-found", "precondition-failed", "precondition-required"),
)  # fmt: skip
def return_node(
    request: Request,
    node: fields.NodePath,
    wish: ReturnedWish,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: tags.IfMatch = None,
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> NodeRecordDocument:
    """Say that a node which was taken out serves again. It is under burn-in then, unless it has passed a check."""
    service = of(request)

    def make() -> NodeRecordDocument:
        return _returned(service, node, wish, caller, if_match, dry_run=dry_run)

    asked = (f"returned {node}", wish)
    return make() if dry_run else service.answers.once(caller.actor, key, asked, NodeRecordDocument, make)


def not_fit(service: Service, at: float) -> list[NodeRecordDocument]:
    """Return how all nodes stand that are not fit, by name."""
    weights = service.weights()
    with service.database.session() as session:
        found = node_standing.read_standings(session, at, weights).values()
    return [document(one, weights) for one in found if one.state != "fit"]


def document(one: Standing, weights: Weights) -> NodeRecordDocument:
    """Return a node's standing as the API shows it."""
    record = one.record
    return NodeRecordDocument(
        node=record.node, state=one.state, why=one.why, since=one.since, until=one.until,
        probability=round(one.probability, 4), evictions=list(record.evictions), acquittals=record.acquittals,
        good_seconds=record.stood_seconds, needed_seconds=weights.burn_in.hours * HOUR_SECONDS,
        history=[HistoryLine(**msgspec.structs.asdict(line)) for line in record.history], version=record.version,
    )  # fmt: skip


def _known(session: Session, service: Service, node: str, at: float) -> Standing:
    found = node_standing.read_standings(session, at, service.weights(), [node])[node]
    if found.state == "fit" and not found.record.version and session.get(Node, node) is None:
        raise not_found("node", node, "/v1/nodes lists those that have reported")
    return found


def _returned(
    service: Service, node: str, wish: ReturnedWish, caller: Caller, if_match: str | None, *, dry_run: bool
) -> NodeRecordDocument:
    at, weights = now(), service.weights()
    with service.database.transaction() as session:
        node_records.read_record(session, node, to_change=True)  # held to the commit
        found = _known(session, service, node, at)
        tags.check(if_match, found.record.version, f"the record of node {node}")
        if why_not := _refusal(found, checked=wish.checked):
            raise Problem("conflict", why_not)
        record = found.record
        for kind in ("returned", "probe_passed") if wish.checked else ("returned",):
            record = update_record(record, NodeEvent(kind=kind, note=f"{caller.actor}: {wish.reason}"), at, weights)
        if not dry_run:
            record = node_records.write_record(session, record, at)
            details = {"reason": wish.reason, "checked": wish.checked}
            events.record(session, at, "node_returned", caller.actor, node, details)
        return document(node_standing.read_standing(session, record, at, weights), weights)


def _refusal(found: Standing, *, checked: bool) -> str:
    """Say why nobody can say now that a node is back; empty: they can."""
    node = found.record.node
    if found.under_way:
        return f"{found.why}: undo {found.under_way}, or wait for its end"
    if found.state == "out" or (found.record.burn_in == "burning_in" and checked):
        return ""
    if found.record.burn_in == "burning_in":
        return f"{node} is back already, under burn-in: say that it has passed a check, or wait"
    return f"{node} was not taken out ({found.why}): only a node that is out comes back"
