"""Whether an incident is over: the job moves again, a new attempt does, or the job has ended."""

from __future__ import annotations

from collections import Counter

from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.loss_anomalies import GOOD_AGAIN
from analyzers.model.incident import Incident

SETTLED_SECONDS = {"crash": 30.0, "hardware": 60.0}
"""A job that goes on without a dead rank, or with a faulty device, gets its verdict before its incident ends."""
UNSEEN_SECONDS = 60.0


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
