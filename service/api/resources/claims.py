"""Claims: a scheduler takes what was approved, acts under a lease with a fencing token, and reports what it did.

    claim ─▶ heartbeat … ─▶ begin ─▶ heartbeat … ─▶ complete, or fail

A caller whose lease has ended is refused with ``fenced``, and must not act any more. ``heartbeat`` and ``begin`` take no
Idempotency-Key: an answer that was kept for an hour must never permit an action.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Request
from pydantic import AfterValidator, Field, JsonValue

from analyzers.remediation.messages import Begin, Complete, Fail, Heartbeat, Take
from analyzers.remediation.types import Remediation
from service.api import answers, auth, fields
from service.api.auth import Caller
from service.api.problems import documented
from service.api.remediation_documents import Claimed, RemediationDocument
from service.api.routing import Router
from service.api.state import Service, service_of
from service.api.steps import take_of_one
from service.clock import now

LONGEST_REASON = 1_000
LONGEST_SENT_REASON = 100_000
DID_BYTES = 256 << 10  # a thousand nodes with a line for each

router = Router("claims")
ENDINGS = documented("not-found", "conflict", "fenced", "hindered")


def _plain(did: dict[str, Any]) -> dict[str, Any]:
    """Return what was done as every database takes it: no NaN, no lone surrogates, no endless numbers, not too large."""
    try:
        data = msgspec.json.encode(did)
    except (ValueError, OverflowError, RecursionError):
        raise ValueError("JSON cannot hold this: send texts and numbers by node") from None
    if len(data) > DID_BYTES:
        raise ValueError(f"{len(data):,} bytes, more than {DID_BYTES:,}: send less")
    return {node: _without_nul(value) for node, value in msgspec.json.decode(data).items()}


def _without_nul(value: Any) -> Any:
    match value:
        case str():
            return value.replace("\x00", "")
        case list():
            return [_without_nul(one) for one in value]
        case dict():
            return {_without_nul(name): _without_nul(one) for name, one in value.items()}
    return value


def _one_line(text: str) -> str:
    """Return a program's text as one line. It is cleaned, not refused: a failure must always be reported."""
    line = " ".join(text.split())
    return "".join(letter for letter in line if letter.isprintable())[:LONGEST_REASON] or "no reason given"


Seconds = Annotated[float, Field(ge=1, le=86_400, description="How long the claim is to last; the policy bounds it.")]
Token = Annotated[int, Field(ge=1, lt=1 << 31, description="The fencing token of the claim.")]
Did = Annotated[
    dict[fields.Word, JsonValue], Field(description="What was done, by node: what an undo takes back."),
    AfterValidator(_plain),
]  # fmt: skip


class ClaimRequest(fields.Body):
    """For how long."""

    seconds: Seconds = 60.0


class BeginRequest(fields.Body):
    """The claim to begin under."""

    token: Token


class HeartbeatRequest(BeginRequest):
    """The claim to extend, and for how long."""

    seconds: Seconds = 60.0


class CompleteRequest(BeginRequest):
    """Done, read back and verified."""

    did: Did = {}


class FailRequest(CompleteRequest):
    """Why it failed, and what was done before that."""

    reason: Annotated[
        str, Field(max_length=LONGEST_SENT_REASON, description="Why, one sentence."), AfterValidator(_one_line)
    ]


@router.post("/v1/remediations/{id}/claim", responses=ENDINGS)
def claim_remediation(
    request: Request,
    id: fields.IdPath,
    caller: Annotated[Caller, auth.EXECUTE],
    asked: ClaimRequest | None = None,
    key: answers.Key = None,
) -> Claimed:
    """Claim what was approved, or is to be undone: until the lease ends no other caller gets it. Nothing has begun yet."""
    service, wanted = service_of(request), asked or ClaimRequest()

    def make() -> Claimed:
        return _claimed(*take_of_one(service, caller, Take(id=id, by=caller.actor, seconds=wanted.seconds), id))

    return service.answers.once(caller.actor, key, (f"{id}/claim", wanted), Claimed, make)


@router.post("/v1/remediations/{id}/heartbeat", responses=ENDINGS)
def keep_claim(
    request: Request, id: fields.IdPath, asked: HeartbeatRequest, caller: Annotated[Caller, auth.EXECUTE]
) -> Claimed:
    """Extend a claim. It never becomes shorter."""
    event = Heartbeat(id=id, by=caller.actor, token=asked.token, seconds=asked.seconds)
    return _claimed(*take_of_one(service_of(request), caller, event, id))


@router.post("/v1/remediations/{id}/begin", responses=ENDINGS)
def begin_remediation(
    request: Request, id: fields.IdPath, asked: BeginRequest, caller: Annotated[Caller, auth.EXECUTE]
) -> Claimed:
    """Begin: the last moment at which a hold, a freeze, the budget or the breaker stops it. It can be repeated."""
    return _claimed(*take_of_one(service_of(request), caller, Begin(id=id, by=caller.actor, token=asked.token), id))


@router.post("/v1/remediations/{id}/complete", responses=ENDINGS)
def complete_remediation(
    request: Request,
    id: fields.IdPath,
    asked: CompleteRequest,
    caller: Annotated[Caller, auth.EXECUTE],
    key: answers.Key = None,
) -> RemediationDocument:
    """Report that it is done, or undone. It can be repeated under the same token."""
    event = Complete(id=id, by=caller.actor, token=asked.token, did=asked.did)
    return _ended(service_of(request), caller, event, key, asked)


@router.post("/v1/remediations/{id}/fail", responses=ENDINGS)
def fail_remediation(
    request: Request,
    id: fields.IdPath,
    asked: FailRequest,
    caller: Annotated[Caller, auth.EXECUTE],
    key: answers.Key = None,
) -> RemediationDocument:
    """Report that it could not be done. What `did` names can be undone."""
    event = Fail(id=id, by=caller.actor, token=asked.token, reason=asked.reason, did=asked.did)
    return _ended(service_of(request), caller, event, key, asked)


def _ended(
    service: Service, caller: Caller, event: Complete | Fail, key: str | None, asked: CompleteRequest | FailRequest
) -> RemediationDocument:
    def make() -> RemediationDocument:
        return take_of_one(service, caller, event, event.id)[1]

    named = (f"{event.id}/{type(event).__name__}", asked)
    return service.answers.once(caller.actor, key, named, RemediationDocument, make)


def _claimed(one: Remediation, shown: RemediationDocument) -> Claimed:
    assert one.claim is not None
    claim, left = one.claim, max(0.0, one.claim.until - now())
    return Claimed(token=claim.token, until=claim.until, seconds=left, task=claim.task, remediation=shown)
