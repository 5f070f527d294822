"""Bearer tokens: 256 random bits that are shown once; the store keeps their SHA-256."""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from service.clock import now
from service.store import audit_log
from service.store.database import Database
from service.store.models import Token

SCOPES = ("ingest", "roles", "read", "execute", "remediate", "admin")
PREFIX = "fh_"  # by which secret scanners know one
CACHE_SECONDS = 5.0  # and so the longest that another process's revocation takes
CACHE_TOKENS = 8_192


@dataclass(frozen=True, slots=True)
class Bearer:
    """The holder of a valid token, and what it allows."""

    id: str
    name: str
    scopes: frozenset[str]
    node: str | None
    job: str | None = None

    @property
    def actor(self) -> str:
        """The holder as the audit log names it."""
        return f"{self.name} ({self.id})"


class TokenRefused(Exception):
    """The token is not valid. ``actor`` names its holder, or is empty where the token is unknown."""

    def __init__(self, reason: Literal["unknown", "expired", "revoked"], actor: str = "") -> None:
        super().__init__(f"the token is {reason}")
        self.reason: Literal["unknown", "expired", "revoked"] = reason
        self.actor = actor


class Tokens:
    """The tokens of a store, with a short memory of those just seen."""

    def __init__(self, database: Database, clock: Callable[[], float] = now) -> None:
        self._database, self._clock = database, clock
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[float, Token | None]] = {}  # hash → until when (monotonic), what the table had
        self._changes = 0  # made and revoked here: what was read before one is not remembered after it
        self.own_nodes: frozenset[str] = frozenset()  # that send with a token of their own, as of the newest look-up
        self._used: dict[str, float] = {}  # id → when, not yet written

    def make(
        self,
        name: str,
        scopes: Iterable[str],
        node: str | None = None,
        expires_at: float | None = None,
        by: str = "local",
        job: str | None = None,
    ) -> tuple[Token, str]:
        """Make a token and return its row and its secret, which is not shown again."""
        wanted = sorted(set(scopes), key=SCOPES.index)
        secret = PREFIX + secrets.token_urlsafe(32)
        token = Token(
            id=secrets.token_hex(8), hash=_hash(secret), name=name, scopes=wanted, node=node, job=job,
            made_at=self._clock(), expires_at=expires_at, revoked_at=None, last_used_at=None,
        )  # fmt: skip
        with self._database.transaction() as session:
            session.add(token)
            details = {"name": name, "scopes": wanted, "node": node, "job": job, "expires_at": expires_at}
            audit_log.record(session, token.made_at, "token_made", by, token.id, details)
        self._forget()  # it may have been tried too early
        return token, secret

    def unmake(self, token: Token) -> None:
        """Take back a token that was just made and never shown: it leaves an open service open."""
        with self._database.transaction() as session:
            session.delete(session.merge(token))
            audit_log.record(session, self._clock(), "token_unmade", "local", token.id)
        self._forget()

    def check(self, secret: str) -> Bearer:
        """Return the holder of this token, or raise ``TokenRefused``. Each token is looked up once in five seconds."""
        token = self._find(_hash(secret))
        if token is None:
            raise TokenRefused("unknown")
        bearer = Bearer(token.id, token.name, frozenset(token.scopes), token.node, token.job)
        if token.revoked_at is not None:
            raise TokenRefused("revoked", bearer.actor)
        at = self._clock()
        if token.expires_at is not None and token.expires_at <= at:
            raise TokenRefused("expired", bearer.actor)
        with self._lock:
            self._used[token.id] = at
        return bearer

    def knows(self, secret: str) -> bool:
        """Whether ``check`` will answer without asking the database."""
        with self._lock:
            return self._seen.get(_hash(secret), (0.0, None))[0] > time.monotonic()

    def revoke(self, id: str, by: str = "local") -> bool:
        """End a token, in this process at once; False where there is none, or it had ended before."""
        at = self._clock()
        with self._database.transaction() as session:
            ended = session.scalars(
                update(Token)
                .where(Token.id == id, Token.revoked_at.is_(None))
                .values(revoked_at=at)
                .returning(Token.id)
            ).all()
            if ended:
                audit_log.record(session, at, "token_revoked", by, id)
        self._forget()
        return bool(ended)

    def all(self) -> Sequence[Token]:
        """Return every token, the newest first."""
        with self._database.session() as session:
            return session.scalars(select(Token).order_by(Token.made_at.desc(), Token.id)).all()

    def any(self, scope: str | None = None) -> bool:
        """Whether a token is valid now (with this scope): without one the service is open, and stays on loopback."""
        at = self._clock()
        return any(
            token.revoked_at is None
            and (token.expires_at is None or token.expires_at > at)
            and (scope is None or scope in token.scopes)
            for token in self.all()
        )

    def write_used(self) -> None:
        """Write when tokens were last used; the upkeep calls it once a minute, so that no request waits for it."""
        with self._lock:
            used, self._used = self._used, {}
        if not used:
            return
        with self._database.transaction() as session:
            _write_used(session, used)

    def _find(self, hash: str) -> Token | None:
        with self._lock:
            until, token = self._seen.get(hash, (0.0, None))
            changes = self._changes
        if until > time.monotonic():
            return token
        with self._database.session() as session:
            token = session.scalars(select(Token).where(Token.hash == hash)).one_or_none()
            found = session.scalars(select(Token.node).where(*_in_use(self._clock())))
            own_nodes = frozenset(node for node in found if node is not None)
        with self._lock:
            self.own_nodes = own_nodes
            if len(self._seen) >= CACHE_TOKENS:  # an attacker's guesses fill it; a valid token is read again
                self._seen.clear()
            if changes == self._changes:
                self._seen[hash] = (time.monotonic() + CACHE_SECONDS, token)
        return token

    def _forget(self) -> None:
        with self._lock:
            self._seen.clear()
            self._changes += 1


def _in_use(at: float) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a node's token that is valid, and that its agent has begun to use."""
    valid = or_(Token.expires_at.is_(None), Token.expires_at > at)
    return Token.node.is_not(None), Token.last_used_at.is_not(None), Token.revoked_at.is_(None), valid


def _hash(secret: str) -> str:
    # No salt and no slow hash: the secret has 256 random bits. The table is asked for the hash, so that how long the
    # answer takes says nothing about any secret.
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _write_used(session: Session, used: dict[str, float]) -> None:
    newest = func.coalesce(Token.last_used_at, 0.0)
    for id, at in used.items():
        session.execute(update(Token).where(Token.id == id, newest < at).values(last_used_at=at))
