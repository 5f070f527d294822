"""Claims: how a scheduler takes what was approved, acts under a lease with a fencing token, and says what it did.

    claim ─▶ heartbeat … ─▶ begin ─▶ heartbeat … ─▶ complete, or fail

Who was away for longer than its lease is refused with ``fenced``, and must not act any more. That is why ``heartbeat`` and
``begin`` take no Idempotency-Key: an answer of an hour ago must never let anybody act.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request
from pydantic import AfterValidator, Field, JsonValue

from analyzers.remediation.messages import Begin, Complete, Fail, Heartbeat, Take
from analyzers.remediation.types import Remediation
from service.api import answers, auth, fields
from service.api.auth import Caller
from service.api.problems import documented
from service.api.remediation_documents import Claimed, RemediationDocument
from service.api.state import Service, of
from service.api.steps import Strict, take_of_one
from service.clock import now

LONGEST_REASON = 1_000
LONGEST_SAID = 100_000
DID_BYTES = 256 << 10  # a thousand nodes with a line for each

router = APIRouter(tags=["claims"])
ENDINGS = documented("not-found", "conflict", "fenced", "hindered")


def _plain(did: dict[str, Any]) -> dict[str, Any]:
    """Return what was done as every database takes it: no NaN, no lone surrogates, no endless numbers, not too large."""
    try:
        data = msgspec.json.encode(did)
    except (ValueError, OverflowError, RecursionError):
        raise ValueError("this is nothing that JSON can hold: send texts and numbers by node") from None
    if len(data) > DID_BYTES:
        raise ValueError(f"{len(data):,} bytes, and {DID_BYTES:,} are the most: say it in fewer words")
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
    """Return what a program has said as one line: a claimant must not fail to say why it failed."""
    line = " ".join(text.split())
    return "".join(letter for letter in line if letter.isprintable())[:LONGEST_REASON] or "it does not say why"


Seconds = Annotated[float, Field(ge=1, le=86_400, description="How long the claim is to last; the policy bounds it.")]
Token = Annotated[int, Field(ge=1, lt=1 << 31, description="Of the claim.")]
Did = Annotated[
    dict[fields.Word, JsonValue], Field(description="What was done, by node: what an undo takes back."),
    AfterValidator(_plain),
]  # fmt: skip


class ClaimWish(Strict):
    """For how long."""

    seconds: Seconds = 60.0


class HeartbeatWish(Strict):
    """Still there, and for how long again."""

    token: Token
    seconds: Seconds = 60.0


class BeginWish(Strict):
    """Now."""

    token: Token


class CompleteWish(Strict):
    """Done, read back and verified."""

    token: Token
    did: Did = {}


class FailWish(Strict):
    """Why not, and what was done before that."""

    token: Token
    reason: Annotated[str, Field(max_length=LONGEST_SAID), AfterValidator(_one_line)]
    did: Did = {}


@router.post("/v1/remediations/{id}/claim", operation_id="claim_remediation", responses=ENDINGS)
def claim_remediation(
    request: Request,
    id: fields.IdPath,
    caller: Annotated[Caller, auth.EXECUTE],
    wish: ClaimWish | None = None,
    key: answers.Key = None,
) -> Claimed:
    """Claim what was approved, or is to be undone: for so long nobody else gets it. Nothing has begun by that."""
    service, asked = of(request), wish or ClaimWish()

    def make() -> Claimed:
        return _claimed(*take_of_one(service, caller, Take(id=id, by=caller.actor, seconds=asked.seconds), id))

    return service.answers.once(caller.actor, key, (f"{id}/claim", asked), Claimed, make)


@router.post("/v1/remediations/{id}/heartbeat", operation_id="keep_claim", responses=ENDINGS)
def keep_claim(
    request: Request, id: fields.IdPath, wish: HeartbeatWish, caller: Annotated[Caller, auth.EXECUTE]
) -> Claimed:
    """Keep a claim for longer. It is never made shorter by that."""
    event = Heartbeat(id=id, by=caller.actor, token=wish.token, seconds=wish.seconds)
    return _claimed(*take_of_one(of(request), caller, event, id))


@router.post("/v1/remediations/{id}/begin", operation_id="begin_remediation", responses=ENDINGS)
def begin_remediation(
    request: Request, id: fields.IdPath, wish: BeginWish, caller: Annotated[Caller, auth.EXECUTE]
) -> Claimed:
    """Begin: the last moment at which a hold, a freeze, the budget or the breaker stops it. Asked again, it is answered again."""
    return _claimed(*take_of_one(of(request), caller, Begin(id=id, by=caller.actor, token=wish.token), id))


@router.post("/v1/remediations/{id}/complete", operation_id="complete_remediation", responses=ENDINGS)
def complete_remediation(
    request: Request,
    id: fields.IdPath,
    wish: CompleteWish,
    caller: Annotated[Caller, auth.EXECUTE],
    key: answers.Key = None,
) -> RemediationDocument:
    """Say that it is done, or undone. Said again under the same token, it is answered again."""
    event = Complete(id=id, by=caller.actor, token=wish.token, did=wish.did)
    return _ended(of(request), caller, event, key, wish)


@router.post("/v1/remediations/{id}/fail", operation_id="fail_remediation", responses=ENDINGS)
def fail_remediation(
    request: Request,
    id: fields.IdPath,
    wish: FailWish,
    caller: Annotated[Caller, auth.EXECUTE],
    key: answers.Key = None,
) -> RemediationDocument:
    """Say that it could not be done. What `did` names can be undone."""
    event = Fail(id=id, by=caller.actor, token=wish.token, reason=wish.reason, did=wish.did)
    return _ended(of(request), caller, event, key, wish)


def _ended(
    service: Service, caller: Caller, event: Complete | Fail, key: str | None, wish: CompleteWish | FailWish
) -> RemediationDocument:
    def make() -> RemediationDocument:
        return take_of_one(service, caller, event, event.id)[1]

    asked = (f"{event.id}/{type(event).__name__}", wish)
    return service.answers.once(caller.actor, key, asked, RemediationDocument, make)


def _claimed(one: Remediation, shown: RemediationDocument) -> Claimed:
    assert one.claim is not None
    claim, left = one.claim, max(0.0, one.claim.until - now())
    return Claimed(token=claim.token, until=claim.until, seconds=left, task=claim.task, remediation=shown)
