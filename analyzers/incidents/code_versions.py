"""A job that goes on with other code: its rhythm is learned anew, and its steps are compared with those of the code before."""

from __future__ import annotations

from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.pace_changes import CodeSwitch, Slowdown
from analyzers.incidents.messages import Declared
from analyzers.incidents.state import ChangedCode, EngineState
from analyzers.model.slow_look import OtherCode

MOST_NEW_NODES = 64  # that are named


def change_code(state: EngineState, before: Declared, declared: Declared) -> None:
    """Forget the rhythm of the code before; where both versions are named, keep what its steps took."""
    changed = _changed(state, before, declared)
    if changed is None:
        state.changed_code.pop(declared.job, None)
    else:
        state.changed_code[declared.job] = changed
    for (job, attempt), view in state.jobs.items():
        if job == declared.job and (attempt is None or attempt >= declared.attempt):
            view.progress.forget(state.now)
            compare_with_before(state, view)


def compare_with_before(state: EngineState, view: JobView) -> None:
    """Let an attempt's steps be compared with those of the code before, where it runs other code."""
    changed = state.changed_code.get(view.job)
    if changed is not None and (view.attempt is None or view.attempt >= changed.attempt):
        view.progress.compare_with(changed.pace, changed.switch)


def other_code(state: EngineState, view: JobView, found: Slowdown) -> OtherCode | None:
    """Return which code a slowdown began with, None where it began by itself."""
    if found.code is None:
        return None
    changed = state.changed_code.get(view.job)
    known = changed is not None and changed.switch == found.code
    new = sorted(view.nodes.keys() - changed.nodes) if changed is not None and known else None
    return OtherCode(
        before=found.code.before, since=found.code.since, new_nodes=None if new is None else tuple(new[:MOST_NEW_NODES])
    )


def _changed(state: EngineState, before: Declared, declared: Declared) -> ChangedCode | None:
    """Return what the newest attempt of the code before did; None where that is not known."""
    if not before.code_version or not declared.code_version:
        return None
    ran = [
        view for (job, attempt), view in state.jobs.items() if job == declared.job and _may_have_run(attempt, declared)
    ]
    for view in sorted(ran, key=lambda one: -1 if one.attempt is None else one.attempt, reverse=True):
        pace = view.progress.usual_pace()
        if pace is not None:
            switch = CodeSwitch(before=before.code_version, since=declared.code_version)
            return ChangedCode(declared.attempt, switch, pace, frozenset(view.nodes))
    return None


def _may_have_run(attempt: int | None, declared: Declared) -> bool:
    return attempt is None or attempt <= declared.attempt
