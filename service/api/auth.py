"""Who asks, and what for: bearer tokens with scopes.

``admin`` may do everything; ``remediate`` changes things and reads; ``execute`` reads, and carries out what somebody else
has approved; ``read`` reads; ``ingest`` sends records and takes commands, and nothing else. A token that is bound to a node
has only the last, and only for that node.

A browser has no way to send a bearer token: to look at something, pages and their JSON, it may send the token as the
password of HTTP Basic, under any name. To change something it may not: another site could have it send that. The pages'
own forms go with a session instead (service/pages/forms.py), which is good for nothing else.

Until the first token is made the service is open, and then only to this machine: not to a request that came through a
proxy, nor to a web page that had a browser send it here under a name of its own.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBasic, HTTPBearer

from service.api.problems import Problem
from service.api.state import Service, service_of
from service.store.tokens import SCOPES, TokenRefused

# Whoever approves does not execute by that, nor the other way round: a stolen scheduler's token approves nothing.
IMPLIED = {
    "admin": frozenset(SCOPES),
    "remediate": frozenset({"remediate", "read"}),
    "execute": frozenset({"execute", "read"}),
}
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
LOOK_SECONDS = 1.0  # so often an open service looks whether another process has made a token

_scheme = HTTPBearer(auto_error=False, description="A token of `faulthound tokens create`.")
_password = HTTPBasic(auto_error=False)
CHALLENGE = 'Basic realm="Faulthound: any name, and a token as the password", charset="UTF-8"'


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request. ``node``: may speak for this node only."""

    actor: str
    scopes: frozenset[str]
    id: str = ""
    node: str | None = None

    def may(self, scope: str) -> bool:
        """Return whether a scope of the caller's covers this one."""
        return any(scope in IMPLIED.get(own, {own}) for own in self.scopes)


async def ingest(request: Request) -> Caller:
    """Return who sends records; raise the problem of who may not."""
    return await _checked(request, await _scheme(request), "ingest")


async def reader(request: Request) -> Caller:
    """Return who wants to read, for a route that bounds itself how long that may take."""
    return await _checked(request, await _scheme(request), "read")


def require(scope: str) -> Any:
    """Return the dependency that lets a request pass whose caller has this scope."""

    async def checked(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_scheme)]
    ) -> Caller:
        if credentials is None and scope == "read" and request.method in ("GET", "HEAD"):
            credentials = await _from_browser(request)
            if "text/html" in request.headers.get("accept", ""):  # a browser, led here by a page's link to its JSON
                return await _asking(request, credentials)
        return await _checked(request, credentials, scope)

    return Depends(checked)


async def viewer(request: Request) -> Caller:
    """Return who looks at a page."""
    return await _asking(request, await _scheme(request) or await _from_browser(request))


