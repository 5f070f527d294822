"""The tables. Instants are UTC seconds as float, sizes bytes; a change of a table is a migration in migrations/versions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import Mapped, mapped_column

from service.store.remediation_models import Execution, Hold, NodeRecord, Remediation, ShadowCase, Switch
from service.store.schema import Base, Sequence

__all__ = [
    "Base",
    "Execution",
    "Hold",
    "NodeRecord",
    "Remediation",
    "Sequence",
    "ShadowCase",
    "Switch",
]  # made elsewhere


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
    saving_since: Mapped[float | None]  # a checkpoint is being saved, as the engine sees it
    save_seconds: Mapped[float | None]  # how long that usually takes
    last_checkpoint_at: Mapped[float | None]


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
    scopes: Mapped[list[Any]]  # ingest read execute remediate admin
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


class Answer(Base):
    """What a request under an Idempotency-Key was answered, for whoever lost the answer and asks again."""

    __tablename__ = "answers"
    caller: Mapped[str] = mapped_column(String(255), primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))  # of the request
    at: Mapped[float] = mapped_column(index=True)
    body: Mapped[str | None] = mapped_column(Text)  # JSON; None: it is being made


class Incident(Base):
    """A symptom from its opening to its closing. ``state`` is what the engine remembers (analyzers/model/incident.py)."""

    __tablename__ = "incidents"
    __table_args__ = (Index("ix_incidents_job_opened_at", "job", "opened_at"),)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(32))
    job: Mapped[str | None] = mapped_column(String(255))  # None: of the fleet
    attempt: Mapped[int | None]
    opened_at: Mapped[float] = mapped_column(index=True)
    onset_at: Mapped[float]
    closed_at: Mapped[float | None] = mapped_column(index=True)  # None: open
    closed_because: Mapped[str] = mapped_column(String(1000), default="")
    merged_into: Mapped[str | None] = mapped_column(String(32))
    nodes: Mapped[list[Any]] = mapped_column(default=list)
    version: Mapped[int] = mapped_column(default=1)  # of this row: its ETag
    # Of the newest verdict, so that a list needs no documents.
    verdict_version: Mapped[int] = mapped_column(default=0)
    symptom: Mapped[str | None] = mapped_column(String(32))
    cause: Mapped[str | None] = mapped_column(String(32))
    abstained: Mapped[bool | None]
    action: Mapped[str | None] = mapped_column(String(32))
    culprits: Mapped[list[Any]] = mapped_column(default=list)  # [{"kind", "id", "ranks", "probability"}]
    state: Mapped[dict[str, Any]] = mapped_column(default=dict)
    context: Mapped[bytes] = mapped_column(LargeBinary, default=b"")  # a block: what was told before and still held
    pin: Mapped[int | None] = mapped_column(BigInteger)  # that keeps its records


class Verdict(Base):
    """One version of an incident's verdict, with what it was judged from."""

    __tablename__ = "verdicts"
    incident: Mapped[str] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[float]
    cut: Mapped[dict[str, Any]]  # analyzers.model.incident.Cut
    knowledge: Mapped[str] = mapped_column(String(80))
    program: Mapped[str] = mapped_column(String(64))
    document: Mapped[bytes] = mapped_column(LargeBinary)  # the bytes of the verdict document
    claims: Mapped[list[Any]] = mapped_column(default=list)  # the findings behind it


class UnfitNode(Base):
    """A node that an incident's newest verdict would take out of the job: what a node's fitness is asked of."""

    __tablename__ = "unfit_nodes"
    node: Mapped[str] = mapped_column(String(255), primary_key=True)
    incident: Mapped[str] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"), primary_key=True, index=True)
    at: Mapped[float]
    action: Mapped[str] = mapped_column(String(32))  # evict drain_after_job reset_gpu reboot_node
    why: Mapped[str] = mapped_column(String(1000))
    until: Mapped[float | None]  # None: as long as the incident is open


class Happening(Base):
    """One line of an incident's timeline, and of the stream of all: opened, symptom, asked, answered, published, closed."""

    __tablename__ = "happenings"
    __table_args__ = (Index("ix_happenings_incident_sequence", "incident", "sequence"), {"sqlite_autoincrement": True})
    sequence: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)  # the stream's event id
    at: Mapped[float] = mapped_column(index=True)
    incident: Mapped[str | None] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"))
    job: Mapped[str | None] = mapped_column(String(255))
    kind: Mapped[str] = mapped_column(String(32))
    details: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Feedback(Base):
    """What an operator says of a verdict."""

    __tablename__ = "feedback"
    id: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    incident: Mapped[str] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"), index=True)
    verdict_version: Mapped[int]
    at: Mapped[float]
    by: Mapped[str] = mapped_column(String(255))
    judgement: Mapped[str] = mapped_column(String(16))  # right wrong unclear
    culprit_kind: Mapped[str | None] = mapped_column(String(32))  # the real one, where the verdict was wrong
    culprit: Mapped[str | None] = mapped_column(String(255))
    text: Mapped[str] = mapped_column(String(2000), default="")


class Downtime(Base):
    """What an incident cost its job."""

    __tablename__ = "downtimes"
    __table_args__ = (Index("ix_downtimes_job_onset_at", "job", "onset_at"),)
    incident: Mapped[str] = mapped_column(ForeignKey("incidents.id", ondelete="CASCADE"), primary_key=True)
    job: Mapped[str] = mapped_column(String(255))
    attempt: Mapped[int | None]
    onset_at: Mapped[float]
    detected_at: Mapped[float]
    verdict_at: Mapped[float | None]
    acted_at: Mapped[float | None]  # the attempt was ended, or a new one began
    first_good_at: Mapped[float | None]  # end of the first step after it
    last_step: Mapped[int | None]
    resumed_step: Mapped[int | None]
    steps_lost: Mapped[int | None]  # done before, and done again from the checkpoint


class Alarm(Base):
    """Something about our own sight that a person should know."""

    __tablename__ = "alarms"
    id: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    kind: Mapped[str] = mapped_column(String(32))
    job: Mapped[str | None] = mapped_column(String(255))
    text: Mapped[str] = mapped_column(String(1000))
    nodes: Mapped[list[Any]] = mapped_column(default=list)
    raised_at: Mapped[float]
    over_at: Mapped[float | None] = mapped_column(index=True)


class Lease(Base):
    """Who runs the engine. Every transaction of an engine proves that its token is the newest."""

    __tablename__ = "leases"
    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    owner: Mapped[str] = mapped_column(String(255))
    token: Mapped[int] = mapped_column(BigInteger)
    until: Mapped[float]


class PageSession(Base):
    """A browser that has signed in to the pages. Its secret is in its cookie, its rights are its token's."""

    __tablename__ = "page_sessions"
    hash: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of 256 random bits
    token: Mapped[str] = mapped_column(ForeignKey("tokens.id", ondelete="CASCADE"))
    made_at: Mapped[float]
    expires_at: Mapped[float] = mapped_column(index=True)
