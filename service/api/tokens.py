"""Tokens over REST: made, listed and ended; a secret is shown once and kept nowhere."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from service.api import answers, auth, fields
from service.api.auth import Caller
from service.api.problems import Problem, documented, not_found
from service.api.state import of
from service.clock import now
from service.store.models import Token

router = APIRouter(tags=["tokens"])
Scope = Literal["ingest", "read", "execute", "remediate", "admin"]


class TokenWish(BaseModel):
    """A token to be made."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: fields.Text = Field(max_length=255, description="Whose it is, or what for.")
    scopes: list[Scope] = Field(min_length=1, max_length=5)
    node: fields.NodeName | None = Field(None, description="It may speak for this node only; its scope is ingest.")
    expires_at: float | None = Field(None, ge=0, le=fields.LATEST_AT, description="UTC seconds; null: never.")


class TokenDocument(BaseModel):
    """A token, without its secret."""

    id: str
    name: str
    scopes: list[str]
    node: str | None
    made_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None


class MadeToken(TokenDocument):
    """A token that was just made."""

    token: str = Field(description="The secret. It is shown once; empty in an answer that is repeated.")


class TokenList(BaseModel):
    """All tokens, the newest first."""

    items: list[TokenDocument]


@router.post("/v1/tokens", operation_id="create_token", status_code=201, responses=documented("conflict"))
def create_token(
    request: Request, wish: TokenWish, caller: Annotated[Caller, auth.ADMIN], key: answers.Key = None
) -> MadeToken:
    """Make a token. The first one closes a service that was open."""
    service = of(request)
    check_wish(wish, now())

    def make() -> MadeToken:
        token, secret = service.tokens.make(wish.name, wish.scopes, wish.node, wish.expires_at, caller.actor)
        service.door.look_again()
        return MadeToken(**_fields(token), token=secret)

    def without_secret(made: MadeToken) -> MadeToken:
        return made.model_copy(update={"token": ""})

    return service.answers.once(caller.actor, key, ("tokens", wish), MadeToken, make, without_secret)


@router.get("/v1/tokens", operation_id="list_tokens", dependencies=[auth.ADMIN], responses=documented())
def list_tokens(request: Request) -> TokenList:
    """List all tokens, also those that have ended."""
    return TokenList(items=[TokenDocument(**_fields(token)) for token in of(request).tokens.all()])


@router.delete("/v1/tokens/{id}", operation_id="revoke_token", status_code=204, responses=documented("not-found"))
def revoke_token(request: Request, id: fields.IdPath, caller: Annotated[Caller, auth.ADMIN]) -> None:
    """End a token: at once in this process, within seconds in others. Ending it again changes nothing."""
    service = of(request)
    if not service.tokens.revoke(id, caller.actor) and id not in {token.id for token in service.tokens.all()}:
        raise not_found("token", id, "/v1/tokens lists them")


def check_wish(wish: TokenWish, at: float) -> None:
    """Raise a problem where a token would be good for more than it should be, or for nothing."""
    if wish.node is not None and set(wish.scopes) != {"ingest"}:
        raise Problem("invalid", f"a token bound to node {wish.node} has the scope ingest and no other")
    if wish.expires_at is not None and wish.expires_at <= at:
        raise Problem("invalid", f"expires_at ({wish.expires_at:.0f}) has passed, it is {at:.0f}: choose a later one")


def _fields(token: Token) -> dict[str, Any]:
    return {name: getattr(token, name) for name in TokenDocument.model_fields}
