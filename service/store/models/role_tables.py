"""The tables of role directories (docs/roles.md)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.schema import Base


class RoleDirectory(Base):
    """A job's directory: what each change counts up."""

    __tablename__ = "role_directories"
    job: Mapped[str] = mapped_column(String(255), primary_key=True)
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)
    version: Mapped[int] = mapped_column(BigInteger, default=0)
    changed_at: Mapped[float] = mapped_column(index=True)


class RoleSlot(Base):
    """One instance of a role (service/roles/directory.py). ``document`` is the whole of it."""

    __tablename__ = "role_slots"
    __table_args__ = (Index("ix_role_slots_job_version", "job", "version"),)
    job: Mapped[str] = mapped_column(ForeignKey("role_directories.job", ondelete="CASCADE"), primary_key=True)
    role: Mapped[str] = mapped_column(String(64), primary_key=True)
    instance: Mapped[str] = mapped_column(String(64), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger)
    renewed_at: Mapped[float]
    document: Mapped[dict[str, Any]]
