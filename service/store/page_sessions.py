"""Browsers that have signed in: a random secret in a cookie, its SHA-256 here, and its token.

What a session may do is what its token may do at that moment: one that is revoked or expires ends all its sessions.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable

from sqlalchemy import delete, select

from service.clock import now
from service.store import audit_log
from service.store.database import Database
from service.store.models import PageSession, Token
from service.store.tokens import Bearer

SESSION_SECONDS = 12 * 3_600.0  # a shift


class PageSessions:
    """The sessions of a store, whichever process they were begun in."""

    def __init__(self, database: Database, clock: Callable[[], float] = now) -> None:
        self._database, self._clock = database, clock

    def begin(self, bearer: Bearer) -> str:
        """Begin a session for the holder of this token, and return its secret, which is not shown again."""
        secret, at = secrets.token_urlsafe(32), self._clock()
        with self._database.transaction() as session:
            session.execute(delete(PageSession).where(PageSession.expires_at <= at))
            row = PageSession(hash=_hash(secret), token=bearer.id, made_at=at, expires_at=at + SESSION_SECONDS)
            session.add(row)
            audit_log.record(session, at, "signed_in", bearer.actor, bearer.id, {"until": row.expires_at})
        return secret

    def find(self, secret: str) -> Bearer | None:
        """Return the holder of this session; None where it is unknown, or it or its token has ended."""
        at = self._clock()
        found = select(PageSession.expires_at, Token).join(Token, Token.id == PageSession.token)
        with self._database.session() as session:
            known = session.execute(found.where(PageSession.hash == _hash(secret))).one_or_none()
        if known is None or known[0] <= at:
            return None
        token: Token = known[1]
        if token.revoked_at is not None or (token.expires_at is not None and token.expires_at <= at):
            return None
        return Bearer(token.id, token.name, frozenset(token.scopes), token.node, token.job)

    def end(self, secret: str, by: str) -> None:
        """End a session."""
        with self._database.transaction() as session:
            session.execute(delete(PageSession).where(PageSession.hash == _hash(secret)))
            audit_log.record(session, self._clock(), "signed_out", by)


def form_key(secret: str) -> str:
    """Return the value in every form of a session: a site that only makes a browser send its cookie cannot know it."""
    return hmac.new(secret.encode("utf-8", "replace"), b"forms", hashlib.sha256).hexdigest()


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
