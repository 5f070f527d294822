"""Incidents: what the engine opened, judged and closed, version by version, and operators' feedback."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import Query, Request, Response
from pydantic import Field, StringConstraints
from sqlalchemy import String, cast, select, tuple_
from sqlalchemy.orm import Session, defer

from analyzers.model.doc import doc
from analyzers.model.verdict import Verdict as VerdictDocument
from service.api import answers, auth, etags, fields, paging
from service.api import incident_documents as shown
from service.api.auth import Caller
from service.api.problems import Problem, documented
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.store import audit_log, incidents, timeline
from service.store.models import Feedback, Incident, TimelineEntry, Verdict
from service.store.schema import clean

KIND_PATTERN = r"^[a-z_]{1,32}$"
PROSE_PATTERN = r"^[^\x00-\x08\x0b-\x1f\x7f]*$"  # as other texts, and of several lines

router = Router("incidents")
Version = Annotated[int | None, Query(ge=1, lt=1 << 31, description="Of the verdict; the newest, if left out.")]


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """What each analyzer found, as a version of the verdict weighed it."""

    items: Annotated[list[dict[str, Any]], doc("The findings.")]
    next: Annotated[str | None, doc("Always null: there is one page.")] = None
    version: Annotated[int, doc("The version of the verdict.")]


class CulpritRequest(fields.Body):
    """The real culprit."""

    kind: fields.Word = Field(description="rank, device, node, link, switch and so on.")
    id: Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=fields.TEXT_PATTERN)] = Field(
        description="Its name."
    )


class FeedbackRequest(fields.Body):
    """An operator's judgement of a verdict."""

    judgement: Literal["right", "wrong", "unclear"] = Field(description="Whether the verdict is right.")
    culprit: CulpritRequest | None = Field(None, description="The real culprit, where the verdict is not right.")
    text: Annotated[str, StringConstraints(max_length=2_000, pattern=PROSE_PATTERN)] = Field("", description="Why.")
    version: int | None = Field(None, ge=1, lt=1 << 31, description="Of the verdict; the newest, if left out.")


class CloseRequest(fields.Body):
    """Why an incident is closed."""

    reason: fields.Text = Field(description="Why.")


@router.get("/v1/incidents", dependencies=[auth.READ])
def list_incidents(
    request: Request,
    job: Annotated[fields.JobName | None, Query(description="Of this job.")] = None,
    node: Annotated[fields.NodeName | None, Query(description="That concerns this node.")] = None,
    status: Annotated[Literal["open", "closed"] | None, Query(description="Open or closed.")] = None,
    kind: Annotated[str | None, Query(pattern=KIND_PATTERN, description="Of this kind.")] = None,
    since: fields.Since = None,
    until: fields.Until = None,
    limit: paging.Limit = 100,
    after: paging.After = None,
) -> paging.Page[shown.IncidentSummary]:
    """List incidents, the newest first; `since` and `until` are of their opening."""
    order = (Incident.opened_at, Incident.id)
    found = shown.query().order_by(*(column.desc() for column in order)).limit(limit + 1)
    equal = {Incident.job: job, Incident.kind: kind}
    found = found.where(*(column == value for column, value in equal.items() if value is not None))
    if status is not None:
        found = found.where(Incident.closed_at.is_(None) if status == "open" else Incident.closed_at.is_not(None))
    if since is not None:
        found = found.where(Incident.opened_at >= since)
    if until is not None:
        found = found.where(Incident.opened_at < until)
    if node is not None:  # a list of names as JSON text; in quotes a name matches itself only
        found = found.where(cast(Incident.nodes, String).contains(f'"{node}"', autoescape=True))
    if (last := paging.from_cursor(after, tuple[float, str])) is not None:
        found = found.where(tuple_(*order) < last)
    with service_of(request).database.session() as session:
        rows = session.execute(found).all()
        return paging.page(rows, limit, lambda row: (row[0].opened_at, row[0].id), lambda row: shown.summary(*row))


