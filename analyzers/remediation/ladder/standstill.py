"""Whether a job may be stopped or restarted without proof: only one that has stood still for long, or has died.

A verdict that names no suspect is no proof that anything is wrong. An apparent hang may be an unknown pause, and a job whose
processes have ended may have finished, or its owner may have ended it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from analyzers.knowledge.convictions import Ladder
from analyzers.remediation.ladder.job_history import Rung
from analyzers.remediation.ladder.trouble import Trouble
from analyzers.verdict.gate import ROUNDS_AFTER_SECONDS

SECOND_ROUND_SECONDS = ROUNDS_AFTER_SECONDS[1] + 10.0  # after the opening; the second evidence round is judged by then
STOPS = frozenset({"reattempt", "rollback", "replay"})  # rungs that stop or restart the job
STANDS = frozenset({"hang", "crash"})
_SENT = (1, 2, 9, 15)  # SIGHUP, SIGINT, SIGKILL, and the scheduler's SIGTERM
ORDERED = frozenset(
    {"exit code 0", *(f"signal {number}" for number in _SENT), *(f"exit code {128 + number}" for number in _SENT)}
)
"""How processes end that have finished, or that a person or a scheduler ends."""
_WAY = re.compile(r"\b(signal|exit code) (\d+)")  # analyzers.incidents.job_views.processes.End.how


class IncidentTimes(NamedTuple):
    """When an incident began and how it ended. ``processes_ended``: it was closed because its processes have ended."""

    opened_at: float
    onset_at: float
    closed_at: float | None
    closed_because: str
    processes_ended: bool


def explain_wait(times: IncidentTimes, rung: Rung, trouble: Trouble, bounds: Ladder, now: float) -> str | None:
    """Say why a rung that no verdict asks for is not proposed now, or not at all; None: it may be."""
    stops = rung.kind in STOPS or rung.person
    if times.processes_ended:
        if not stops or died_by_itself(times.closed_because):
            return None
        return "its processes were ended from outside, or their end was not seen: its owner starts it again"
    if times.closed_at is not None:
        return f"the incident is closed: {times.closed_because}"
    if now < times.opened_at + SECOND_ROUND_SECONDS:
        return "no suspect is named yet: a second evidence round comes first"
    failing = trouble.failing
    if not stops or rung.kind == "evict":
        return None
    if failing.symptom not in STANDS:
        return f"the job makes progress: it is not restarted for {failing.symptom} without proof"
    if now < times.onset_at + bounds.standing_seconds:
        return f"no suspect is named: a job that stands still is restarted without proof after {bounds.standing_seconds:g} s"
    return None


def died_by_itself(because: str) -> bool:
    """Whether a process of an attempt has died by itself, by the sentence with which its incident was closed."""
    ways = because.partition("have ended: ")[2]  # analyzers.incidents.job_views.recovery
    return any(" ".join(way) not in ORDERED for way in _WAY.findall(ways))
