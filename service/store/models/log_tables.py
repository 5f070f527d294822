"""The tables of the log, and of what was derived from it."""

from __future__ import annotations

from sqlalchemy import JSON, BigInteger, Index, LargeBinary, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.store.schema import Base, Sequence


class Batch(Base):
    """One row of the log: what was acknowledged, as it came. Sequence numbers are in commit order."""

    __tablename__ = "batches"
    __table_args__ = (
        UniqueConstraint("node", "batch_id", name="uq_batches_node_batch_id"),
        # With the size: retention adds up the sizes of millions of batches without touching their pages.
        Index("ix_batches_node_received_at", "node", "received_at", "size_bytes"),
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


class RemovedBatches(Base):
    """Up to which of a node's batches some were removed because the node had more than its share of the log."""

    __tablename__ = "removed_batches"
    node: Mapped[str] = mapped_column(String(255), primary_key=True)
    sequence: Mapped[int] = mapped_column(BigInteger)
    received_at: Mapped[float]


class ServiceClock(Base):
    """The clock that the services of one machine hold, between two of its boots (service/clock.py)."""

    __tablename__ = "service_clocks"
    boot_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    offset_seconds: Mapped[float]  # UTC less the machine's boot time
    at: Mapped[float]  # the newest instant at which it was known
    doubt: Mapped[str] = mapped_column(String(1000), default="")  # why it is not certain; empty: it is
    set_at: Mapped[float | None]  # when it was set forward, where nothing had been confirmed before; None: never
    step_seconds: Mapped[float] = mapped_column(default=0.0)  # by how much, all such steps together
    steps: Mapped[list[tuple[float, float, float]]] = mapped_column(JSON, default=list)  # confirmed, set at, seconds
    agreed_at: Mapped[float | None]  # the newest instant that other clocks confirmed


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
