"""Pins: spans of a job's records, or of all, that retention leaves alone."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Path, Request
from pydantic import Field
from sqlalchemy import func, select

from analyzers.model.doc import doc
from service.api import answers, auth, fields, paging
from service.api.auth import Caller
from service.api.problems import Problem, documented, not_found
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.store import audit_log
from service.store.incidents import ENGINE
from service.store.models import Pin

MOST_PINS = 1_000

router = Router("pins")


class PinRequest(fields.Body):
    """A span to be kept."""

    job: fields.JobName | None = Field(None, description="The job whose nodes' records are kept; null: all records.")
    since: float = Field(ge=0, le=fields.LATEST_AT, description="The first instant of receipt, UTC seconds.")
    until: float = Field(ge=0, le=fields.LATEST_AT, description="The last instant of receipt, UTC seconds.")
    reason: fields.Text = Field(description="Why.")


class PinDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A span that is kept."""

    id: Annotated[int, doc("Its number.")]
    job: Annotated[str | None, doc("The job whose nodes' records are kept; null: all records.")]
    since: Annotated[float, doc("The first instant of receipt, UTC seconds.")]
    until: Annotated[float, doc("The last instant of receipt, UTC seconds.")]
    reason: Annotated[str, doc("Why.")]
    by: Annotated[str, doc("The caller that made it, or `engine`.")]
    made_at: Annotated[float, doc("When it was made, UTC seconds.")]


@router.post("/v1/pins", status_code=201, responses=documented("conflict"))
def create_pin(
    request: Request, asked: PinRequest, caller: Annotated[Caller, auth.REMEDIATE], key: answers.Key = None
) -> PinDocument:
    """Keep a span of records until the pin is removed."""
    service = service_of(request)
    if asked.since >= asked.until:
        raise Problem(
            "invalid", f"since ({asked.since:.3f}) is not before until ({asked.until:.3f}): choose a later until"
        )

    def make() -> PinDocument:
        at = now()
        pin = Pin(**asked.model_dump(), by=caller.actor[:255], made_at=at)
        with service.database.transaction() as session:
            if (session.scalar(select(func.count()).where(Pin.by != ENGINE)) or 0) >= MOST_PINS:
                raise Problem("conflict", f"there are {MOST_PINS:,} pins already: DELETE /v1/pins/{{id}} removes one")
            session.add(pin)
            session.flush()
            details = {"job": asked.job, "since": asked.since, "until": asked.until, "reason": asked.reason}
            audit_log.record(session, at, "pin_made", caller.actor, str(pin.id), details)
        return paging.from_row(pin, PinDocument)

    return service.answers.once(caller.actor, key, ("pins", asked), PinDocument, make)


@router.get("/v1/pins", dependencies=[auth.READ])
def list_pins(request: Request, limit: paging.Limit = 100, after: paging.After = None) -> paging.Page[PinDocument]:
    """List the pins, the oldest first."""
    query = select(Pin).order_by(Pin.id).limit(limit + 1)
    if (last := paging.from_cursor(after, int)) is not None:
        query = query.where(Pin.id > last)
    with service_of(request).database.session() as session:
        rows = session.scalars(query).all()
        return paging.page(rows, limit, lambda pin: pin.id, lambda pin: paging.from_row(pin, PinDocument))


@router.delete("/v1/pins/{id}", status_code=204, responses=documented("not-found"))
def remove_pin(
    request: Request,
    id: Annotated[int, Path(ge=1, lt=1 << 63, description="Its number.")],
    caller: Annotated[Caller, auth.REMEDIATE],
) -> None:
    """Remove a pin: retention may then take what it kept."""
    with service_of(request).database.transaction() as session:
        pin = session.get(Pin, id)
        if pin is None:
            raise not_found("pin", str(id), "/v1/pins lists them")
        session.delete(pin)
        audit_log.record(session, now(), "pin_removed", caller.actor, str(id), {"reason": pin.reason})
