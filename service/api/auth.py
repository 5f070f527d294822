"""Who sends a request, and what it may do: bearer tokens with scopes.

``admin`` may do everything; ``remediate`` changes things and reads; ``execute`` reads, and carries out what another token
has approved; ``read`` reads; ``ingest`` sends records and takes commands, and nothing else; ``roles`` registers processes in a
job's role directory and reads that, and nothing else. A token that is bound to a node has only ``ingest``, and only for that
node; one that is bound to a job has only ``roles``, and only for that job.

A browser cannot send a bearer token. To read pages and their JSON it may send the token as the password of HTTP Basic, under
any name. It may not change anything that way: another site could make it send the request. The pages' own forms use a
session instead (service/pages/forms.py), which is valid for nothing else.

Until the first token is made the service is open, and only to its own machine: not to a request that came through a proxy,
nor to a web page that had a browser send it here under a name of its own.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBasic, HTTPBearer

from service.api.problems import Problem
from service.api.state import Service, service_of
from service.store.tokens import SCOPES, TokenRefused

# Approval does not imply execution, nor the reverse: a stolen scheduler's token approves nothing.
IMPLIED = {
    "admin": frozenset(SCOPES),
    "remediate": frozenset({"remediate", "read"}),
    "execute": frozenset({"execute", "read"}),
}
FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")

_scheme = HTTPBearer(auto_error=False, description="A token of `faulthound tokens create NAME --scope SCOPE`.")
_password = HTTPBasic(auto_error=False)
CHALLENGE = 'Basic realm="Faulthound: any name, and a token as the password", charset="UTF-8"'


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request. ``node``, ``job``: it may act for this one only."""

    actor: str
    scopes: frozenset[str]
    id: str = ""
    node: str | None = None
    job: str | None = None

    def may(self, scope: str) -> bool:
        """Return whether a scope of the caller's covers this one."""
        return any(scope in IMPLIED.get(own, {own}) for own in self.scopes)


async def ingest(request: Request) -> Caller:
    """Return the sender of records; raise the problem of one that may not send."""
    return await _checked(request, await _scheme(request), "ingest")


async def reader(request: Request) -> Caller:
    """Return the caller of a read, for a route that bounds the time of this check itself."""
    return await _checked(request, await _scheme(request), "read")


def require(*scopes: str) -> Any:
    """Return the dependency that lets a request pass whose caller has one of these scopes."""

    async def checked(
        request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_scheme)]
    ) -> Caller:
        if credentials is None and "read" in scopes and request.method in ("GET", "HEAD"):
            credentials = await _from_browser(request)
            if "text/html" in request.headers.get("accept", ""):  # a browser, led here by a page's link to its JSON
                return await _asking(request, credentials)
        return await _checked(request, credentials, *scopes)

    return Depends(checked)


async def viewer(request: Request) -> Caller:
    """Return the caller that reads a page."""
    return await _asking(request, await _scheme(request) or await _from_browser(request))


async def _asking(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Caller:
    """Return the caller of a browser, which asks its user for the token where one is needed."""
    try:
        return await _checked(request, credentials, "read")
    except Problem as problem:
        if problem.kind != "unauthenticated":
            raise
        raise Problem("unauthenticated", problem.detail, headers={"WWW-Authenticate": CHALLENGE}) from None


async def _from_browser(request: Request) -> HTTPAuthorizationCredentials | None:
    sent = await _password(request)
    return HTTPAuthorizationCredentials(scheme="Bearer", credentials=sent.password) if sent is not None else None


async def still_may(request: Request, *scopes: str) -> bool:
    """Return whether the caller of a request that lasts may go on: its token may have been revoked, or have expired."""
    try:
        await _checked(request, await _scheme(request) or await _from_browser(request), *scopes)
    except Problem:
        return False
    return True


async def _checked(request: Request, credentials: HTTPAuthorizationCredentials | None, *scopes: str) -> Caller:
    # A thread only where the database is queried, once in some seconds: all batches of the fleet pass here.
    if _is_known(service_of(request), credentials):
        caller = _caller(request, credentials)
    else:
        caller = await run_in_threadpool(_caller, request, credentials)
    if not any(caller.may(scope) for scope in scopes):
        scope = scopes[0]
        why = f"this needs the scope {scope}, and the token of {caller.actor} has {', '.join(sorted(caller.scopes))}"
        service_of(request).audit.refused("scope_refused", caller.actor, _asked(request), why)
        raise Problem("forbidden", f"{why}: make one with `faulthound tokens create NAME --scope {scope}`")
    return caller


def check_node(request: Request, caller: Caller, node: str) -> None:
    """Raise the problem of a caller that acts for another node than its own, or for one that has a token of its own."""
    service = service_of(request)
    if caller.node is None and caller.id and not caller.may("admin") and node in service.tokens.own_nodes:
        why = f"{node} sends with a token of its own, and the token of {caller.actor} is bound to no node"
        service.audit.refused("node_refused", caller.actor, node, why)
        raise Problem("not-your-node", f"{why}: let its agent use its own token alone")
    if caller.node is not None and caller.node != node:
        why = f"the token of {caller.actor} is bound to node {caller.node} and came for {node}"
        service.audit.refused("node_refused", caller.actor, node, why)
        raise Problem("not-your-node", f"{why}: give each node a token of its own")


def check_job(request: Request, caller: Caller, job: str) -> None:
    """Raise the problem of a caller whose token is bound to another job."""
    if caller.job is not None and caller.job != job:
        why = f"the token of {caller.actor} is bound to job {caller.job} and came for {job}"
        service_of(request).audit.refused("scope_refused", caller.actor, job, why)
        raise Problem("forbidden", f"{why}: give each job a token of its own")


def _is_known(service: Service, credentials: HTTPAuthorizationCredentials | None) -> bool:
    if credentials is None:
        return service.open_access.is_fresh
    return service.tokens.knows(credentials.credentials)


def _caller(request: Request, credentials: HTTPAuthorizationCredentials | None) -> Caller:
    service = service_of(request)
    if credentials is None:
        return _without_token(request, service)
    try:
        bearer = service.tokens.check(credentials.credentials)
    except TokenRefused as refused:
        service.audit.refused("token_refused", refused.actor or "an unknown token", _asked(request), refused.reason)
        raise _unauthenticated(f"{refused}: make another with `faulthound tokens create NAME --scope SCOPE`") from None
    return Caller(bearer.actor, bearer.scopes, bearer.id, bearer.node, bearer.job)


def _without_token(request: Request, service: Service) -> Caller:
    if not service.open_access.is_open():
        service.audit.refused("token_refused", "nobody", _asked(request), "no token")
        raise _unauthenticated(
            "send Authorization: Bearer and a token of `faulthound tokens create NAME --scope SCOPE`"
        )
    if why := _not_from_here(request):
        service.audit.refused("token_refused", "nobody", _asked(request), why)
        raise _unauthenticated(
            f"{why}, and a service without tokens answers its own machine only: make a token with "
            "`faulthound tokens create NAME --scope SCOPE`"
        )
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


READ, EXECUTE, REMEDIATE, ADMIN, INGEST, ROLES = (
    require(scope) for scope in ("read", "execute", "remediate", "admin", "ingest", "roles")
)
ROLES_READ = require("read", "roles")
