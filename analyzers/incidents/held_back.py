"""Which jobs have ends that are not symptoms yet: the engine is woken when the wait for the ends of other ranks is over.

The next run of a job that is started again at once replaces these ends.
"""

from __future__ import annotations

from analyzers.incidents.detectors.rank_dead import clear_at
from analyzers.incidents.job_views import JobView
from analyzers.incidents.state import EngineState, JobKey


def hold_back(state: EngineState, view: JobView, now: float) -> None:
    """Note until when a job's ends are waited for."""
    state.held_back.pop(key := (view.job, view.attempt), None)
    if (at := clear_at(view)) is not None and at > now:
        state.held_back[key] = at


def take_due(state: EngineState, now: float) -> set[JobKey]:
    """Return the jobs of which the wait is over, each once."""
    due = {key for key, at in state.held_back.items() if at <= now}
    for key in due:
        del state.held_back[key]
    return due
