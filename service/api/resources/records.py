"""``POST /v1/records``: batches of agents, and JSON sent by hand. 202 means: durable."""

from __future__ import annotations

import re
import secrets
from typing import Annotated, Any

import msgspec
from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from analyzers.model.doc import doc
from collectors.records import AnyRecord, Members, Record, block
from service.api import auth, fields
from service.api.auth import Caller
from service.api.inspection import Broken, Inspected, NotYours, TooMuch, check_claims
from service.api.problems import MOST_ERRORS, Problem, documented
from service.api.routing import Handler, Route, Router
from service.api.state import Service, service_of
from service.clock import now
from service.store.log import Incoming

BLOCK_TYPE, JSON_TYPE = block.MEDIA_TYPE, "application/json"
MOST_DIGITS = 16  # of a body's length
_NODE, _BATCH = re.compile(fields.NODE_PATTERN), re.compile(fields.BATCH_PATTERN)


class _Direct(Route):
    """Passes the request to the endpoint as it is: resolving dependencies costs more than storing a batch does."""

    def handler(self) -> Handler:
        """Return the endpoint behind the check of the token."""

        async def handle(request: Request) -> Response:
            return await send_records(request, await auth.ingest(request))

        return handle


router = Router("records", route_class=_Direct)


class RejectedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A record that was not stored. The others were."""

    index: Annotated[int, doc("Its place in the array.")]
    detail: Annotated[str, doc("What is wrong with it.")]


class Accepted(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is durable."""

    batch: Annotated[str, doc("The id of the batch.")]
    accepted: Annotated[int, doc("Records that are stored.")]
    duplicate: Annotated[bool, doc("The node had sent a batch of this id before: nothing was stored again.")]
    sequence: Annotated[int, doc("The number of the batch in the log.")]
    skipped: Annotated[dict[str, int], doc("Records by kind that are stored and that this version cannot use.")]
    rejected: Annotated[list[RejectedRecord], doc("Of the JSON form: the records that were not stored.")]


class _Envelope(msgspec.Struct, frozen=True):
    node: str
    batch: str
    sent_at: float | None


_HEADERS: list[dict[str, Any]] = [
    {"name": "Faulthound-Node", "in": "header", "required": True, "schema": {"type": "string", "pattern": fields.NODE_PATTERN},
     "description": "The node whose records these are."},
    {"name": "Faulthound-Batch", "in": "header", "schema": {"type": "string", "pattern": fields.BATCH_PATTERN},
     "description": "Required for a block: the same batch sent twice is stored once."},
    {"name": "Faulthound-Sent-At", "in": "header", "schema": {"type": "number"},
     "description": "UTC seconds by the node's clock."},
]  # fmt: skip
_BODY = {
    "required": True,
    "content": {
        BLOCK_TYPE: {"schema": {"type": "string", "format": "binary"}},
        JSON_TYPE: {"schema": {"type": "array", "items": {"type": "object"}}},
    },
}


@router.post(
    "/v1/records",
    status_code=202,
    response_model=Accepted,
    responses=documented("too-large", "unsupported-media-type", "too-many-requests", "timeout"),
    openapi_extra={"parameters": _HEADERS, "requestBody": _BODY},
)
async def send_records(request: Request, caller: Annotated[Caller, auth.INGEST]) -> Response:
    """Store a batch of records of one node: a block of an agent, or a JSON array by hand."""
    service = service_of(request)
    type = _content_type(request)
    envelope = _envelope(request, block=type == BLOCK_TYPE)
    auth.check_node(request, caller, envelope.node)
    most = service.settings.batch_bytes if type == BLOCK_TYPE else service.settings.json_bytes
    declared = min(_declared_bytes(request), most)
    service.intake.admit(caller.id, envelope.node, declared)
    try:
        async with service.intake.body(request, most) as data:
            service.intake.owe(caller.id, envelope.node, len(data) - declared)
            return await _taken(service, caller, envelope, data, json=type == JSON_TYPE)
    except NotYours as lie:
        service.audit.refused("batch_refused", caller.actor, envelope.node, str(lie))
        raise Problem("not-your-node", f"{lie}: an agent sends the records of its own node") from None
    except TooMuch as problem:
        raise Problem("too-large", str(problem)) from None
    except Broken as problem:
        raise Problem("invalid", str(problem)) from None
    except ClientDisconnect:
        return Response(status_code=400)  # the connection is lost


