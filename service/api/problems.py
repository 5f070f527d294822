"""Everything that can be wrong with a request, in one table and one shape: RFC 9457, ``application/problem+json``.

``type`` is the path of the documentation of that kind, docs/rest.md; ``errors`` names each place that is wrong by its JSON
pointer. A handler raises ``Problem``; nothing else of the API makes an error's body.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

TABLE: dict[str, tuple[int, str]] = {
    "bad-request": (400, "The request cannot be understood"),
    "unauthenticated": (401, "A valid token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "not-your-node": (403, "A node speaks for itself only"),
    "not-found": (404, "There is no such thing"),
    "method-not-allowed": (405, "This address does not take this method"),
    "timeout": (408, "The request took too long to arrive"),
    "conflict": (409, "It is being done, or was done, already"),
    "fenced": (409, "The claim is over"),
    "hindered": (409, "Something keeps it from acting now"),
    "precondition-failed": (412, "It has changed since it was read"),
    "too-large": (413, "The request is too large"),
    "unsupported-media-type": (415, "The body is of a type that is not taken here"),
    "invalid": (422, "The request breaks a rule"),
    "precondition-required": (428, "A change needs If-Match"),
    "too-many-requests": (429, "Too many requests"),
    "internal": (500, "The service failed"),
    "unavailable": (503, "The service cannot do this now"),
}
"""Kind → (status, title). The kind is the heading in docs/rest.md."""

MOST_ERRORS = 20
_BY_STATUS = {status: kind for kind, (status, _title) in reversed(TABLE.items())}


class Place(BaseModel):
    """One place of a request that is wrong."""

    pointer: str = Field(description="JSON pointer into the body, or the name of a parameter or header.")
    detail: str


class HindranceDocument(BaseModel):
    """One reason why a remediation must not act now."""

    code: str = Field(
        description="frozen, held, breaker, budget, again, policy, minimum, moved, acting, saving, tenants, shards, superseded, "
        "merged."
    )
    text: str


class ProblemDocument(BaseModel):
    """RFC 9457."""

    type: str = Field(examples=["/docs/rest.md#not-found"])
    title: str
    status: int
    detail: str
    instance: str = Field(description="The path that was asked for.")
    request_id: str = Field("", description="What the service's log calls this request.")
    errors: list[Place] = []
    hindrances: list[HindranceDocument] = Field(
        [], description="Of the kind hindered: everything that stands in the way."
    )


class Problem(HTTPException):
    """A request cannot be served: the kind of the table, a sentence, and what the client may do about it."""

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, str]] = (),
        hindrances: Sequence[HindranceDocument] = (),
        retry_after_seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        wait = {} if retry_after_seconds is None else {"Retry-After": str(max(1, math.ceil(retry_after_seconds)))}
        super().__init__(TABLE[kind][0], detail, {**(headers or {}), **wait})
        self.kind, self.errors = kind, list(errors)
        self.hindrances = [one.model_dump() for one in hindrances]


def not_found(what: str, name: str, next_step: str) -> Problem:
    """Return the problem of a thing that is not there."""
    return Problem("not-found", f"{what} {name} is unknown: {next_step}")


def install(app: FastAPI) -> None:
    """Have every error of the application leave in the one shape."""
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(Exception, _of_bug)


def answer(request: Request, problem: Problem) -> JSONResponse:
    """Return a problem as a response."""
    status, title = TABLE[problem.kind]
    document = {
        "type": f"/docs/rest.md#{problem.kind}",
        "title": title,
        "status": status,
        "detail": problem.detail,
        "instance": request.url.path,
        "request_id": structlog.contextvars.get_contextvars().get("request_id", ""),
        **({"errors": problem.errors} if problem.errors else {}),
        **({"hindrances": problem.hindrances} if problem.hindrances else {}),
    }
    return JSONResponse(document, status, problem.headers, "application/problem+json")


async def _of_http(request: Request, raised: Exception) -> JSONResponse:
    if isinstance(raised, Problem):
        return answer(request, raised)
    assert isinstance(raised, HTTPException)
    kind = _BY_STATUS.get(raised.status_code, "bad-request" if raised.status_code < 500 else "internal")
    detail = {
        "not-found": f"there is no {request.url.path} here: /openapi.json lists what there is",
        "method-not-allowed": f"{request.url.path} does not take {request.method}: see the Allow header",
    }.get(kind, str(raised.detail))
    return answer(request, Problem(kind, detail, headers=raised.headers))


async def _of_validation(request: Request, raised: Exception) -> JSONResponse:
    assert isinstance(raised, RequestValidationError)
    found = raised.errors()
    # What was sent is not sent back: it may be a secret, and it may be nothing that JSON can hold.
    errors = [{"pointer": _pointer(error["loc"]), "detail": str(error["msg"])} for error in found[:MOST_ERRORS]]
    more = f", and {len(found) - MOST_ERRORS} more" if len(found) > MOST_ERRORS else ""
    detail = "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors[:3])
    return answer(request, Problem("invalid", f"{detail}{more}", errors=errors))


def _pointer(place: Sequence[Any]) -> str:
    if place and place[0] == "body":
        return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in place[1:]) or "/"
    return str(place[-1]) if place else "/"


async def _of_bug(request: Request, raised: Exception) -> JSONResponse:
    log = structlog.get_logger()
    log.error("request_failed", method=request.method, path=request.url.path, error=type(raised).__name__)
    return answer(request, Problem("internal", "the service failed and logged why: give its operator the request_id"))


def documented(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses of an operation that can end in these kinds; every operation has the common ones."""
    found: dict[int | str, dict[str, Any]] = {}
    for kind in ("unauthenticated", "forbidden", "invalid", "internal", "unavailable", *kinds):
        status, title = TABLE[kind]
        content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
        before = f"{found[status]['description']}; or: " if status in found else ""
        found[status] = {"description": f"{before}{title}", "content": content}
    return found
