"""The freeze: nothing acts anywhere, until a person lets it go on."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from analyzers.remediation.messages import SetFreeze
from analyzers.remediation.types import Freeze, RemediationState
from service.api import auth, fields, tags
from service.api.auth import Caller
from service.api.problems import documented
from service.api.state import of
from service.api.steps import DryRun, Strict, take
from service.clock import now
from service.remediation import rows

router = APIRouter(tags=["freeze"])


class FreezeWish(Strict):
    """Whether everything stands still, and why."""

    frozen: bool
    reason: fields.Text


class FreezeDocument(BaseModel):
    """Whether everything stands still."""

    frozen: bool
    by: str = Field("", description="Who has frozen it.")
    reason: str = ""
    at: float | None = Field(None, description="Since when, UTC seconds.")


@router.get("/v1/freeze", operation_id="get_freeze", dependencies=[auth.READ], responses=documented())
def get_freeze(request: Request, response: Response) -> FreezeDocument:
    """Say whether everything is frozen. Its ETag is what a change needs."""
    with of(request).database.session() as session:
        response.headers["ETag"] = tags.etag(rows.version_of(session, rows.FREEZE))
        return _document(rows.read_freeze(session))


@router.put(
    "/v1/freeze", operation_id="put_freeze",
    responses=documented("conflict", "precondition-failed", "precondition-required"),
)  # fmt: skip
def put_freeze(
    request: Request,
    response: Response,
    wish: FreezeWish,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: tags.IfMatch = None,
    dry_run: DryRun = False,
) -> FreezeDocument:
    """Freeze everything, or let it go on: no claim is given, and what is claimed cannot begin. What has begun goes on."""
    freeze = Freeze(by=caller.actor, reason=wish.reason, at=now()) if wish.frozen else None
    version = 0

    def check(session: Session, _book: RemediationState) -> None:
        nonlocal version
        version = rows.version_of(session, rows.FREEZE)
        tags.check(if_match, version, "the freeze")

    take(
        of(request),
        caller,
        SetFreeze(freeze=freeze, by=caller.actor, reason=wish.reason),
        "freeze",
        check,
        dry_run=dry_run,
    )
    response.headers["ETag"] = tags.etag(version + (not dry_run))
    return _document(freeze)


def _document(freeze: Freeze | None) -> FreezeDocument:
    if freeze is None:
        return FreezeDocument(frozen=False, by="", at=None)
    return FreezeDocument(frozen=True, by=freeze.by, reason=freeze.reason, at=freeze.at)
