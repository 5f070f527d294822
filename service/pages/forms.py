"""Forms: accepted from this service's own pages only, and from a signed-in person.

Three things must hold, and each alone would do: the browser states that the form came from here (Origin, Sec-Fetch-Site), it
sends a cookie that it sends with no request from another site (SameSite), and the form holds the key of its session.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from service.api.auth import Caller
from service.api.fields import TEXT_PATTERN
from service.api.problems import Problem
from service.api.state import service_of
from service.pages.rendering import response
from service.pages.visitors import Visitor, signed_in

FORM_TYPE = "application/x-www-form-urlencoded"
FORM_BYTES = 16 << 10
MOST_FIELDS = 20
LONGEST_REASON = 1_000
OWN_PAGES = re.compile(r"/(incidents/[A-Za-z0-9_-]{1,32}|remediations|holds|nodes)?")
AGAIN = "sign in again; nothing was changed"


@dataclass(frozen=True, slots=True)
class Sent:
    """The fields of a form, and its sender."""

    visitor: Visitor
    fields: dict[str, str]

    @property
    def caller(self) -> Caller:
        """Who sent it."""
        return self.visitor.caller

    def if_match(self) -> str:
        """Return the ETag of what the form was shown with; a form without one matches no version."""
        return f'"{self.fields.get("version", "")}"'

    def back(self, otherwise: str) -> str:
        """Return the page that the form stood on."""
        return own_page(self.fields.get("from", ""), otherwise)

    def text(self, name: str, longest: int = LONGEST_REASON) -> str:
        """Return a field without the blanks around it; raise the problem of one that is too long or no line of text."""
        value = self.fields.get(name, "").strip()
        if len(value) > longest or not re.fullmatch(TEXT_PATTERN, value):
            raise Problem("invalid", f"{name}: give a line of text of {longest:,} characters at most")
        return value

    def reason(self) -> str:
        """Return why it is done; raise the problem of a form that does not say."""
        if not (reason := self.text("reason")):
            raise Problem("invalid", "reason: give a reason; it is stored with your name")
        return reason


async def fields(request: Request) -> dict[str, str]:
    """Return the fields of a form that came from a page of this service; raise the problem of any other."""
    if why := _foreign(request):
        raise refused(request, "an unknown browser", why)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM_TYPE:
        raise Problem("unsupported-media-type", f"send the form as a browser does, as {FORM_TYPE}")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > FORM_BYTES:
            raise Problem("too-large", f"the form is larger than {FORM_BYTES:,} bytes: use fewer words")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS))
    except ValueError:
        raise Problem(
            "bad-request", f"the form is no UTF-8 or has more than {MOST_FIELDS} fields: send it again"
        ) from None


async def sent(request: Request, found: Annotated[dict[str, str], Depends(fields)]) -> Sent:
    """Return a form of a signed-in person; raise the problem of one that no page of their session held."""
    visitor = await signed_in(request)
    if visitor is None:
        raise Problem("unauthenticated", f"your session has ended: {AGAIN}")
    if not hmac.compare_digest(found.pop("key", "").encode(), visitor.form_key.encode()):
        raise refused(request, visitor.caller.actor, "the form does not hold the key of its session")
    return Sent(visitor, found)


def own_page(path: str, otherwise: str = "/") -> str:
    """Return a path if a page of this service is there, so that no link leads elsewhere."""
    return path if OWN_PAGES.fullmatch(path) else otherwise


def refused(request: Request, actor: str, why: str) -> Problem:
    """Write into the audit log that a form was refused, and return the problem."""
    service_of(request).audit.refused("form_refused", actor, f"{request.method} {request.url.path}"[:255], why)
    return Problem("forbidden", f"{why}: open the page here and send it from there; nothing was changed")


def _foreign(request: Request) -> str:
    """Say why a form is not from here. A browser that says nothing of where a form is from is too old to be believed."""
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None and site != "same-origin":
        return f"the form came from another site (Sec-Fetch-Site: {site[:20]!a})"
    if origin is not None:
        # Only the host: a proxy before the service may end TLS, and the service sees plain HTTP.
        host = request.headers.get("host", "")
        same = origin.startswith(("http://", "https://")) and urlsplit(origin).netloc.lower() == host.lower()
        return "" if same else f"the form came from {origin[:255]!a} and the service is {host[:255]!a}"
    return "" if site is not None else "the browser does not say where the form came from"


class FormRoute(APIRoute):
    """A route of a form: what is wrong with it is shown as a page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler, and around it what turns a problem into a page."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Problem as problem:
                return shown(problem)

        return handled


def shown(problem: Problem) -> Response:
    """Return the page of a problem; without a session, the form to sign in."""
    if (
        problem.kind == "unauthenticated"
    ):  # not 401: with that goes a challenge, and the browser would ask for a password
        return response("sign_in.html", "", notice=problem.detail, status=403, to="/")
    return response("refused.html", "", notice=problem.detail, status=problem.status_code, to="/")


Form = Annotated[Sent, Depends(sent)]
