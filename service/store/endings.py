"""What people say beforehand: "I am stopping this job", until an instant. Entries of the timeline, which never change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.incidents.messages import Ending
from service.store import timeline
from service.store.models import TimelineEntry

KIND = "job_ending"
LONGEST_SECONDS = 86_400.0


def declare(session: Session, ending: Ending) -> None:
    """Store that a job is being stopped; the last statement of its transaction."""
    details = {"by": ending.by, "reason": ending.reason, "until": ending.until}
    timeline.add(session, ending.at, KIND, None, ending.job, details)


def active(session: Session, now: float, job: str | None = None) -> dict[str, Ending]:
    """Return the newest of each job, or of one, that holds now."""
    said = select(TimelineEntry).where(TimelineEntry.at >= now - LONGEST_SECONDS, TimelineEntry.kind == KIND)
    said = said if job is None else said.where(TimelineEntry.job == job)
    found: dict[str, Ending] = {}
    for one in session.scalars(said.order_by(TimelineEntry.sequence)):
        until, by, reason = (one.details.get(name) for name in ("until", "by", "reason"))
        if one.job is not None and isinstance(until, int | float):
            found[one.job] = Ending(job=one.job, at=one.at, until=float(until), by=str(by), reason=str(reason or ""))
    return {name: ending for name, ending in found.items() if ending.until > now}


def changed(session: Session, known: Mapping[str, Ending], now: float) -> Iterator[Ending]:
    """Yield those that an engine does not know yet."""
    for name, ending in sorted(active(session, now).items()):
        if known.get(name) != ending:
            yield ending
