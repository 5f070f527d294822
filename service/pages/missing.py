"""What a browser is shown of a page that does not exist, or whose address breaks a rule: a page, with where to go on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from service.api.problems import Problem
from service.pages.rendering import response

SHOWN = frozenset({"not-found", "invalid", "bad-request"})
"""Kinds of problems that are of an address. Of any other a browser gets what a program gets, and its status."""


class PageRoute(APIRoute):
    """A route of a page: a browser is shown a problem as a page, a program gets it as JSON."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, and around it what turns a problem into a page."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except (Problem, RequestValidationError) as raised:
                kind = raised.kind if isinstance(raised, Problem) else "invalid"
                if kind not in SHOWN or "text/html" not in request.headers.get("accept", ""):
                    raise
                return _shown(request, raised)

        return handled


def _shown(request: Request, raised: Problem | RequestValidationError) -> Response:
    status, detail = 422, f"{request.url.path} is no address of a page here"
    if isinstance(raised, Problem):
        status, detail = raised.status_code, raised.detail
    return response("missing.html", "", detail=detail, status=status)
