"""No step for longer than the job's step rhythm allows, unless other witnesses say that all of the job goes on.

A log may be read late, and an evaluation may print nothing: then every rank waits and works as often as usual, or every node's
connections carry as much. A hang stops at least one of them, and those who wait for it; but threads that poll wake as often in
a hang, so after ten minutes bytes alone count. Of several roles the trainers report the steps: only their training phase counts.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.recovery import allowed_silence_seconds
from analyzers.incidents.job_views.role_stalls import silence_counts_from, states_no_phase
from analyzers.incidents.job_views.step_rhythm import EARLY_SECONDS, SHORTEST_SECONDS
from analyzers.model.incident import Symptom
from analyzers.model.role_loops import TAIL_SECONDS

MOST_NAMED = 64
# For so long ranks that wake as often as usual are taken to work; those that poll do that in a hang too.
POLLED_SECONDS = 600.0


@detector("no_progress")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hang where the reporters' nodes have sent everything, and no step was in it for too long."""
    del now  # the nodes' reports count, not the clock
    at, step = view.newest_step_at, view.newest_step
    if at is None or step is None or (view.ended and not view.processes.alive):
        return
    silent = view.progress.silent_seconds
    if silent <= SHORTEST_SECONDS or silent <= (allowed := allowed_silence_seconds(view)):
        return
    if (trained := _in_training(view, at, silent)) is None or trained <= allowed:
        return
    waking = silent <= POLLED_SECONDS and view.witnesses.switches.all_go_on(at)
    if waking or view.traffic.paces.all_go_on(at):
        return
    yield Symptom(
        kind="hang",
        detector="no_progress",
        at=at,
        text=f"no step for {silent:.0f} s after step {step:,}; {_bound_in_words(view, allowed)}",
        ranks=_behind(view, step),
    )


def _in_training(view: JobView, at: float, silent: float) -> float | None:
    """Return for how long the silence is one of training; None: the trainers wait, or do something else that may last."""
    since = silence_counts_from(view)
    if since is None or (states_no_phase(view) and silent <= TAIL_SECONDS):
        return None
    return silent - max(0.0, since - at)


def _bound_in_words(view: JobView, allowed: float) -> str:
    if view.progress.rhythm.p99_seconds() is not None:
        return f"the job's own rhythm allows {allowed:.0f} s"
    bound = "two minutes" if allowed == EARLY_SECONDS else f"{allowed:.0f} s"
    return f"too few timed steps to know the usual interval: {bound} are allowed"


def _behind(view: JobView, newest: int) -> tuple[int, ...]:
    """Return the ranks that reported fewer steps than most, where they are few."""
    steps = {rank: reporter.step for (rank, _), reporter in view.progress.reporters.items() if rank >= 0}
    behind = sorted(rank for rank, step in steps.items() if step < newest)
    return tuple(behind) if 2 * len(behind) < len(steps) and len(behind) <= MOST_NAMED else ()
