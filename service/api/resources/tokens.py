"""Tokens over REST: made, listed and ended; a secret is shown once and kept nowhere."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from fastapi import Request
from pydantic import Field

from analyzers.model.doc import doc
from service.api import answers, auth, fields, paging
from service.api.auth import Caller
from service.api.problems import Problem, documented, not_found
from service.api.routing import Router
from service.api.state import service_of
from service.clock import now

router = Router("tokens")
Scope = Literal["ingest", "roles", "read", "execute", "remediate", "admin"]


class TokenRequest(fields.Body):
    """A token to be made."""

    name: fields.Text = Field(max_length=255, description="Its owner, or its purpose.")
    scopes: list[Scope] = Field(min_length=1, max_length=6, description="What it allows.")
    node: fields.NodeName | None = Field(None, description="It is valid for this node only; its scope is ingest.")
    job: fields.JobName | None = Field(None, description="It is valid for this job only; its scope is roles.")
    expires_at: float | None = Field(None, ge=0, le=fields.LATEST_AT, description="UTC seconds; null: never.")


class TokenDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A token, without its secret. Instants are UTC seconds."""

    id: Annotated[str, doc("Its id.")]
    name: Annotated[str, doc("Its owner, or its purpose.")]
    scopes: Annotated[tuple[str, ...], doc("What it allows.")]
    node: Annotated[str | None, doc("The node that it is bound to; null: none.")]
    job: Annotated[str | None, doc("The job that it is bound to; null: none.")]
    made_at: Annotated[float, doc("When it was made.")]
    expires_at: Annotated[float | None, doc("When it expires; null: never.")]
    revoked_at: Annotated[float | None, doc("When it was revoked; null: it was not.")]
    last_used_at: Annotated[float | None, doc("When it was last used, to the minute; null: never.")]


class MadeToken(TokenDocument, frozen=True, kw_only=True):
    """A token that was just made."""

    token: Annotated[str, doc("The secret. It is shown once; empty in an answer that is repeated.")]


class TokenList(msgspec.Struct, frozen=True, kw_only=True):
    """All tokens, the newest first."""

    items: Annotated[tuple[TokenDocument, ...], doc("The tokens.")]


@router.post("/v1/tokens", status_code=201, responses=documented("conflict"))
def create_token(
    request: Request, asked: TokenRequest, caller: Annotated[Caller, auth.ADMIN], key: answers.Key = None
) -> MadeToken:
    """Make a token. After the first one every request needs a token."""
    service = service_of(request)
    check_request(asked, now())

    def make() -> MadeToken:
        token, secret = service.tokens.make(
            asked.name, asked.scopes, asked.node, asked.expires_at, caller.actor, asked.job
        )
        service.open_access.recheck()
        return MadeToken(**msgspec.structs.asdict(paging.from_row(token, TokenDocument)), token=secret)

    def without_secret(made: MadeToken) -> MadeToken:
        return msgspec.structs.replace(made, token="")

    return service.answers.once(caller.actor, key, ("tokens", asked), MadeToken, make, without_secret)


@router.get("/v1/tokens", dependencies=[auth.ADMIN])
def list_tokens(request: Request) -> TokenList:
    """List all tokens, also those that have ended."""
    return TokenList(items=tuple(paging.from_row(token, TokenDocument) for token in service_of(request).tokens.all()))


@router.delete("/v1/tokens/{id}", status_code=204, responses=documented("not-found"))
def revoke_token(request: Request, id: fields.IdPath, caller: Annotated[Caller, auth.ADMIN]) -> None:
    """End a token: at once in this process, within seconds in others. Ending it again changes nothing."""
    service = service_of(request)
    if not service.tokens.revoke(id, caller.actor) and id not in {token.id for token in service.tokens.all()}:
        raise not_found("token", id, "/v1/tokens lists them")


def check_request(asked: TokenRequest, at: float) -> None:
    """Raise a problem where a token would allow too much, or nothing."""
    if asked.node is not None and set(asked.scopes) != {"ingest"}:
        raise Problem("invalid", f"a token bound to node {asked.node} has the scope ingest and no other")
    if asked.job is not None and set(asked.scopes) != {"roles"}:
        raise Problem("invalid", f"a token bound to job {asked.job} has the scope roles and no other")
    if asked.expires_at is not None and asked.expires_at <= at:
        raise Problem("invalid", f"expires_at ({asked.expires_at:.0f}) has passed, it is {at:.0f}: choose a later one")
