"""The tables. Instants are UTC seconds as float, sizes bytes; a change of a table is a migration in migrations/versions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, Integer, LargeBinary, MetaData, String, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# SQLite counts a primary key only where it is called INTEGER.
Sequence = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    """All tables."""

    metadata = MetaData(
        naming_convention={  # a migration can only change what has a name
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON}


class Node(Base):
    """A machine that has reported."""

    __tablename__ = "nodes"
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    first_seen_at: Mapped[float]
    last_seen_at: Mapped[float]
    agent_version: Mapped[str] = mapped_column(String(64), default="")
    boot_id: Mapped[str | None] = mapped_column(String(64))
    clock_offset_seconds: Mapped[float | None]  # the node's clock less ours, at its newest batch
    coverage: Mapped[dict[str, Any]] = mapped_column(default=dict)  # the newest Coverage record
    devices: Mapped[dict[str, Any]] = mapped_column(default=dict)  # id → the newest Device record


class Job(Base):
    """A training job. ``declared`` is what its owner registered; the rest is seen."""

    __tablename__ = "jobs"
    name: Mapped[str] = mapped_column(String(255), primary_key=True)
    first_seen_at: Mapped[float]
    last_seen_at: Mapped[float]
    declared: Mapped[dict[str, Any]] = mapped_column(default=dict)
    declared_at: Mapped[float | None]
    version: Mapped[int] = mapped_column(default=1)  # of the declaration: its ETag


class Attempt(Base):
    """One run of a job between restarts."""

    __tablename__ = "attempts"
    job: Mapped[str] = mapped_column(ForeignKey("jobs.name", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    first_seen_at: Mapped[float]
    last_seen_at: Mapped[float]
    world_size: Mapped[int | None]
    code_version: Mapped[str | None] = mapped_column(String(255))


class Placement(Base):
    """Which process of a node a rank of an attempt was. Where a rank has moved, its newest sighting is where it is."""

    __tablename__ = "placements"
    job: Mapped[str] = mapped_column(String(255), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # A part of the key: an export of yesterday needs the node that the rank had then.
    node: Mapped[str] = mapped_column(String(255), primary_key=True, index=True)
    pid: Mapped[int | None]
    local_rank: Mapped[int | None]
    role: Mapped[str | None] = mapped_column(String(64))
    device: Mapped[str | None] = mapped_column(String(128))
    first_seen_at: Mapped[float]
    last_seen_at: Mapped[float]


class Batch(Base):
    """One row of the log: what was acknowledged, as it came. Sequence numbers are in commit order."""

    __tablename__ = "batches"
    __table_args__ = (
        UniqueConstraint("node", "batch_id", name="uq_batches_node_batch_id"),
        Index("ix_batches_node_received_at", "node", "received_at"),
        # With the size: retention adds up the sizes of millions of batches without touching their pages.
        Index("ix_batches_received_at", "received_at", "size_bytes"),
        {"sqlite_autoincrement": True},
    )
    sequence: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    batch_id: Mapped[str] = mapped_column(String(64))
    node: Mapped[str] = mapped_column(String(255))
    received_at: Mapped[float]
    sent_at: Mapped[float | None]  # by the node's clock
    records: Mapped[int]
    size_bytes: Mapped[int]
    block: Mapped[bytes] = mapped_column(LargeBinary)


class Block(Base):
    """A node's samples of one minute and one scope, compacted from the log and never the only copy."""

    __tablename__ = "blocks"
    __table_args__ = (Index("ix_blocks_minute", "minute"),)
    node: Mapped[str] = mapped_column(String(255), primary_key=True)
    minute: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)  # UTC seconds // 60
    scope: Mapped[str] = mapped_column(String(64), primary_key=True)
    block: Mapped[bytes] = mapped_column(LargeBinary)


class Cursor(Base):
    """How far a reader of the log has come; written with what it derived, so that it does each batch once."""

    __tablename__ = "cursors"
    reader: Mapped[str] = mapped_column(String(64), primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger)


class Pin(Base):
    """A span of a job's records, or of all, that retention leaves alone."""

    __tablename__ = "pins"
    id: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    job: Mapped[str | None] = mapped_column(String(255))  # None: of everything
    since: Mapped[float]
    until: Mapped[float]
    reason: Mapped[str] = mapped_column(String(1000))
    by: Mapped[str] = mapped_column(String(255))
    made_at: Mapped[float]


class Token(Base):
    """A bearer token's hash, never the token."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    hash: Mapped[str] = mapped_column(String(64), unique=True)  # SHA-256 of 256 random bits
    name: Mapped[str] = mapped_column(String(255))  # whose
    scopes: Mapped[list[Any]]  # ingest read remediate admin
    node: Mapped[str | None] = mapped_column(String(255))  # ingest for this node only
    made_at: Mapped[float]
    expires_at: Mapped[float | None]
    revoked_at: Mapped[float | None]
    last_used_at: Mapped[float | None]


class Event(Base):
    """What was done, by whom: the audit log."""

    __tablename__ = "events"
    __table_args__ = ({"sqlite_autoincrement": True},)
    sequence: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    at: Mapped[float] = mapped_column(index=True)
    kind: Mapped[str] = mapped_column(String(64))  # token_made batch_refused job_declared command_asked …
    actor: Mapped[str] = mapped_column(String(255))  # a token's name and id, or "agent@gpu-0001"
    subject: Mapped[str] = mapped_column(String(255), default="")  # what it was done to
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Command(Base):
    """Something an agent was asked to do: a closed set of verbs, each with an expiry."""

    __tablename__ = "commands"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    node: Mapped[str] = mapped_column(String(255), index=True)
    verb: Mapped[str] = mapped_column(String(32))
    arguments: Mapped[dict[str, Any]] = mapped_column(default=dict)
    asked_at: Mapped[float]
    expires_at: Mapped[float] = mapped_column(index=True)
    asked_by: Mapped[str] = mapped_column(String(255))
    taken_at: Mapped[float | None]
    outcome: Mapped[str | None] = mapped_column(String(32))
    text: Mapped[str] = mapped_column(String(2000), default="")
    ended_at: Mapped[float | None]
