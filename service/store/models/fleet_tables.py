"""The tables of the fleet: nodes, jobs and their runs, the directories of their roles, commands to agents."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.schema import Base


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


class Progress(Base):
    """What the engine knows of an attempt's progress (analyzers/incidents/job_views/job.py), for people and for a new engine."""

    __tablename__ = "progress"
    job: Mapped[str] = mapped_column(String(255), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)  # -1: its processes name none
    at: Mapped[float] = mapped_column(index=True)
    document: Mapped[dict[str, Any]] = mapped_column(default=dict)


class Placement(Base):
    """Which process of a node a rank of an attempt was. Where a rank has moved, its newest placement holds."""

    __tablename__ = "placements"
    job: Mapped[str] = mapped_column(String(255), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # Roles may each count from 0: then a rank is a role and a number. Empty: no role is known.
    role: Mapped[str] = mapped_column(String(64), primary_key=True, default="")
    rank: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    # A part of the key: an export of yesterday needs the node that the rank had then.
    node: Mapped[str] = mapped_column(String(255), primary_key=True, index=True)
    pid: Mapped[int | None]
    local_rank: Mapped[int | None]
    device: Mapped[str | None] = mapped_column(String(128))
    first_seen_at: Mapped[float]
    last_seen_at: Mapped[float]


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
