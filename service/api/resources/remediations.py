"""Remediations: what is proposed and done about incidents, and the decisions of operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Query, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy import String, cast, select, tuple_

from analyzers.remediation.messages import Approve, AskUndo, Cancel, Reject
from analyzers.remediation.types import Status
from service.api import answers, auth, etags, fields, paging
from service.api.auth import Caller
from service.api.problems import documented, not_found
from service.api.remediation_documents import RemediationDocument, document
from service.api.routing import Router
from service.api.state import service_of
from service.api.steps import DryRun, take_of_one, unchanged
from service.clock import now
from service.store.models import Remediation as Row

router = Router("remediations")
Decision = Approve | Reject | Cancel | AskUndo
Decide = Callable[[type[Decision], str], RemediationDocument]
DECISIONS = documented("not-found", "conflict", "precondition-failed", "precondition-required")


class ApproveRequest(fields.Body):
    """Why it may act."""

    reason: fields.OptionalText = Field("", description="Why.")


class DecideRequest(fields.Body):
    """Why it is decided so."""

    reason: fields.Text = Field(description="Why.")


class Decided(BaseModel):
    """The request that an Idempotency-Key is for."""

    decision: str
    id: str
    reason: str


@router.get("/v1/remediations", dependencies=[auth.READ])
def list_remediations(
    request: Request,
    status: Annotated[Status | None, Query(description="Of this status.")] = None,
    incident: Annotated[str | None, Query(pattern=fields.ID_PATTERN, description="Of this incident.")] = None,
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    node: Annotated[fields.NodeName | None, Query(description="Whose nodes include this one.")] = None,
    claimable: Annotated[
        bool, Query(description="Only those that a scheduler can claim now: without blockers.")
    ] = False,
    limit: paging.Limit = 100,
    after: paging.After = None,
) -> paging.Page[RemediationDocument]:
    """List remediations, the newest first."""
    order = (Row.proposed_at, Row.id)
    found = select(*order).order_by(*(column.desc() for column in order))
    equal = {Row.status: status, Row.incident: incident, Row.job: job}
    found = found.where(*(column == value for column, value in equal.items() if value is not None))
    if node is not None:  # a list of names as JSON text; in quotes a name matches itself only
        found = found.where(cast(Row.nodes, String).contains(f'"{node}"', autoescape=True))
    if (last := paging.from_cursor(after, tuple[float, str])) is not None:
        found = found.where(tuple_(*order) < last)
    # Only the guards know which can be claimed; few have a task.
    found = found.where(Row.task.is_not(None)) if claimable else found.limit(limit + 1)
    at = now()
    with service_of(request).database.session() as session:
        keys = [(row.proposed_at, row.id) for row in session.execute(found)]
        book = service_of(request).remedies.read(session, at, *(id for _, id in keys))
    # A row that a later program has written cannot be read: it is left out, and the list goes on after it.
    shown = {id: document(book.remediations[id], book, at) for _, id in keys if id in book.remediations}
    if claimable:
        keys = [key for key in keys if (one := shown.get(key[1])) is not None and one.task and not one.hindrances]
    rows, following = paging.cut(keys, limit, lambda key: key)
    return paging.Page(items=tuple(shown[id] for _, id in rows if id in shown), next=following)


@router.get("/v1/remediations/{id}", dependencies=[auth.READ], responses=documented("not-found"))
def get_remediation(request: Request, response: Response, id: fields.IdPath) -> RemediationDocument:
    """Get one remediation, and its blockers now. A decision on it needs its ETag."""
    at = now()
    book = service_of(request).remedies.state(at, id)
    if (one := book.remediations.get(id)) is None:
        raise not_found("remediation", id, "/v1/remediations lists the known ones")
    response.headers["ETag"] = etags.etag(one.version)
    return document(one, book, at)


async def _decider(
    request: Request,
    response: Response,
    id: fields.IdPath,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: etags.IfMatch = None,
    key: answers.Key = None,
    dry_run: DryRun = False,
) -> Decide:
    """Return what carries out a decision on the remediation of this request, for its caller."""
    service = service_of(request)

    def decide(kind: type[Decision], reason: str) -> RemediationDocument:
        event, named = (
            kind(id=id, by=caller.actor, reason=reason),
            Decided(decision=kind.__name__, id=id, reason=reason),
        )

        def make() -> RemediationDocument:
            return take_of_one(service, caller, event, id, unchanged(if_match, id), dry_run=dry_run)[1]

        if dry_run:  # the answer of a dry run must not be kept under the key of the real request
            return make()
        answer = service.answers.once(caller.actor, key, ("remediations", named), RemediationDocument, make)
        response.headers["ETag"] = etags.etag(answer.version)
        return answer

    return decide


Decider = Annotated[Decide, Depends(_decider)]


@router.post("/v1/remediations/{id}/approve", responses=DECISIONS)
def approve_remediation(decide: Decider, asked: ApproveRequest | None = None) -> RemediationDocument:
    """Approve a proposal: a scheduler can claim it from now on. Its blockers hold until it begins."""
    return decide(Approve, asked.reason if asked else "")


@router.post("/v1/remediations/{id}/reject", responses=DECISIONS)
def reject_remediation(decide: Decider, asked: DecideRequest) -> RemediationDocument:
    """Reject a proposal: the same plan is not proposed again for this incident."""
    return decide(Reject, asked.reason)


@router.post("/v1/remediations/{id}/cancel", responses=DECISIONS)
def cancel_remediation(decide: Decider, asked: DecideRequest) -> RemediationDocument:
    """Cancel a remediation that no scheduler has begun: a claim of it ends at once."""
    return decide(Cancel, asked.reason)


@router.post("/v1/remediations/{id}/undo", responses=DECISIONS)
def undo_remediation(decide: Decider, asked: DecideRequest) -> RemediationDocument:
    """Ask for an undo: a scheduler can claim it from now on, with the task `undo`."""
    return decide(AskUndo, asked.reason)
