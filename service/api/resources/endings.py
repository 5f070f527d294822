"""``POST /v1/jobs/{job}/ending``: "I am stopping this job", said beforehand."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import Request
from pydantic import Field

from analyzers.incidents.messages import Ending
from analyzers.model.doc import doc
from service.api import answers, auth, fields
from service.api.auth import Caller
from service.api.problems import documented
from service.api.resources.jobs import found
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now
from service.store import audit_log, endings

router = Router("jobs")


class EndingRequest(fields.Body):
    """That a job is being stopped."""

    seconds: float = Field(600.0, gt=0, le=endings.LONGEST_SECONDS, description="For how long this holds.")
    reason: fields.OptionalText = Field("", description="Why.")


class EndingDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A job that is being stopped. Instants are UTC seconds."""

    job: Annotated[str, doc("The job's name.")]
    by: Annotated[str, doc("The caller that stops it.")]
    reason: Annotated[str, doc("Why, in the caller's words.")]
    at: Annotated[float, doc("Since when.")]
    until: Annotated[float, doc("Until when its end opens no incident and leads to no proposal.")]


@router.post("/v1/jobs/{job:path}/ending", status_code=201, responses=documented("not-found"))
def declare_ending(
    request: Request,
    job: fields.JobPath,
    asked: EndingRequest,
    caller: Annotated[Caller, auth.REMEDIATE],
    key: answers.Key = None,
) -> EndingDocument:
    """Say that a job is about to be stopped: until then its end is no crash, and nothing is proposed for it.

    What is proposed for it is withdrawn, except for what a hardware event proves of a machine. Hardware events
    still open incidents. It expires by itself.
    """
    service, at = service_of(request), now()

    def make() -> EndingDocument:
        ending = Ending(job=job, at=at, until=at + asked.seconds, by=caller.actor[:255], reason=asked.reason)
        with service.database.transaction() as session:
            found(session, job)
            details = {"until": ending.until, "reason": ending.reason}
            audit_log.record(session, at, "job_ending", caller.actor, job, details)
            endings.declare(session, ending)
        return EndingDocument(**msgspec.structs.asdict(ending))

    return service.answers.once(caller.actor, key, (f"ending {job}", asked), EndingDocument, make)