async def _asking(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Caller:
    """Return who reads with a browser; where a token is needed, it asks its user for it."""
    try:
        return await _checked(request, credentials, "read")
    except Problem as problem:
        if problem.kind != "unauthenticated":
            raise
        raise Problem("unauthenticated", problem.detail, headers={"WWW-Authenticate": CHALLENGE}) from None


async def _from_browser(request: Request) -> HTTPAuthorizationCredentials | None:
    sent = await _password(request)
    return HTTPAuthorizationCredentials(scheme="Bearer", credentials=sent.password) if sent is not None else None


async def still_may(request: Request, scope: str) -> bool:
    """Return whether the caller of a request that lasts may go on: its token may have been revoked, or have expired."""
    try:
        await _checked(request, await _scheme(request) or await _from_browser(request), scope)
    except Problem:
        return False
    return True


async def _checked(request: Request, credentials: HTTPAuthorizationCredentials | None, scope: str) -> Caller:
    # A thread only where the database is asked, which is once in some seconds: a fleet's batches all come by here.
    if _is_known(service_of(request), credentials):
        caller = _caller(request, credentials)
    else:
        caller = await run_in_threadpool(_caller, request, credentials)
    if not caller.may(scope):
        why = f"this needs the scope {scope}, and the token of {caller.actor} has {', '.join(sorted(caller.scopes))}"
        service_of(request).audit.refused("scope_refused", caller.actor, _asked(request), why)
        raise Problem("forbidden", f"{why}: make one with `faulthound tokens create --scope {scope}`")
    return caller


def check_node(request: Request, caller: Caller, node: str) -> None:
    """Let a caller speak for its own node only."""
    if caller.node is not None and caller.node != node:
        why = f"the token of {caller.actor} is bound to node {caller.node} and came for {node}"
        service_of(request).audit.refused("node_refused", caller.actor, node, why)
        raise Problem("not-your-node", f"{why}: give each node a token of its own")


def _is_known(service: Service, credentials: HTTPAuthorizationCredentials | None) -> bool:
    if credentials is None:
        return service.door.is_fresh
    return service.tokens.knows(credentials.credentials)


def _caller(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Caller:
    service = service_of(request)
    if credentials is None:
        return _without_token(request, service)
    try:
        bearer = service.tokens.check(credentials.credentials)
    except TokenRefused as refused:
        service.audit.refused("token_refused", refused.actor or "an unknown token", _asked(request), refused.reason)
        raise _unauthenticated(f"{refused}: make another with `faulthound tokens create`") from None
    return Caller(bearer.actor, bearer.scopes, bearer.id, bearer.node)


def _without_token(request: Request, service: Service) -> Caller:
    if not service.door.is_open():
        service.audit.refused("token_refused", "nobody", _asked(request), "no token")
        raise _unauthenticated("send Authorization: Bearer and a token of `faulthound tokens create`")
    if why := _not_from_here(request):
        service.audit.refused("token_refused", "nobody", _asked(request), why)
        raise _unauthenticated(f"{why}, and without tokens the service is for its own machine only: make a token")
    return Caller("anyone on this machine", frozenset(SCOPES))


def _unauthenticated(detail: str) -> Problem:
    return Problem("unauthenticated", detail, headers={"WWW-Authenticate": "Bearer"})


def _asked(request: Request) -> str:
    return f"{request.method} {request.url.path}"[:255]


def _not_from_here(request: Request) -> str:
    if request.client is None or not is_loopback(request.client.host):
        return "the request came from another machine"
    if passed := next((name for name in FORWARDED if name in request.headers), None):
        return f"the request came through a proxy (header {passed})"
    name = (
        request.headers.get("host", "").rpartition("]")[0].lstrip("[") or request.headers.get("host", "").split(":")[0]
    )
    if name.lower() != "localhost" and not is_loopback(name):
        return f"the request was sent to {name[:255]!a}, which is no name of this machine's loopback"
    return ""


def is_loopback(address: str) -> bool:
    """Return whether an address, as digits, is this machine's loopback."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(parsed, "ipv4_mapped", None)
    return bool((mapped or parsed).is_loopback)


class Door:
    """Whether the service is open: no token was ever made. Once closed it stays closed, also when all are revoked."""

    def __init__(self, any_token: Callable[[], bool]) -> None:
        self._any_token = any_token
        self._closed, self._looked_at = False, -LOOK_SECONDS

    @property
    def is_fresh(self) -> bool:
        """Whether the answer is known without a look at the table."""
        return self._closed or monotonic() - self._looked_at < LOOK_SECONDS

    def is_open(self) -> bool:
        """Return whether requests need no token; the table is looked at once a second until there is one."""
        if not self.is_fresh:
            self._closed = self._any_token()
            self._looked_at = monotonic()
        return not self._closed

    def look_again(self) -> None:
        """Look at the next request: a token was just made."""
        self._looked_at = -LOOK_SECONDS


READ, EXECUTE, REMEDIATE, ADMIN, INGEST = (
    require(scope) for scope in ("read", "execute", "remediate", "admin", "ingest")
)
