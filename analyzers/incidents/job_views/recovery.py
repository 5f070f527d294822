"""Whether an incident is over: the job moves again, a new attempt does, or the job has ended.

Steps decide where the job reports them. Elsewhere any other witness that says that it lives is enough; one that was not read says
nothing.
"""

from __future__ import annotations

from collections import Counter

from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.loss_anomalies import GOOD_AGAIN
from analyzers.model.incident import Incident

SETTLED_SECONDS = {"crash": 30.0, "hardware": 60.0}
"""A job that goes on without a dead rank, or with a faulty device, gets its verdict before its incident ends."""
UNSEEN_SECONDS = 60.0
UNHEARD_SECONDS = 60.0  # without the reporters of steps, while other nodes report: then the other witnesses count
RUNS_SECONDS = 20.0  # that a process which was stopped must have run since


def allowed_silence_seconds(view: JobView) -> float:
    """Return how long a silence without a step may last before it is a symptom, by the job's step rhythm."""
    return view.progress.allowed_seconds


def ended_because(view: JobView, incident: Incident, now: float) -> str | None:
    """Say why the incident is over; None: it is not."""
    if view.attempt is not None and incident.attempt is not None and view.attempt > incident.attempt:
        return f"attempt {view.attempt} runs" if view.ranks or view.newest_step is not None else None
    return recovered_because(view, incident, now) or _has_ended(view, now)


def recovered_because(view: JobView, incident: Incident, now: float) -> str | None:
    """Say how the same attempt goes on by itself; None: it does not."""
    detectors = {symptom.detector for symptom in incident.symptoms}
    if "rank_stopped" in detectors and view.processes.held:
        return None
    if detectors == {"rank_stopped"} and (ran := _runs_again(view, incident)):
        return ran
    if view.newest_step is None or view.traffic.until - view.progress.until > UNHEARD_SECONDS:
        settled = now >= incident.opened_at + SETTLED_SECONDS.get(incident.kind, 0.0)
        return _lives(view, incident) if settled and not view.processes.held else None
    step, at = view.newest_step, view.newest_step_at
    if step is None or at is None or at <= incident.opened_at:
        return None
    if now < incident.opened_at + SETTLED_SECONDS.get(incident.kind, 0.0):
        return None
    steps = view.rhythm.count_after(incident.opened_at)
    if incident.kind == "numeric":
        good = steps >= GOOD_AGAIN and view.progress.trouble() is None
        return f"loss and gradient norm are as before at step {step:,}" if good else None
    if (incident.last_step is None or step < incident.last_step + 2) and steps < 2:  # a counter may begin anew
        return None
    return f"the job moves again: it has done step {step:,}"


def _lives(view: JobView, incident: Incident) -> str | None:
    """Say which witness beside the steps shows that the job goes on since the incident was opened."""
    since = incident.opened_at
    waits = view.waits
    if waits.moved_at > since and waits.looked_at - waits.moved_at < waits.moved_at - since:
        return "the job moves again: its ranks enter and leave operations"
    if waits.changed_at > since and not any(one.behind for one in waits.communicators.values()):
        return "the job moves again: NCCL's counts go on"
    if view.traffic.paces.goes_on(since):
        return "the job moves again: its connections carry as much as before"
    found = view.witnesses.back(incident.onset_at, since)
    return None if found is None else f"the job moves again: {found}"


def _runs_again(view: JobView, incident: Incident) -> str | None:
    """Say that no process is stopped any more, and the steps are not late; None: one is, or they are."""
    ranks = sorted({rank for symptom in incident.symptoms for rank in symptom.ranks})
    found = [view.processes.by_rank.get(rank) for rank in ranks]
    seen = [process for process in found if process is not None and process.seen_at is not None]
    if len(seen) < len(ranks) or view.processes.held or any(rank in view.ended for rank in ranks):
        return None
    ran_since = max((one.until or 0.0 for one in view.progress.standstills if one.of_process), default=0.0)
    late = view.newest_step is not None and view.progress.silent_seconds > allowed_silence_seconds(view)
    if late or min(process.seen_at or 0.0 for process in seen) < max(ran_since, incident.onset_at) + RUNS_SECONDS:
        return None
    named = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    return f"the process of {named} runs again"


def has_restarted(view: JobView, incident: Incident) -> bool:
    """Whether the attempt goes on with younger processes: where attempts are not counted, that is a new attempt."""
    begun = (
        node.here(process.started_at, node.last_received_at)
        for process in view.processes.by_rank.values()
        if process.started_at and (node := view.nodes.get(process.node)) is not None
    )
    return max(begun, default=0.0) > incident.onset_at


def _has_ended(view: JobView, now: float) -> str | None:
    if not view.ended or view.processes.alive:
        return None
    unseen = (view.world_size or 0) > len(
        view.ranks
    )  # nodes without an agent: their ranks end with the others, or soon
    if unseen and now < max(end.at for end in view.ended.values()) + UNSEEN_SECONDS:
        return None
    ways = Counter(end.how() for end in view.ended.values()).most_common(3)
    listed = ", ".join(f"{count:,} {way}" for way, count in ways)
    return f"all {len(view.ended):,} processes that were seen of the job have ended: {listed}"
