"""Pins: spans of a job's records, or of all, that retention leaves alone."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import func, select

from service.api import answers, auth, fields, pages
from service.api.auth import Caller
from service.api.problems import Problem, documented, not_found
from service.api.state import of
from service.clock import now
from service.store import events
from service.store.incidents import ENGINE
from service.store.models import Pin

MOST_PINS = 1_000

router = APIRouter(tags=["pins"])


class PinWish(BaseModel):
    """A span to be kept."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    job: fields.JobName | None = Field(None, description="Of this job's nodes; null: of all.")
    since: float = Field(ge=0, le=fields.LATEST_AT, description="UTC seconds of receipt.")
    until: float = Field(ge=0, le=fields.LATEST_AT)
    reason: fields.Text


class PinDocument(BaseModel):
    """A span that is kept."""

    id: int
    job: str | None
    since: float
    until: float
    reason: str
    by: str
    made_at: float


@router.post("/v1/pins", operation_id="create_pin", status_code=201, responses=documented("conflict"))
def create_pin(
    request: Request, wish: PinWish, caller: Annotated[Caller, auth.REMEDIATE], key: answers.Key = None
) -> PinDocument:
    """Keep a span of records until the pin is removed."""
    service = of(request)
    if wish.since >= wish.until:
        raise Problem("invalid", f"since ({wish.since:.3f}) is not before until ({wish.until:.3f}): nothing is between")

    def make() -> PinDocument:
        at = now()
        pin = Pin(**wish.model_dump(), by=caller.actor[:255], made_at=at)
        with service.database.transaction() as session:
            if (session.scalar(select(func.count()).where(Pin.by != ENGINE)) or 0) >= MOST_PINS:
                raise Problem("conflict", f"there are {MOST_PINS:,} pins already: remove one first")
            session.add(pin)
            session.flush()
            details = {"job": wish.job, "since": wish.since, "until": wish.until, "reason": wish.reason}
            events.record(session, at, "pin_made", caller.actor, str(pin.id), details)
        return PinDocument(**_fields(pin))

    return service.answers.once(caller.actor, key, ("pins", wish), PinDocument, make)


@router.get("/v1/pins", operation_id="list_pins", dependencies=[auth.READ], responses=documented())
def list_pins(request: Request, limit: pages.Limit = 100, after: pages.After = None) -> pages.Page[PinDocument]:
    """List the pins, the oldest first."""
    query = select(Pin).order_by(Pin.id).limit(limit + 1)
    if (last := pages.from_cursor(after, int)) is not None:
        query = query.where(Pin.id > last)
    with of(request).database.session() as session:
        rows, following = pages.cut(session.scalars(query).all(), limit, lambda pin: pin.id)
    return pages.Page(items=[PinDocument(**_fields(pin)) for pin in rows], next=following)


@router.delete("/v1/pins/{id}", operation_id="remove_pin", status_code=204, responses=documented("not-found"))
def remove_pin(
    request: Request, id: Annotated[int, Path(ge=1, lt=1 << 63)], caller: Annotated[Caller, auth.REMEDIATE]
) -> None:
    """Remove a pin: retention may then take what it kept."""
    with of(request).database.transaction() as session:
        pin = session.get(Pin, id)
        if pin is None:
            raise not_found("pin", str(id), "/v1/pins lists them")
        session.delete(pin)
        events.record(session, now(), "pin_removed", caller.actor, str(id), {"reason": pin.reason})


def _fields(pin: Pin) -> dict[str, Any]:
    return {name: getattr(pin, name) for name in PinDocument.model_fields}
