"""Remediations: what is proposed and done about incidents, and what people decide of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import StringConstraints
from sqlalchemy import String, cast, select, tuple_

from analyzers.remediation.messages import Approve, AskUndo, Cancel, Reject
from analyzers.remediation.types import Status
from service.api import answers, auth, fields, pages, tags
from service.api.auth import Caller
from service.api.problems import documented, not_found
from service.api.remediation_documents import RemediationDocument, document
from service.api.state import of
from service.api.steps import DryRun, Strict, take_of_one, unchanged
from service.clock import now
from service.store.models import Remediation as Row

router = APIRouter(tags=["remediations"])
Decision = Approve | Reject | Cancel | AskUndo
DECISIONS = documented("not-found", "conflict", "precondition-failed", "precondition-required")


class ApproveWish(Strict):
    """Why it may act."""

    reason: Annotated[str, StringConstraints(max_length=1_000, pattern=fields.TEXT_PATTERN)] = ""


class DecideWish(Strict):
    """Why so."""

    reason: fields.Text


class Asked(Strict):
    """What an Idempotency-Key stands for."""

    decision: str
    id: str
    reason: str


@router.get("/v1/remediations", operation_id="list_remediations", dependencies=[auth.READ], responses=documented())
def list_remediations(
    request: Request,
    status: Annotated[Status | None, Query(description="How far they are.")] = None,
    incident: Annotated[str | None, Query(pattern=fields.ID_PATTERN, description="Of this incident.")] = None,
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    node: Annotated[fields.NodeName | None, Query(description="That take this node out.")] = None,
    claimable: Annotated[
        bool, Query(description="That a scheduler can claim now: nothing stands in their way.")
    ] = False,
    limit: pages.Limit = 100,
    after: pages.After = None,
) -> pages.Page[RemediationDocument]:
    """List remediations, the newest first."""
    order = (Row.proposed_at, Row.id)
    found = select(*order).order_by(*(column.desc() for column in order))
    equal = {Row.status: status, Row.incident: incident, Row.job: job}
    found = found.where(*(column == value for column, value in equal.items() if value is not None))
    if node is not None:  # a list of names as JSON text; in quotes a name stands for itself only
        found = found.where(cast(Row.nodes, String).contains(f'"{node}"', autoescape=True))
    if (last := pages.from_cursor(after, tuple[float, str])) is not None:
        found = found.where(tuple_(*order) < last)
    # Whether one can be claimed only its guards know; there are few that could.
    found = found.where(Row.task.is_not(None)) if claimable else found.limit(limit + 1)
    at = now()
    with of(request).database.session() as session:
        keys = [(row.proposed_at, row.id) for row in session.execute(found)]
        book = of(request).remedies.read(session, at, *(id for _, id in keys))
    # What a later program has written cannot be read: it is left out, and the list goes on behind it.
    shown = {id: document(book.remediations[id], book, at) for _, id in keys if id in book.remediations}
    if claimable:
        keys = [key for key in keys if (one := shown.get(key[1])) is not None and one.task and not one.hindrances]
    rows, following = pages.cut(keys, limit, lambda key: key)
    return pages.Page(items=[shown[id] for _, id in rows if id in shown], next=following)


@router.get(
    "/v1/remediations/{id}", operation_id="get_remediation", dependencies=[auth.READ], responses=documented("not-found")
)
def get_remediation(request: Request, response: Response, id: fields.IdPath) -> RemediationDocument:
    """Get one remediation, and what stands in its way now. Its ETag is what a decision on it needs."""
    at = now()
    book = of(request).remedies.book(at, id)
    if (one := book.remediations.get(id)) is None:
        raise not_found("remediation", id, "/v1/remediations lists those that there are")
    response.headers["ETag"] = tags.etag(one.version)
    return document(one, book, at)


@router.post("/v1/remediations/{id}/approve", operation_id="approve_remediation", responses=DECISIONS)
def approve_remediation(
    request: Request,
    response: Response,
    id: fields.IdPath,
    caller: Annotated[Caller, auth.REMEDIATE],
    wish: ApproveWish | None = None,
    if_match: tags.IfMatch = None,
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> RemediationDocument:
    """Let a proposal act: a scheduler can claim it from now on. What stands in its way still does, until it begins."""
    event = Approve(id=id, by=caller.actor, reason=wish.reason if wish else "")
    return _decided(request, response, caller, event, if_match, key, dry_run)


@router.post("/v1/remediations/{id}/reject", operation_id="reject_remediation", responses=DECISIONS)
def reject_remediation(
    request: Request,
    response: Response,
    id: fields.IdPath,
    wish: DecideWish,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: tags.IfMatch = None,
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> RemediationDocument:
    """Say that it must not act. The same plan is not proposed again for this incident."""
    event = Reject(id=id, by=caller.actor, reason=wish.reason)
    return _decided(request, response, caller, event, if_match, key, dry_run)


@router.post("/v1/remediations/{id}/cancel", operation_id="cancel_remediation", responses=DECISIONS)
def cancel_remediation(
    request: Request,
    response: Response,
    id: fields.IdPath,
    wish: DecideWish,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: tags.IfMatch = None,
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> RemediationDocument:
    """Stop what is not wanted any more, as long as no scheduler has begun with it: a claim of it is over at once."""
    event = Cancel(id=id, by=caller.actor, reason=wish.reason)
    return _decided(request, response, caller, event, if_match, key, dry_run)


@router.post("/v1/remediations/{id}/undo", operation_id="undo_remediation", responses=DECISIONS)
def undo_remediation(
    request: Request,
    response: Response,
    id: fields.IdPath,
    wish: DecideWish,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: tags.IfMatch = None,
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> RemediationDocument:
    """Ask for what was done to be taken back: a scheduler can claim that from now on, with the task `undo`."""
    event = AskUndo(id=id, by=caller.actor, reason=wish.reason)
    return _decided(request, response, caller, event, if_match, key, dry_run)


def _decided(
    request: Request, response: Response, caller: Caller, event: Decision, if_match: str | None, key: str | None,
    dry_run: bool,
) -> RemediationDocument:  # fmt: skip
    service, asked = of(request), Asked(decision=type(event).__name__, id=event.id, reason=event.reason)

    def make() -> RemediationDocument:
        check = unchanged(if_match, event.id)
        return take_of_one(service, caller, event, event.id, check, dry_run=dry_run)[1]

    if dry_run:  # a rehearsal under a key must not be the answer to what is then meant
        return make()
    answer = service.answers.once(caller.actor, key, ("remediations", asked), RemediationDocument, make)
    response.headers["ETag"] = tags.etag(answer.version)
    return answer
