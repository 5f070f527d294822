"""The freeze: nothing acts anywhere until a person ends it."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Request, Response
from pydantic import Field
from sqlalchemy.orm import Session

from analyzers.model.doc import doc
from analyzers.remediation.messages import SetFreeze
from analyzers.remediation.types import Freeze, RemediationState
from service.api import auth, etags, fields
from service.api.auth import Caller
from service.api.problems import documented
from service.api.routing import Router
from service.api.state import service_of
from service.api.steps import DryRun, take
from service.clock import now
from service.remediation import rows

router = Router("freeze")


class FreezeRequest(fields.Body):
    """Whether everything is frozen, and why."""

    frozen: bool = Field(description="Whether everything is to be frozen.")
    reason: fields.Text = Field(description="Why.")


class FreezeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Whether everything is frozen."""

    frozen: Annotated[bool, doc("Whether everything is frozen.")]
    by: Annotated[str, doc("The caller that froze it; empty: it is not frozen.")] = ""
    reason: Annotated[str, doc("Why it is frozen.")] = ""
    at: Annotated[float | None, doc("Since when, UTC seconds; null: it is not frozen.")] = None


@router.get("/v1/freeze", dependencies=[auth.READ])
def get_freeze(request: Request, response: Response) -> FreezeDocument:
    """Return whether everything is frozen. A change needs its ETag."""
    with service_of(request).database.session() as session:
        response.headers["ETag"] = etags.etag(rows.version_of(session, rows.FREEZE))
        return _document(rows.read_freeze(session))


@router.put(
    "/v1/freeze",
    responses=documented("conflict", "precondition-failed", "precondition-required"),
)  # fmt: skip
def put_freeze(
    request: Request,
    response: Response,
    asked: FreezeRequest,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: etags.IfMatch = None,
    dry_run: DryRun = False,
) -> FreezeDocument:
    """Freeze everything, or end the freeze: no claim is granted, and what is claimed cannot begin. What has begun goes on."""
    freeze = Freeze(by=caller.actor, reason=asked.reason, at=now()) if asked.frozen else None
    version = 0

    def check(session: Session, _book: RemediationState) -> None:
        nonlocal version
        version = rows.version_of(session, rows.FREEZE)
        etags.check(if_match, version, "the freeze", "/v1/freeze")

    event = SetFreeze(freeze=freeze, by=caller.actor, reason=asked.reason)
    take(service_of(request), caller, event, "freeze", check, dry_run=dry_run)
    response.headers["ETag"] = etags.etag(version + (not dry_run))
    return _document(freeze)


def _document(freeze: Freeze | None) -> FreezeDocument:
    if freeze is None:
        return FreezeDocument(frozen=False)
    return FreezeDocument(frozen=True, by=freeze.by, reason=freeze.reason, at=freeze.at)
