"""Holds: nothing acts on a node or a job until an instant."""

from __future__ import annotations

import difflib
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from fastapi import Query, Request
from msgspec.structs import replace
from pydantic import Field
from sqlalchemy import func, select, tuple_, union
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from analyzers.remediation.messages import AddHold, ExpireHold
from analyzers.remediation.types import Hold, RemediationState, same_node
from service.api import answers, auth, etags, fields, paging
from service.api.auth import Caller
from service.api.problems import Problem, documented
from service.api.routing import Router
from service.api.state import service_of
from service.api.steps import DryRun, take
from service.clock import now
from service.store.models import Hold as Row
from service.store.models import Job, Node, Placement

MOST_HOLDS = 10_000
VERSION = 1  # a hold is never changed: it is made, and it ends

router = Router("holds")


class HoldRequest(fields.Body):
    """A node or a job to be held."""

    node: fields.NodeName | None = Field(None, description="The node; null: it is of a job.")
    job: fields.JobName | None = Field(None, description="The job; null: it is of a node.")
    until: float = Field(ge=0, le=fields.LATEST_AT, description="When it ends, UTC seconds.")
    reason: fields.Text = Field(description="Why.")
    allow_unknown: bool = Field(False, description="Hold a node too that no agent has reported.")


class ExpireRequest(fields.Body):
    """Why a hold ends early."""

    reason: fields.OptionalText = Field("", description="Why.")


class HoldDocument(Hold, frozen=True, kw_only=True):
    """A node or a job that nothing acts on. Instants are UTC seconds."""

    version: Annotated[int, doc("Its ETag.")] = VERSION
    known: Annotated[bool, doc("False: no such node or job has been seen yet; it may be misspelt.")]


@router.get("/v1/holds", dependencies=[auth.READ])
def list_holds(
    request: Request,
    node: Annotated[fields.NodeName | None, Query(description="Of this node.")] = None,
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    limit: paging.Limit = 100,
    after: paging.After = None,
) -> paging.Page[HoldDocument]:
    """List the holds, the newest first; those that have ended are in the audit log."""
    order = (Row.made_at, Row.id)
    found = select(Row).where(Row.until > now()).order_by(*(column.desc() for column in order)).limit(limit + 1)
    if job is not None:
        found = found.where(Row.job == job)
    if node is not None:
        found = found.where(func.lower(Row.node) == node.lower())
    if (last := paging.from_cursor(after, tuple[float, str])) is not None:
        found = found.where(tuple_(*order) < last)
    with service_of(request).database.session() as session:
        rows, following = paging.cut(session.scalars(found).all(), limit, lambda row: (row.made_at, row.id))
        items = _documents(session, [paging.from_row(row, Hold) for row in rows])
    return paging.Page(items=tuple(items), next=following)


@router.post("/v1/holds", status_code=201, responses=documented("conflict", "not-found"))
def add_hold(
    request: Request,
    asked: HoldRequest,
    caller: Annotated[Caller, auth.REMEDIATE],
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> HoldDocument:
    """Keep remediations from acting on a node or a job until an instant. What has begun is not stopped.

    A node that no agent has reported is refused, with names that are like it, unless `allow_unknown` is true.
    """
    service, at = service_of(request), now()
    if (asked.node is None) == (asked.job is None):
        raise Problem("invalid", "a hold is of a node or of a job: give one of them")
    if asked.until <= at:
        raise Problem("invalid", f"until ({asked.until:.0f}) has passed, it is {at:.0f}: choose a later one")

    if asked.node is not None and not asked.allow_unknown:
        with service.database.session() as session:
            _check_known(session, asked.node)

    def make() -> HoldDocument:
        hold = Hold(
            id=f"hold-{secrets.token_hex(6)}", by=caller.actor[:255], reason=asked.reason, made_at=at, until=asked.until,
            node=asked.node, job=asked.job,
        )  # fmt: skip
        take(service, caller, AddHold(hold=hold), hold.id, check=_room, dry_run=dry_run)
        with service.database.session() as session:
            return _documents(session, [hold])[0]

    return make() if dry_run else service.answers.once(caller.actor, key, ("holds", asked), HoldDocument, make)


@router.post(
    "/v1/holds/{id}/expire",
    responses=documented("not-found", "precondition-failed", "precondition-required"),
)  # fmt: skip
def expire_hold(
    request: Request,
    id: fields.IdPath,
    caller: Annotated[Caller, auth.REMEDIATE],
    asked: ExpireRequest | None = None,
    if_match: etags.IfMatch = None,
    dry_run: DryRun = False,
) -> HoldDocument:
    """End a hold before its time: what was approved meanwhile can act at once."""
    event = ExpireHold(id=id, by=caller.actor, reason=asked.reason if asked else "")

    def check(_session: Session, book: RemediationState) -> None:
        if id in book.holds:  # else the step refuses it
            etags.check(if_match, VERSION, f"hold {id}", "/v1/holds")

    book, _ = take(service_of(request), caller, event, id, check, dry_run=dry_run)
    with service_of(request).database.session() as session:
        return _documents(session, [replace(book.holds[id], until=now())])[0]


def _documents(session: Session, holds: Sequence[Hold]) -> list[HoldDocument]:
    """Return holds as the API shows them. A node is known with its domain or without."""
    labels = _by_label(session)
    jobs = set(session.scalars(select(Job.name).where(Job.name.in_({hold.job for hold in holds} - {None}))))

    def known(hold: Hold) -> bool:
        if (node := hold.node) is None:
            return hold.job in jobs
        return _is_known(node, labels)

    return [HoldDocument(**msgspec.structs.asdict(hold), known=known(hold)) for hold in holds]


def _by_label(session: Session) -> dict[str, list[str]]:
    """Return the names of all nodes that report or that a job has run on, by their first label in small letters."""
    labels: dict[str, list[str]] = {}
    for name in session.scalars(union(select(Node.name), select(Placement.node))):
        labels.setdefault(_label(name), []).append(name)
    return labels


def _label(node: str) -> str:
    return node.lower().partition(".")[0]


def _is_known(node: str, labels: Mapping[str, Sequence[str]]) -> bool:
    return any(same_node(node, name) for name in labels.get(_label(node), ()))


def _check_known(session: Session, node: str) -> None:
    """Raise the problem of a node that no agent has reported: a hold under a misspelt name holds nothing."""
    labels = _by_label(session)
    if _is_known(node, labels):
        return
    near = [name for label in difflib.get_close_matches(_label(node), labels, 3, 0.75) for name in labels[label][:1]]
    meant = f"did you mean {' or '.join(near)}? " if near else "/v1/nodes lists those that have reported. "
    raise Problem("not-found", f"no agent has reported node {node}: {meant}`allow_unknown` holds it all the same")


def _room(_session: Session, book: RemediationState) -> None:
    if len(book.holds) >= MOST_HOLDS:
        raise Problem("conflict", f"there are {MOST_HOLDS:,} holds already: POST /v1/holds/{{id}}/expire ends one")
