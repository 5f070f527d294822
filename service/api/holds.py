"""Holds: leave a node or a job alone until then."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request
from msgspec.structs import replace
from pydantic import BaseModel, Field
from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from analyzers.remediation.messages import AddHold, ExpireHold
from analyzers.remediation.types import Hold, RemediationState, same_node
from service.api import answers, auth, fields, pages, tags
from service.api.auth import Caller
from service.api.problems import Problem, documented
from service.api.state import of
from service.api.steps import DryRun, Strict, take
from service.clock import now
from service.store.models import Hold as Row
from service.store.models import Job, Node

MOST_HOLDS = 10_000
VERSION = 1  # a hold is never changed: it is made, and it ends

router = APIRouter(tags=["holds"])


class HoldWish(Strict):
    """A node or a job to be left alone."""

    node: fields.NodeName | None = None
    job: fields.JobName | None = None
    until: float = Field(ge=0, le=fields.LATEST_AT, description="UTC seconds.")
    reason: fields.Text


class ExpireWish(Strict):
    """Why it ends before its time."""

    reason: Annotated[str, Field(max_length=1_000, pattern=fields.TEXT_PATTERN)] = ""


class HoldDocument(BaseModel):
    """A node or a job that nothing acts on. Instants are UTC seconds."""

    id: str
    node: str | None
    job: str | None
    by: str
    reason: str
    made_at: float
    until: float
    version: int = Field(VERSION, description="Its ETag.")
    known: bool = Field(description="False where nobody has seen such a node or job yet: it may be misspelt.")


@router.get("/v1/holds", operation_id="list_holds", dependencies=[auth.READ], responses=documented())
def list_holds(
    request: Request,
    node: Annotated[fields.NodeName | None, Query(description="Of this node.")] = None,
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    limit: pages.Limit = 100,
    after: pages.After = None,
) -> pages.Page[HoldDocument]:
    """List what is held now, the newest hold first; those that have ended are in the audit log."""
    order = (Row.made_at, Row.id)
    found = select(Row).where(Row.until > now()).order_by(*(column.desc() for column in order)).limit(limit + 1)
    equal = {Row.node: node, Row.job: job}
    found = found.where(*(column == value for column, value in equal.items() if value is not None))
    if (last := pages.from_cursor(after, tuple[float, str])) is not None:
        found = found.where(tuple_(*order) < last)
    with of(request).database.session() as session:
        rows, following = pages.cut(session.scalars(found).all(), limit, lambda row: (row.made_at, row.id))
        holds = [Hold(**{name: getattr(row, name) for name in Hold.__struct_fields__}) for row in rows]
        items = _documents(session, holds)
    return pages.Page(items=items, next=following)


@router.post("/v1/holds", operation_id="add_hold", status_code=201, responses=documented("conflict"))
def add_hold(
    request: Request,
    wish: HoldWish,
    caller: Annotated[Caller, auth.REMEDIATE],
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> HoldDocument:
    """Leave a node or a job alone until then. What has begun is not stopped by it."""
    service, at = of(request), now()
    if (wish.node is None) == (wish.job is None):
        raise Problem("invalid", "a hold is of a node or of a job: give one of them")
    if wish.until <= at:
        raise Problem("invalid", f"until ({wish.until:.0f}) has passed, it is {at:.0f}: choose a later one")

    def make() -> HoldDocument:
        hold = Hold(
            id=f"hold-{secrets.token_hex(6)}", by=caller.actor[:255], reason=wish.reason, made_at=at, until=wish.until,
            node=wish.node, job=wish.job,
        )  # fmt: skip
        take(service, caller, AddHold(hold=hold), hold.id, check=_room, dry_run=dry_run)
        with service.database.session() as session:
            return _documents(session, [hold])[0]

    return make() if dry_run else service.answers.once(caller.actor, key, ("holds", wish), HoldDocument, make)


@router.post(
    "/v1/holds/{id}/expire", operation_id="expire_hold",
    responses=documented("not-found", "precondition-failed", "precondition-required"),
)  # fmt: skip
def expire_hold(
    request: Request,
    id: fields.IdPath,
    caller: Annotated[Caller, auth.REMEDIATE],
    wish: ExpireWish | None = None,
    if_match: tags.IfMatch = None,
    dry_run: DryRun = False,
) -> HoldDocument:
    """End a hold before its time: what was approved meanwhile can act at once."""
    event = ExpireHold(id=id, by=caller.actor, reason=wish.reason if wish else "")

    def check(_session: Session, book: RemediationState) -> None:
        if id in book.holds:  # if there is none, the step says so
            tags.check(if_match, VERSION, f"hold {id}")

    book, _ = take(of(request), caller, event, id, check, dry_run=dry_run)
    with of(request).database.session() as session:
        return _documents(session, [replace(book.holds[id], until=now())])[0]


def _documents(session: Session, holds: Sequence[Hold]) -> list[HoldDocument]:
    """Show holds, each with whether anybody has seen what it is of: a node with its domain or without, or a job."""
    labels: dict[str, list[str]] = {}
    for name in session.scalars(select(Node.name)):
        labels.setdefault(name.partition(".")[0], []).append(name)
    jobs = set(session.scalars(select(Job.name).where(Job.name.in_({hold.job for hold in holds} - {None}))))

    def known(hold: Hold) -> bool:
        if (node := hold.node) is None:
            return hold.job in jobs
        return any(same_node(node, name) for name in labels.get(node.partition(".")[0], ()))

    return [HoldDocument(**msgspec.to_builtins(hold), known=known(hold)) for hold in holds]


def _room(_session: Session, book: RemediationState) -> None:
    if len(book.holds) >= MOST_HOLDS:
        raise Problem("conflict", f"there are {MOST_HOLDS:,} holds already: end some first")