async def _taken(service: Service, caller: Caller, envelope: _Envelope, data: bytes, *, json: bool) -> Response:
    rejected: list[RejectedRecord] = []
    if json:
        records, rejected = _parsed(data, envelope.node, service.settings.batch_records)
        data, inspected = block.encode(records, pack=True), Inspected(len(records))
    else:
        inspected = await service.intake.inspect(data, envelope.node)
    service.intake.owe_records(caller.id, envelope.node, inspected)
    incoming = Incoming(envelope.node, envelope.batch, envelope.sent_at, now(), inspected.records, data)
    appended = await service.intake.store(incoming)
    service.metrics.took(inspected.records, len(data), inspected.malformed, duplicate=appended.duplicate)
    answer = Accepted(
        batch=envelope.batch, accepted=0 if appended.duplicate else inspected.records, duplicate=appended.duplicate,
        sequence=appended.sequence, skipped=inspected.skipped, rejected=rejected,
    )  # fmt: skip
    return Response(msgspec.json.encode(answer), 202, media_type=JSON_TYPE)


def _content_type(request: Request) -> str:
    type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if type not in (BLOCK_TYPE, JSON_TYPE):
        raise Problem(
            "unsupported-media-type", f"{type[:100]!a} is no type for records: send {BLOCK_TYPE} or {JSON_TYPE}"
        )
    if (coding := request.headers.get("content-encoding", "identity").lower()) != "identity":
        raise Problem(
            "unsupported-media-type",
            f"Content-Encoding {coding[:100]!a} is not supported: a block is compressed itself, send it without",
        )
    return type


def _declared_bytes(request: Request) -> int:
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdecimal() and len(declared) < MOST_DIGITS else 0


def _envelope(request: Request, *, block: bool) -> _Envelope:
    node = request.headers.get("faulthound-node", "")
    if not _NODE.fullmatch(node):
        raise _bad_header("Faulthound-Node", node, "a node's name: letters, digits, dots, dashes, up to 255")
    batch = request.headers.get("faulthound-batch", "" if block else secrets.token_hex(16))
    if not _BATCH.fullmatch(batch):
        raise _bad_header("Faulthound-Batch", batch, "an id of up to 64 letters, digits, dots, dashes")
    sent = request.headers.get("faulthound-sent-at")
    try:
        sent_at = None if sent is None else float(sent)
    except ValueError:
        sent_at = -1.0
    if sent_at is not None and not 0 <= sent_at <= fields.LATEST_AT:
        raise _bad_header("Faulthound-Sent-At", sent or "", "UTC seconds")
    return _Envelope(node, batch, sent_at)


def _bad_header(name: str, value: str, wanted: str) -> Problem:
    detail = f"{value[:100]!a} is not {wanted}" if value else f"it is missing: send {wanted}"
    return Problem("invalid", f"header {name}: {detail}", errors=[{"pointer": name, "detail": detail}])


def _parsed(data: bytes, node: str, most_records: int) -> tuple[list[Record], list[RejectedRecord]]:
    """Return the records of a JSON array, and which of its elements are none."""
    try:
        elements = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Broken(f"the body is no JSON array of records: {error}") from None
    if len(elements) > most_records:
        raise TooMuch(f"the batch has {len(elements):,} records and {most_records:,} are the most: send it in parts")
    records: list[Record] = []
    rejected: list[RejectedRecord] = []
    for index, element in enumerate(elements):
        try:
            record = _decoder.decode(element)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, OverflowError) as error:
            rejected.append(RejectedRecord(index=index, detail=str(error)[:300]))
            continue
        placed_on = getattr(record, "nodes", ()) if record.__struct_config__.tag == "placement" else ()
        check_claims(index, str(record.__struct_config__.tag), record.node, placed_on, node)
        records.append(record if record.node else msgspec.structs.replace(record, node=node))
    if rejected and not records:
        errors = [{"pointer": f"/{one.index}", "detail": one.detail} for one in rejected[:MOST_ERRORS]]
        raise Problem(
            "invalid", f"none of the {len(elements):,} records can be read: {rejected[0].detail}", errors=errors
        )
    return records, rejected


def _members(kind: type, value: Any) -> Any:
    if kind is Members and isinstance(value, list) and (members := Members.of(value)).usable:
        return members
    raise ValueError("a member list is an array of ranks")


_decoder = msgspec.json.Decoder(AnyRecord, dec_hook=_members)
