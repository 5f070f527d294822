"""``/sign-in`` and ``/sign-out``: a token for a session of twelve hours, whose cookie holds no token."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from service.api.auth import Caller
from service.api.problems import Problem
from service.api.state import service_of
from service.pages import forms
from service.pages.rendering import response
from service.pages.visitors import COOKIE, SCOPE
from service.store.page_sessions import SESSION_SECONDS, PageSessions
from service.store.tokens import Bearer, TokenRefused

LONGEST_TOKEN = 255

router = APIRouter(include_in_schema=False, route_class=forms.FormRoute)


@router.get("/sign-in")
def sign_in_page(request: Request, to: Annotated[str, Query(max_length=255)] = "/") -> Response:
    """Ask for a token; where there is none, say how to make one."""
    notice = ""
    if service_of(request).open_access.is_open():
        notice = f"There is no token yet: make one with `faulthound tokens create NAME --scope {SCOPE}`"
    return response("sign_in.html", "", notice=notice, to=forms.own_page(to))


@router.post("/sign-in")
def sign_in(request: Request, found: Annotated[dict[str, str], Depends(forms.fields)]) -> Response:
    """Begin a session for who holds this token, and lead back to the page that they came from."""
    bearer = _checked(request, found.get("token", "").strip()[:LONGEST_TOKEN])
    answer = RedirectResponse(forms.own_page(found.get("to", "/")), 303)
    origin = request.headers.get("origin", "")  # what stands before the service may speak TLS for it
    answer.set_cookie(
        COOKIE, PageSessions(service_of(request).database).begin(bearer), max_age=int(SESSION_SECONDS), path="/", httponly=True,
        samesite="strict", secure=request.url.scheme == "https" or origin.startswith("https://"),
    )  # fmt: skip
    return answer


@router.post("/sign-out")
def sign_out(request: Request, form: forms.Form) -> Response:
    """End the session."""
    PageSessions(service_of(request).database).end(request.cookies[COOKIE], form.caller.actor)
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return answer


def _checked(request: Request, secret: str) -> Bearer:
    """Return who holds this token and may decide; raise the problem of any other."""
    service, asked = service_of(request), "POST /sign-in"
    try:
        bearer = service.tokens.check(secret)
    except TokenRefused as why:
        service.audit.refused("token_refused", why.actor or "an unknown token", asked, why.reason)
        raise Problem(
            "unauthenticated", f"{why}: make another with `faulthound tokens create NAME --scope {SCOPE}`"
        ) from None
    if not Caller(bearer.actor, bearer.scopes).may(SCOPE):
        why_not = f"signing in needs the scope {SCOPE}, and the token of {bearer.actor} has {', '.join(sorted(bearer.scopes))}"
        service.audit.refused("scope_refused", bearer.actor, asked, why_not)
        raise Problem("forbidden", f"{why_not}: with the scope read it opens the pages as a password, to look")
    return bearer
