"""Whether a job may be stopped, or started again, on a guess: only one that stands still for long, or has died.

A verdict that names nobody is no proof that anything is wrong. What looks like a hang may be a pause that nobody knows, and a
job whose processes have ended may have done its work, or have been ended by who owns it.
"""

from __future__ import annotations

import re

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from analyzers.knowledge.convictions import Ladder
from analyzers.remediation.ladder import Rung
from analyzers.remediation.ladder.trouble import Trouble
from analyzers.verdict.gate import LOOKS_AFTER_SECONDS
from service.remediation.job_history import has_ended
from service.store.models import Incident

LOOKED_TWICE_SECONDS = (
    LOOKS_AFTER_SECONDS[1] + 10.0
)  # after the opening: the second look is answered and judged by then
STOPS = frozenset({"reattempt", "rollback", "replay"})  # rungs for which the job is stopped, or started again
STANDS = frozenset({"hang", "crash"})
USELESS = frozenset({"nan"})  # steps are still done, and nothing is learned by them
_SENT = (1, 2, 9, 15)  # hang-up, Ctrl-C, kill, and the scheduler's word
ORDERED = frozenset(
    {"exit code 0", *(f"signal {number}" for number in _SENT), *(f"exit code {128 + number}" for number in _SENT)}
)
"""How processes end that have done their work, or that somebody ends."""
_WAY = re.compile(r"\b(signal|exit code) (\d+)")  # analyzers.incidents.job_views.processes.End.how


def too_early(
    session: Session, incident: Incident, rung: Rung, trouble: Trouble, bounds: Ladder, now: float
) -> str | None:
    """Say why a rung that no verdict asks for is not proposed now, or not at all; None: it may be."""
    stops = rung.kind in STOPS or rung.person
    if has_ended(session, incident):
        if not stops or died_by_itself(incident.closed_because):
            return None
        return "its processes were ended from outside, or nobody saw how: who did that starts it again"
    if incident.closed_at is not None:
        return f"the incident is closed: {incident.closed_because}"
    if now < incident.opened_at + LOOKED_TWICE_SECONDS:
        return "nobody is named yet: its agents are looked at once more first"
    failing = trouble.failing
    if not stops or rung.kind == "evict":
        return None
    if failing.symptom not in STANDS and failing.fault_class not in USELESS:
        return f"the job makes progress: it is not restarted for {failing.symptom} on a guess"
    if now < incident.onset_at + bounds.standing_seconds:
        return (
            f"nobody is named: a job that stands still is started again on a guess after {bounds.standing_seconds:g} s"
        )
    return None


def died_by_itself(because: str) -> bool:
    """Whether a process of an attempt has died by itself, by the sentence with which its incident was closed."""
    ways = because.partition("have ended: ")[2]  # analyzers.incidents.job_views.recovery
    return any(" ".join(way) not in ORDERED for way in _WAY.findall(ways))


def ripe_incidents(session: Session, after: float, now: float, bounds: Ladder) -> list[Incident]:
    """Return the open incidents for which so much time has passed between two instants that a rung may be proposed."""
    moments = (
        (Incident.opened_at, LOOKED_TWICE_SECONDS),
        (Incident.onset_at, bounds.standing_seconds),
    )
    within = or_(*(and_(at > after - seconds, at <= now - seconds) for at, seconds in moments))
    judged = (Incident.closed_at.is_(None), Incident.merged_into.is_(None), Incident.verdict_version > 0)
    return list(
        session.scalars(select(Incident).where(within, *judged, Incident.job.is_not(None)).order_by(Incident.id))
    )
