"""The tables of remediation (docs/remediation.md)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.schema import Base, Sequence


class Remediation(Base):
    """A plan under execution. ``document`` is the whole of it (analyzers/remediation/types.py); lists filter by the columns."""

    __tablename__ = "remediations"
    __table_args__ = (
        Index("ix_remediations_proposed_at_id", "proposed_at", "id"),
        Index("ix_remediations_job_proposed_at", "job", "proposed_at"),
    )
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    incident: Mapped[str] = mapped_column(String(32), index=True)  # which may be deleted before it
    job: Mapped[str] = mapped_column(String(255))
    kind: Mapped[str] = mapped_column(String(32))
    status: Mapped[str] = mapped_column(String(16), index=True)
    task: Mapped[str | None] = mapped_column(String(8), index=True)  # do, undo: what a scheduler can claim of it
    nodes: Mapped[list[Any]] = mapped_column(default=list)
    proposed_at: Mapped[float]
    changed_at: Mapped[float] = mapped_column(index=True)
    version: Mapped[int]  # its ETag
    document: Mapped[dict[str, Any]]


class Hold(Base):
    """A node or a job that nothing may be done to for a time."""

    __tablename__ = "holds"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    by: Mapped[str] = mapped_column(String(255))
    reason: Mapped[str] = mapped_column(String(1000))
    made_at: Mapped[float] = mapped_column(index=True)
    until: Mapped[float]
    node: Mapped[str | None] = mapped_column(String(255))
    job: Mapped[str | None] = mapped_column(String(255))


class Switch(Base):
    """What stops all remediation: ``freeze``, and ``breaker``. One row each, once they were thrown."""

    __tablename__ = "switches"
    name: Mapped[str] = mapped_column(String(32), primary_key=True)
    document: Mapped[dict[str, Any] | None] = mapped_column(
        JSON(none_as_null=True)
    )  # who, why, when; None: it is not thrown
    version: Mapped[int]  # its ETag


class Execution(Base):
    """That nodes were taken out: what the budget and the breaker count. It outlives its remediation."""

    __tablename__ = "executions"
    id: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    remediation: Mapped[str] = mapped_column(String(32))
    at: Mapped[float] = mapped_column(index=True)
    nodes: Mapped[list[Any]] = mapped_column(default=list)


class NodeRecord(Base):
    """What is remembered of a node that was taken out: the odds that it was the cause, its burn-in."""

    __tablename__ = "node_records"
    node: Mapped[str] = mapped_column(String(255), primary_key=True)
    changed_at: Mapped[float]
    document: Mapped[dict[str, Any]]


class ShadowCase(Base):
    """What an automatic policy would have done, and what came of the incident: by these rows it earns its trust."""

    __tablename__ = "shadow_cases"
    remediation: Mapped[str] = mapped_column(String(32), primary_key=True)
    incident: Mapped[str] = mapped_column(String(32), index=True)
    at: Mapped[float]
    closed_at: Mapped[float | None] = mapped_column(index=True)  # None: the incident is open
    correct: Mapped[bool | None]  # None: no operator has judged it, and nothing has shown it
    because: Mapped[str] = mapped_column(String(1000), default="")
    document: Mapped[dict[str, Any]]  # the remediation as it was then
