"""The viewer of a page: a browser that has signed in, or a caller that may read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool

from service.api import auth
from service.api.auth import Caller
from service.api.state import service_of
from service.store.page_sessions import PageSessions, form_key

COOKIE = "faulthound_session"
SCOPE = "remediate"  # that a token needs for a session


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who looks. ``form_key`` is what the forms of a session hold; empty: not signed in, and shown no form."""

    caller: Caller
    form_key: str = ""

    @property
    def signed_in(self) -> bool:
        """Whether it may be shown forms."""
        return bool(self.form_key)


async def visitor(request: Request) -> Visitor:
    """Return who looks at a page; raise the problem of who may not."""
    return await signed_in(request) or Visitor(await auth.viewer(request))


async def signed_in(request: Request) -> Visitor | None:
    """Return who has the session of the request's cookie; None where there is none, it has ended, or may not decide."""
    secret = request.cookies.get(COOKIE)
    if not secret:
        return None
    bearer = await run_in_threadpool(PageSessions(service_of(request).database).find, secret)
    if bearer is None:
        return None
    caller = Caller(bearer.actor, bearer.scopes, bearer.id, bearer.node)
    return Visitor(caller, form_key(secret)) if caller.may(SCOPE) else None


Looks = Annotated[Visitor, Depends(visitor)]
