"""The breaker: open after too large a share of the nodes was taken out in too short a time, until a person closes it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Request, Response
from msgspec.structs import replace
from pydantic import Field
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from analyzers.remediation import breaker
from analyzers.remediation.messages import CloseBreaker
from analyzers.remediation.types import RemediationState
from service.api import auth, etags, fields
from service.api.auth import Caller
from service.api.problems import documented
from service.api.routing import Router
from service.api.state import service_of
from service.api.steps import DryRun, take
from service.clock import now
from service.remediation import rows

router = Router("breaker")


class CloseBreakerRequest(fields.Body):
    """What a person has found."""

    reason: fields.Text = Field(description="Why it may be closed.")


class Count(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that were taken out within a time, and the bound."""

    nodes: Annotated[int, doc("Nodes that were taken out.")]
    most: Annotated[int, doc("The bound.")]
    seconds: Annotated[float, doc("The time.")]


class BreakerDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether nodes may be taken out at all, and how many more."""

    open: Annotated[bool, doc("True: no node is taken out until a person closes it.")]
    at: Annotated[float | None, doc("Since when it is open, UTC seconds; null: it is closed.")] = None
    reason: Annotated[str, doc("Why it is open.")] = ""
    closed_at: Annotated[float | None, doc("When a person last closed it: evictions before that count no more.")]
    breaker: Annotated[Count, doc("What it counts; at `most` it opens.")]
    budget: Annotated[Count, doc("Of the last hour; at `most` the next remediation waits.")]
    fleet_nodes: Annotated[int, doc("Nodes that report and that no sender can have invented: the share is of them.")]


@router.get("/v1/breaker", dependencies=[auth.READ])
def get_breaker(request: Request, response: Response) -> BreakerDocument:
    """Return the state of the breaker, and how much of the budget is used."""
    at = now()
    with service_of(request).database.session() as session:
        response.headers["ETag"] = etags.etag(rows.version_of(session, rows.BREAKER))
        return _document(service_of(request).remedies.read(session, at), at)


@router.post(
    "/v1/breaker/close",
    responses=documented("conflict", "precondition-failed", "precondition-required"),
)  # fmt: skip
def close_breaker(
    request: Request,
    asked: CloseBreakerRequest,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: etags.IfMatch = None,
    dry_run: DryRun = False,
) -> BreakerDocument:
    """Close the breaker, once it is known why so many nodes were taken out: the version that was read, and no later one."""
    service = service_of(request)

    def check(session: Session, _book: RemediationState) -> None:
        etags.check(if_match, rows.version_of(session, rows.BREAKER), "the breaker", "/v1/breaker")

    event = CloseBreaker(by=caller.actor, reason=asked.reason)
    book, _ = take(service, caller, event, "breaker", check, dry_run=dry_run)
    at = now()
    after = replace(book, trip=None, breaker_closed_at=at) if dry_run else service.remedies.state(at)
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
