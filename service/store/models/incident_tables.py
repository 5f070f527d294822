"""The tables of incidents, their verdicts, timelines and costs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from service.store.schema import Base, Sequence


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
    culprits: Mapped[list[Any]] = mapped_column(default=list)  # [{"kind", "id", "ranks", "role", "probability"}]
    state: Mapped[dict[str, Any]] = mapped_column(default=dict)
    context: Mapped[bytes] = mapped_column(
        LargeBinary, default=b""
    )  # a block: the records before the first that still held
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


class TimelineEntry(Base):
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
    """An operator's judgement of a verdict."""

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
    stood_at: Mapped[float | None]  # end of the last step before the job stood, where steps went on after the onset
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
