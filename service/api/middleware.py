"""Around every request: its id, its line in the log, its count, and bounds for bodies that the framework reads.

A page of another site can make a browser send a request here, with the browser's place in the network. Below ``/v1`` such
requests are refused by what the browser itself says of them [Fetch Metadata Request Headers, W3C; RFC 6454 for Origin].
"""

from __future__ import annotations

import asyncio
import secrets
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import structlog
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.intake import BODY_SECONDS, too_large, too_slow
from service.api.problems import Problem, answer

BODY_BYTES = 4 << 20  # of a request that is no batch: the rank map of the largest job is about 3 MB
UNBOUNDED = "/v1/records"  # bounds itself, while it reads
QUIET = frozenset(
    {
        "/v1/records",
        "/v1/nodes/{node}/commands",
        "/v1/nodes/{node}/commands/take",
        "/v1/nodes/{node}/fitness",
        "/healthz",
        "/readyz",
        "/metrics",
    }
)
ALWAYS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class Requests:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id, began_at, status = secrets.token_hex(8), monotonic(), 0

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [*message.get("headers", []), *ALWAYS, (b"faulthound-request", id.encode())]
                message = {**message, "headers": own}
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=id):
            try:
                await self._serve(scope, receive, answered)
            finally:
                _count(scope, status, monotonic() - began_at)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if scope["path"].startswith("/v1/") and (why := _from_another_site(request)):
            await answer(request, Problem("forbidden", why))(scope, receive, send)
            return
        if scope["path"] == UNBOUNDED:
            await self._app(scope, receive, send)
            return
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > BODY_BYTES:
            await answer(request, too_large(BODY_BYTES))(scope, receive, send)
            return
        await self._app(scope, _bounded(receive), send)


def _bounded(receive: Receive) -> Receive:
    """Bound a body's size, and the time in which it must have arrived; what comes after it, a disconnect, has time."""
    read, until, arriving = 0, 0.0, True

    async def one() -> Message:
        nonlocal read, until, arriving
        until = until or asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(until if arriving else None):
                message = await receive()
        except TimeoutError:
            raise too_slow() from None
        read, arriving = read + len(message.get("body", b"")), arriving and message.get("more_body", False)
        if read > BODY_BYTES:
            raise too_large(BODY_BYTES)
        return message

    return one


def _from_another_site(request: Request) -> str:
    """Return why a request is of another site's page; empty: it is not, or of no browser."""
    if (site := request.headers.get("sec-fetch-site", "")) in ("same-origin", "none"):
        return ""
    if site:
        return (
            f"a browser sent this for a page of another site (Sec-Fetch-Site: {site[:32]!a}): open the address itself"
        )
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != request.headers.get("host", "").lower():
        return f"a browser sent this for a page of {origin[:255]!a}: open the address itself"
    return ""


def _count(scope: Scope, status: int, seconds: float) -> None:
    route: Any = scope.get("route")
    path = getattr(route, "path_format", None) or "(none)"
    method = scope["method"] if path != "(none)" else "(any)"
    service = scope["app"].state.service if "app" in scope else None
    if service is not None:
        service.metrics.answered(path, method, status, seconds)
    log = structlog.get_logger()
    write = log.debug if path in QUIET and status < 400 else log.info
    write("request", method=scope["method"], path=scope["path"][:255], status=status, seconds=round(seconds, 4))
