"""The tables of access: tokens, browsers that have signed in, the audit log, repeated requests, leases."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from service.store.schema import Base, Sequence


class Token(Base):
    """A bearer token's hash, never the token."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)  # SHA-256 of 256 random bits
    name: Mapped[str] = mapped_column(String(255))  # whose
    scopes: Mapped[list[Any]]  # ingest roles read execute remediate admin
    node: Mapped[str | None] = mapped_column(String(255))  # ingest for this node only
    job: Mapped[str | None] = mapped_column(String(255))  # roles for this job only
    made_at: Mapped[float]
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]


class PageSession(Base):
    """A browser that has signed in to the pages. Its secret is in its cookie, its rights are its token's."""

    __tablename__ = "page_sessions"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of 256 random bits
    token: Mapped[str] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"))
    made_at: Mapped[float]
    expires_at: Mapped[float] = mapped_column(index=True)


class AuditEvent(Base):
    """What was done, by whom: the audit log."""

    __tablename__ = "events"
    __table_args__ = ({"sqlite_autoincrement": True},)
    sequence: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(index=True)
    kind: Mapped[str] = mapped_column(String(64))  # token_made batch_refused job_declared command_asked …
    actor: Mapped[str] = mapped_column(String(255))  # a token's name and id, or "agent@gpu-0001"
    subject: Mapped[str] = mapped_column(String(255), default="")  # what it was done to
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Answer(Base):
    """The answer to a request under an Idempotency-Key, for a client that lost it and repeats the request."""

    __tablename__ = "answers"
    caller: Mapped[str] = mapped_column(String(255), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))  # of the request
    at: Mapped[float] = mapped_column(index=True)
    body: Mapped[str | None] = mapped_column(Text)  # JSON; None: it is being made


class Lease(Base):
    """The engine that works. Every transaction of an engine proves that its token is the newest."""

    __tablename__ = "leases"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str] = mapped_column(String(255))
    token: Mapped[int] = mapped_column(BigInteger)
    until: Mapped[float]
