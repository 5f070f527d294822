"""All errors of the API, in one table and one shape: RFC 9457, ``application/problem+json``.

``type`` is the path of the kind's documentation, in docs/rest.md and as a page of the service; ``errors`` names each wrong
place by its JSON pointer. A handler raises ``Problem``; nothing else of the API makes an error's body.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from analyzers.model.doc import doc
from analyzers.remediation.types import Blocker

TABLE: dict[str, tuple[int, str]] = {
    "bad-request": (400, "The request is malformed"),
    "unauthenticated": (401, "A valid token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not-your-node": (403, "The token is bound to another node"),
    "not-found": (404, "Not found"),
    "method-not-allowed": (405, "The path does not take this method"),
    "timeout": (408, "The request took too long to arrive"),
    "conflict": (409, "The request conflicts with the current state"),
    "fenced": (409, "The claim has ended"),
    "hindered": (409, "Something keeps the remediation from acting now"),
    "precondition-failed": (412, "It has changed since it was read"),
    "too-large": (413, "The request is too large"),
    "unsupported-media-type": (415, "The type of the body is not supported"),
    "invalid": (422, "The request breaks a rule"),
    "precondition-required": (428, "A change needs If-Match"),
    "too-many-requests": (429, "Too many requests"),
    "internal": (500, "The service failed"),
    "unavailable": (503, "The service cannot do this now"),
}
"""Kind → (status, title). The kind is the heading in docs/rest.md."""

COMMON = ("bad-request", "unauthenticated", "forbidden", "invalid", "internal", "unavailable")
MEDIA_TYPE = "application/problem+json"
MOST_ERRORS = 20
_BY_STATUS = {status: kind for kind, (status, _title) in reversed(TABLE.items())}


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One place of a request that is wrong."""

    pointer: Annotated[str, doc("JSON pointer into the body, or the name of a parameter or header.")]
    detail: Annotated[str, doc("What is wrong there.")]


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An error, as RFC 9457 has it."""

    type: Annotated[str, doc("The path of the documentation of this kind, such as `/docs/rest.md#not-found`.")]
    title: Annotated[str, doc("The kind in words; the same for all problems of it.")]
    status: Annotated[int, doc("The HTTP status.")]
    detail: Annotated[str, doc("What is wrong with this request, and what to do next.")]
    instance: Annotated[str, doc("The path of the request.")]
    request_id: Annotated[str, doc("The id of the request in the service's log.")]
    errors: Annotated[tuple[Place, ...], doc("The places of the request that are wrong.")] = ()
    hindrances: Annotated[tuple[Blocker, ...], doc("Of the kind `hindered`: all that keeps it from acting.")] = ()


class Problem(HTTPException):
    """A request cannot be served: the kind of the table, a sentence, and what the client may do about it."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        hindrances: Sequence[Blocker] = (),
        retry_after_seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        wait = {} if retry_after_seconds is None else {"Retry-After": str(max(1, math.ceil(retry_after_seconds)))}
        super().__init__(TABLE[kind][0], detail, {**(headers or {}), **wait})
        self.kind, self.hindrances = kind, tuple(hindrances)
        self.errors = tuple(Place(**error) for error in errors)


def not_found(what: str, name: str, next_step: str) -> Problem:
    """Return the problem of a thing that does not exist."""
    return Problem("not-found", f"{what} {name} is unknown: {next_step}")


def install(app: FastAPI) -> None:
    """Give every error of the application the one shape."""
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(Exception, _of_bug)


def answer(request: Request, problem: Problem) -> Response:
    """Return a problem as a response."""
    status, title = TABLE[problem.kind]
    document = ProblemDocument(
        type=f"/docs/rest.md#{problem.kind}", title=title, status=status, detail=problem.detail,
        instance=request.url.path, request_id=structlog.contextvars.get_contextvars().get("request_id", ""),
        errors=problem.errors, hindrances=problem.hindrances,
    )  # fmt: skip
    return Response(msgspec.json.encode(document), status, problem.headers, MEDIA_TYPE)


async def _of_http(request: Request, raised: Exception) -> Response:
    if isinstance(raised, Problem):
        return answer(request, raised)
    assert isinstance(raised, HTTPException)
    kind = _BY_STATUS.get(raised.status_code, "bad-request" if raised.status_code < 500 else "internal")
    detail = {
        "not-found": f"the path {request.url.path} does not exist: /openapi.json lists all paths",
        "method-not-allowed": f"{request.url.path} does not take {request.method}: see the Allow header",
    }.get(kind, str(raised.detail))
    return answer(request, Problem(kind, detail, headers=raised.headers))


async def _of_validation(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, RequestValidationError)
    found = raised.errors()
    # The input is not repeated: it may be a secret, and it may be nothing that JSON can hold.
    errors = [{"pointer": _pointer(error["loc"]), "detail": str(error["msg"])} for error in found[:MOST_ERRORS]]
    more = f", and {len(found) - MOST_ERRORS} more" if len(found) > MOST_ERRORS else ""
    detail = "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors[:3])
    return answer(request, Problem("invalid", f"{detail}{more}", errors=errors))


def _pointer(place: Sequence[Any]) -> str:
    if place and place[0] == "body":
        return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in place[1:]) or "/"
    return str(place[-1]) if place else "/"


async def _of_bug(request: Request, raised: Exception) -> Response:
    log = structlog.get_logger()
    log.error("request_failed", method=request.method, path=request.url.path, error=type(raised).__name__)
    return answer(request, Problem("internal", "the service failed and logged why: give its operator the request_id"))


def documented(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of an operation that can end in these kinds; every operation has the common ones."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in (*COMMON, *kinds):
        status, title = TABLE[kind]
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
        before = f"{found[status]['description']}; or: " if status in found else ""
        found[status] = {"description": f"{before}{title}", "content": content}
    return found
