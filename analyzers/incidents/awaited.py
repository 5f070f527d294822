"""Which jobs wait for what their agents kept while the service was away, or for the ends of a dead rank's peers.

Agents send what they kept oldest first. Until the newest is here, a rank that has long gone on looks stopped, and a job that
runs looks as if it had left. A job is decided on as soon as all its nodes have sent what is new, and not before; a node that
does not return, or that stays behind, delays it for a bounded time.

An end of a rank is no symptom while the ends of the others may still come: the engine is woken when that wait is over. The next
run of a job that is started again at once replaces these ends.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.incidents.detectors.rank_dead import clear_at
from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.node import NodeView
from analyzers.incidents.state import EngineState, JobKey

GRACE_SECONDS = 60.0  # for agents to report again after a span in which nothing could reach the engine
BACKLOG_SECONDS = 300.0  # for a node to send what it kept; an agent that stays behind for longer is judged as it is


def in_grace(state: EngineState) -> bool:
    """Whether agents may still be returning."""
    return state.now < state.back_at + GRACE_SECONDS


def is_awaited(state: EngineState, key: JobKey) -> bool:
    """Whether a node of an attempt has not yet sent what is new, and still may."""
    view = state.jobs.get(key)
    if view is None:
        return in_grace(state)
    return any(_is_behind(state, node) for node in view.nodes.values())


def is_fleet_awaited(state: EngineState, keys: Iterable[JobKey]) -> bool:
    """Whether any node, or any of these jobs, is awaited after such a span: what is compared must be of one time."""
    if not in_grace(state):
        return False
    unheard = any(node.last_received_at < state.back_at for node in state.nodes.values())
    return unheard or any(is_awaited(state, key) for key in keys)


def hold_back(state: EngineState, view: JobView, now: float) -> None:
    """Note until when a job's ends are waited for."""
    state.held_back.pop(key := (view.job, view.attempt), None)
    if (at := clear_at(view, now)) is not None:
        state.held_back[key] = at


def take_due(state: EngineState, now: float) -> set[JobKey]:
    """Return the jobs of which the wait is over, each once."""
    due = {key for key, at in state.held_back.items() if at <= now}
    for key in due:
        del state.held_back[key]
    return due


def _is_behind(state: EngineState, node: NodeView) -> bool:
    if node.last_received_at < state.back_at and in_grace(state):
        return True
    if node.behind_since is None:
        return False
    # Where the service went away again meanwhile, nothing could be sent in that span.
    return state.now < max(node.behind_since, state.back_at) + BACKLOG_SECONDS
