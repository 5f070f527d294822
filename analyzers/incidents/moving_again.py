"""Whether a judgement is of the fault: not where its evidence may be from after the job moved again, before the incident closes.

    stopped ──────────── moves again ──── two steps, or what closes the incident
        judgements of the fault │ judgements of a job that trains: the standing verdict stays, a first one names nothing
                                └─ known up to 25 s later: a verdict that names others waits for the witnesses

A job that stops again is judged again, from its own evidence round.
"""

from __future__ import annotations

from msgspec.structs import replace

from analyzers.incidents.job_views import JobView, moved_again_at, witnessed_until
from analyzers.incidents.job_views.recovery import LOOK_SECONDS
from analyzers.incidents.job_views.role_stalls import stalls_of
from analyzers.incidents.messages import Judged
from analyzers.incidents.standing_claim import Weighed, drops_restart, names_other, weigh_claim
from analyzers.incidents.state import EngineState
from analyzers.model.incident import Incident, VersionClaim

AGAIN_SECONDS = 5.0  # until what waits for the witnesses is judged again
WITNESSED_SECONDS = 40.0  # an agent reads and sends within twenty; a busy one gets as long again


def weigh_judgement(
    state: EngineState, incident: Incident, judged: Judged, claim: VersionClaim
) -> tuple[Incident, Weighed]:
    """Return what becomes of a judgement, and the incident with what is due for it."""
    weighed = weigh_claim(incident, claim, state.silent.pop(incident.id, ()))
    view = state.jobs.get((incident.job or "", incident.attempt))
    doubted_at, incident = incident.doubted_at or judged.cut.at, replace(incident, doubted_at=None)
    if view is None or weighed == "keep":
        return incident, weighed
    if incident.claims and incident.claims[-1].named and shows_nothing(claim) and not view.processes.alive:
        return incident, "keep"  # the job has ended since: that nothing of it stands still is no news of the fault
    if drops_restart(incident, claim) and stalls_of(view):
        return incident, "keep"  # the role's rule still holds: only the readings of its past are not kept for so long
    moved_at = moved_again_at(view, incident, state.now)
    if moved_at is not None and judged.cut.at > moved_at:
        if incident.published:
            return incident, "keep"
        if judged.cut.moved_at is not None or claim.cause == "none" or claim.proven:
            return incident, weighed
        return replace(incident, judge_at=state.now), "keep"
    doubted = names_other(incident, claim) or _is_of_data(claim)
    if doubted and not _is_witnessed(view, doubted_at, state.now):
        return replace(incident, doubted_at=doubted_at, judge_at=state.now + AGAIN_SECONDS), "keep"
    return incident, weighed


def shows_nothing(claim: VersionClaim) -> bool:
    """Whether a judgement has neither a symptom nor a name."""
    return claim.symptom == "unknown" and not claim.named


def _is_of_data(claim: VersionClaim) -> bool:
    """Whether a hang is blamed on the data that all ranks read: those of a job that has just gone on read, too."""
    return claim.symptom == "hang" and claim.cause == "data" and not claim.ranks


def _is_witnessed(view: JobView, at: float, now: float) -> bool:
    """Whether the witnesses have been read long enough after an instant to say whether the job stood still then."""
    return witnessed_until(view, now) >= at + LOOK_SECONDS or now > at + WITNESSED_SECONDS


def moves_since(state: EngineState, incident: Incident) -> float | None:
    """Return since when the job moves again, for a first verdict, which then names nothing."""
    view = state.jobs.get((incident.job or "", incident.attempt))
    moved_at = None if view is None or incident.published else moved_again_at(view, incident, state.now)
    return None if moved_at is None or moved_at >= state.now else moved_at
