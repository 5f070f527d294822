"""The outcome of a remediation: the job runs well, or fails the same way again, or nothing is known yet."""

from __future__ import annotations

from analyzers.incidents.job_views import JobView
from analyzers.incidents.state import EngineState
from analyzers.remediation.types import Outcome, Remediation
from service.store.models import Incident

GOOD_STEPS, GOOD_SECONDS = 10, 60.0
ON_THE_SAME = frozenset({"reset_gpu", "restart_role"})  # the same attempt may go on after these, and shows the outcome


def observe_outcome(state: EngineState, one: Remediation, shown: list[Incident]) -> tuple[Outcome, str] | None:
    """Return the outcome with the reason; None: it is not known yet. ``shown``: the job's incidents since."""
    since = one.began_at or one.changed_at
    attempts = [view for view in state.jobs.values() if view.job == one.job and _is_after(view, one, since)]
    for incident in shown:
        if _is_again(incident, one, since):
            return "not_cured", f"{incident.id} shows the same again: {incident.symptom or incident.kind}"
    if any(incident.closed_at is None for incident in shown if incident.id != one.incident):
        return None  # another incident is open: the outcome shows after it
    return next((("cured", why) for view in attempts if (why := _runs_well(view, since))), None)


def _is_again(incident: Incident, one: Remediation, since: float) -> bool:
    """Whether an incident is the same trouble in a later attempt; the end of the stopped attempt is not.

    Where attempts are not counted, agents report 0: every younger incident is then of a later attempt.
    """
    later = not one.attempt or incident.attempt is None or incident.attempt > one.attempt
    after = incident.opened_at > (one.completed_at or since)
    same = one.symptom in (incident.kind, incident.symptom)
    return incident.id != one.incident and after and same and (later or one.kind in ON_THE_SAME)


def _is_after(view: JobView, one: Remediation, since: float) -> bool:
    """Whether an attempt is a later one, or, where attempts are not counted, has younger processes."""
    if one.kind in ON_THE_SAME:
        return True
    if (view.attempt or 0) != (one.attempt or 0):
        return (view.attempt or 0) > (one.attempt or 0)
    begun = (
        node.here(process.started_at, node.last_received_at)
        for process in view.processes.by_rank.values()
        if process.started_at and (node := view.nodes.get(process.node)) is not None
    )
    return min(begun, default=0.0) > since


def _runs_well(view: JobView, since: float) -> str | None:
    rows = [row for row in view.rhythm.rows if row.at > since and not row.nan]
    if not rows:
        return None
    steps, seconds = rows[-1].step - rows[0].step, rows[-1].at - rows[0].at
    if steps < GOOD_STEPS or seconds < GOOD_SECONDS:
        return None
    return f"attempt {view.attempt or 0} has done {steps:,} steps in {seconds:,.0f} s"
