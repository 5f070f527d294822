"""The breaker: open after too large a share of the nodes was taken out in too short a time, until a person closes it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from msgspec.structs import replace
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from analyzers.remediation import breaker
from analyzers.remediation.messages import CloseBreaker
from analyzers.remediation.types import RemediationState
from service.api import auth, fields, tags
from service.api.auth import Caller
from service.api.problems import documented
from service.api.state import of
from service.api.steps import DryRun, Strict, take
from service.clock import now
from service.remediation import rows

router = APIRouter(tags=["breaker"])


class CloseBreakerWish(Strict):
    """What a person has found."""

    reason: fields.Text


class Count(BaseModel):
    """Nodes that were taken out within a time, and how many may be."""

    nodes: int
    most: int
    seconds: float


class BreakerDocument(BaseModel):
    """Whether nodes may be taken out at all, and how many more."""

    open: bool
    at: float | None = Field(None, description="Since when it is open, UTC seconds.")
    reason: str = Field("", description="Why it is open.")
    closed_at: float | None = Field(
        description="When a person last closed it: what was taken out before counts no more."
    )
    breaker: Count = Field(description="What it counts; at `most` it opens.")
    budget: Count = Field(description="Of the hour; at `most` the next one waits.")
    fleet_nodes: int = Field(description="Nodes that have reported within a day.")


@router.get("/v1/breaker", operation_id="get_breaker", dependencies=[auth.READ], responses=documented())
def get_breaker(request: Request, response: Response) -> BreakerDocument:
    """Say how the breaker stands, and how much of the budget is used."""
    at = now()
    with of(request).database.session() as session:
        response.headers["ETag"] = tags.etag(rows.version_of(session, rows.BREAKER))
        return _document(of(request).remedies.read(session, at), at)


@router.post(
    "/v1/breaker/close", operation_id="close_breaker",
    responses=documented("conflict", "precondition-failed", "precondition-required"),
)  # fmt: skip
def close_breaker(
    request: Request,
    wish: CloseBreakerWish,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: tags.IfMatch = None,
    dry_run: DryRun = False,
) -> BreakerDocument:
    """Close the breaker, once it is plain why so many nodes were taken out: as it was seen, and not one that opened since."""
    service = of(request)

    def check(session: Session, _book: RemediationState) -> None:
        tags.check(if_match, rows.version_of(session, rows.BREAKER), "the breaker")

    book, _ = take(
        service, caller, CloseBreaker(by=caller.actor, reason=wish.reason), "breaker", check, dry_run=dry_run
    )
    at = now()
    after = replace(book, trip=None, breaker_closed_at=at) if dry_run else service.remedies.book(at)
    return _document(after, at)


def _document(book: RemediationState, at: float) -> BreakerDocument:
    limits, trip = book.limits, book.trip
    counted_after = max(at - limits.breaker_seconds, book.breaker_closed_at or 0.0)
    return BreakerDocument(
        open=trip is not None,
        at=trip.at if trip else None,
        reason=trip.reason if trip else "",
        closed_at=book.breaker_closed_at,
        breaker=Count(
            nodes=breaker.count_taken(book.executions, counted_after),
            most=breaker.most_nodes(limits, book.facts.fleet_nodes),
            seconds=limits.breaker_seconds,
        ),
        budget=Count(
            nodes=breaker.count_taken(book.executions, at - breaker.BUDGET_SECONDS),
            most=limits.evictions_an_hour,
            seconds=breaker.BUDGET_SECONDS,
        ),
        fleet_nodes=book.facts.fleet_nodes,
    )
