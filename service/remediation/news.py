"""Which timeline entries lead to a proposal, or end one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.remediation.types import CHECKS
from service.store.models import Incident, TimelineEntry

NEWS = frozenset({"published", "closed", "merged"})  # of an incident: its proposal is asked for, closed or not
CHECKS_ENDED = frozenset(f"remediation_{how}" for how in ("completed", "rejected", "failed", "expired"))


def asks(one: TimelineEntry) -> bool:
    """Whether an entry may lead to a proposal, or end one.

    Ends of checks count, and expired remediations: the incident may still be open, and no newer verdict comes for it.
    """
    return is_news(one) or one.kind in ("feedback", "remediation_expired")


def is_news(one: TimelineEntry) -> bool:
    """Whether an entry is reason enough also for an incident that is closed."""
    return one.kind in NEWS or _ends_checks(one) or _is_lost_again(one)


def open_beside(session: Session, found: Iterable[TimelineEntry]) -> Iterator[str]:
    """Yield the other open incidents of jobs whose role is back: they were left alone meanwhile."""
    back = [one for one in found if one.kind == "remediation_verified" and one.details.get("kind") == "restart_role"]
    for one in back:
        beside = (Incident.job == one.job, Incident.closed_at.is_(None), Incident.id != one.incident)
        yield from session.scalars(select(Incident.id).where(*beside).order_by(Incident.id))


def _ends_checks(one: TimelineEntry) -> bool:
    return one.kind in CHECKS_ENDED and one.details.get("kind") in CHECKS


def _is_lost_again(one: TimelineEntry) -> bool:
    """Whether the restart of a role has failed: the next step is due, though the verdict is the same."""
    failed = one.kind == "remediation_failed" or one.details.get("outcome") == "not_cured"
    return failed and one.details.get("kind") == "restart_role"