@router.get("/v1/incidents/{id}", dependencies=[auth.READ], responses=documented("not-found"))
def get_incident(request: Request, response: Response, id: fields.IdPath) -> shown.IncidentDocument:
    """Get one incident: its symptoms, its cost, feedback, and its verdict's versions. Closing it needs its ETag."""
    with service_of(request).database.session() as session:
        row = shown.found(session, id)
        response.headers["ETag"] = etags.etag(row.version)
        return shown.document(session, row)


@router.get(
    "/v1/incidents/{id}/verdict", dependencies=[auth.READ], response_model=VerdictDocument,
    responses={304: {"description": "The client has it already."}, **documented("not-found")},
)  # fmt: skip
def get_verdict(
    request: Request, id: fields.IdPath, version: Version = None, if_none_match: etags.IfNoneMatch = None
) -> Response:
    """Get the verdict document, byte for byte as it was published; Faulthound-Verdict-Version has its version."""
    with service_of(request).database.session() as session:
        row = _verdict(session, id, version)
    tag = etags.etag(row.version)
    headers = {"ETag": tag, "Faulthound-Verdict-Version": str(row.version)}
    if if_none_match == tag:
        return Response(status_code=304, headers=headers)
    return Response(row.document, headers=headers, media_type="application/json")


@router.get(
    "/v1/incidents/{id}/verdicts", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def list_verdicts(
    request: Request, id: fields.IdPath, limit: paging.Limit = 100, after: paging.After = None
) -> paging.Page[shown.VerdictVersion]:
    """List the versions of an incident's verdict in short, the oldest first."""
    found = select(Verdict).options(defer(Verdict.claims)).where(Verdict.incident == id).order_by(Verdict.version)
    if (last := paging.from_cursor(after, int)) is not None:
        found = found.where(Verdict.version > last)
    with service_of(request).database.session() as session:
        shown.found(session, id)
        rows = session.scalars(found.limit(limit + 1)).all()
        return paging.page(rows, limit, lambda row: row.version, shown.version_document)


@router.get(
    "/v1/incidents/{id}/findings", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def list_findings(request: Request, id: fields.IdPath, version: Version = None) -> Findings:
    """List what each analyzer found, as a version of the verdict weighed it."""
    with service_of(request).database.session() as session:
        row = _verdict(session, id, version)
        return Findings(items=row.claims, version=row.version)


@router.get(
    "/v1/incidents/{id}/timeline", dependencies=[auth.READ],
    responses=documented("not-found"),
)  # fmt: skip
def list_timeline(
    request: Request, id: fields.IdPath, limit: paging.Limit = 1_000, after: paging.After = None
) -> paging.Page[shown.TimelineEntryDocument]:
    """List what has happened with an incident, the oldest first."""
    found = select(TimelineEntry).where(TimelineEntry.incident == id).order_by(TimelineEntry.sequence).limit(limit + 1)
    if (last := paging.from_cursor(after, int)) is not None:
        found = found.where(TimelineEntry.sequence > last)
    with service_of(request).database.session() as session:
        shown.found(session, id)
        rows = session.scalars(found).all()
        return paging.page(rows, limit, lambda row: row.sequence, shown.timeline_entry_document)


@router.post(
    "/v1/incidents/{id}/feedback", status_code=201,
    responses=documented("not-found", "conflict"),
)  # fmt: skip
def give_feedback(
    request: Request,
    id: fields.IdPath,
    asked: FeedbackRequest,
    caller: Annotated[Caller, auth.REMEDIATE],
    key: answers.Key = None,
) -> shown.FeedbackDocument:
    """Judge a version of the verdict, and name the real culprit where it is wrong. Earlier feedback stays."""
    if asked.judgement == "right" and asked.culprit is not None:
        raise Problem("invalid", "culprit: a verdict that is right names the culprit itself: leave it out")

    def make() -> shown.FeedbackDocument:
        at = now()
        with service_of(request).database.transaction() as session:
            incident = shown.found(session, id, locked=True)
            if not incident.verdict_version:
                raise Problem(
                    "conflict", f"incident {id} has no verdict yet: send feedback once /v1/incidents/{id} has one"
                )
            judged = _verdict(session, id, asked.version)
            _refuse_named(asked, judged)
            version = judged.version
            row = _feedback(id, version, at, caller, asked)
            session.add(row)
            incident.version += 1
            session.flush()
            if asked.judgement == "wrong":
                incidents.acquit(session, id)
            details = {"judgement": asked.judgement, "verdict_version": version, "feedback": row.id}
            audit_log.record(session, at, "feedback_given", caller.actor, id, details)
            timeline.add(session, at, "feedback", id, incident.job, {**details, "by": caller.actor})
            return shown.feedback_document(row)

    return service_of(request).answers.once(caller.actor, key, (f"{id}/feedback", asked), shown.FeedbackDocument, make)


@router.post(
    "/v1/incidents/{id}/close",
    responses=documented("not-found", "conflict", "precondition-failed", "precondition-required"),
)  # fmt: skip
def close_incident(
    request: Request,
    response: Response,
    id: fields.IdPath,
    asked: CloseRequest,
    caller: Annotated[Caller, auth.REMEDIATE],
    if_match: etags.IfMatch = None,
) -> shown.IncidentDocument:
    """Close an incident by hand. The engine judges it no more, and opens another one for a new symptom of the job."""
    at = now()
    with service_of(request).database.transaction() as session:
        row = shown.found(session, id, locked=True)
        etags.check(if_match, row.version, f"incident {id}", f"/v1/incidents/{id}")
        if row.closed_at is not None:
            raise Problem("conflict", f"incident {id} was closed before: {row.closed_because}")
        incidents.close(session, id, at, f"{caller.actor}: {asked.reason}")
        audit_log.record(session, at, "incident_closed", caller.actor, id, {"reason": asked.reason})
        document = shown.document(session, row)
        timeline.add(session, at, "closed", id, row.job, {"because": row.closed_because, "by": caller.actor})
        response.headers["ETag"] = etags.etag(row.version)
    return document


def _verdict(session: Session, id: str, version: int | None) -> Verdict:
    number = shown.found(session, id).verdict_version if version is None else version
    row = session.get(Verdict, (id, number))
    if row is None:
        what = f"version {number} of its verdict" if number else "verdict yet"
        raise Problem("not-found", f"incident {id} has no {what}: /v1/incidents/{id}/verdicts lists what was published")
    return row


def _refuse_named(asked: FeedbackRequest, judged: Verdict) -> None:
    """Refuse a verdict that is called wrong by naming all that it names: one of the two is a mistake."""
    named = asked.culprit
    if asked.judgement != "wrong" or named is None:
        return
    is_named = [
        (one.kind, one.id) == (named.kind, named.id)
        or (named.kind == "rank" and named.id.split() == [str(rank) for rank in one.ranks])
        for one in shown.version_document(judged).culprits
    ]
    if is_named and all(is_named):
        raise Problem(
            "invalid", f"culprit: {named.kind} {named.id} is what version {judged.version} of the verdict names: send right, "
            "or name another; where its machine is innocent, name the kind that is guilty (code, data, storage, platform)",
        )  # fmt: skip


def _feedback(id: str, version: int, at: float, caller: Caller, asked: FeedbackRequest) -> Feedback:
    named = asked.culprit
    return Feedback(
        incident=id, verdict_version=version, at=at, by=clean(caller.actor, 255), judgement=asked.judgement,
        culprit_kind=clean(named.kind, 32) if named else None, culprit=clean(named.id, 255) if named else None,
        text=clean(asked.text, 2_000),
    )  # fmt: skip
