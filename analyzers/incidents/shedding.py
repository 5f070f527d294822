"""What the engine gives up to stay within its memory: the oldest evidence of the nodes that have most of it.

Nodes of no open incident give first, those of an incident only where that is not enough. A judgement's cut names what was shed,
its verdict states it, and proposes no eviction of a node whose evidence is incomplete for that reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from analyzers.incidents.state import EngineState

SPARE = 0.9  # of the bound is kept: otherwise each batch would shed a little


def shed_evidence(state: EngineState) -> None:
    """Give up evidence where the engine has more than its bound."""
    if state.evidence_bytes <= state.limits.engine_bytes:
        return
    room = int(SPARE * state.limits.engine_bytes)
    needed = {node for incident in state.incidents.values() for node in incident.nodes}
    inside, outside = ([node for node in state.evidence if (node in needed) is wanted] for wanted in (True, False))
    held = sum(state.evidence[node].size_bytes for node in inside)
    _cap(state, outside, max(0, room - held))
    _cap(state, inside, room)


def shed_evidence_of_jobs(state: EngineState) -> None:
    """Give up evidence of each job whose nodes have more than a job may."""
    for view in state.jobs.values():
        nodes = [node for node in view.nodes if node in state.evidence]
        if sum(state.evidence[node].size_bytes for node in nodes) > state.limits.job_bytes:
            _cap(state, nodes, int(SPARE * state.limits.job_bytes))


def count_evidence(state: EngineState) -> None:
    """Add up what the nodes have: evidence was forgotten."""
    state.evidence_bytes = sum(evidence.size_bytes for evidence in state.evidence.values())


def _cap(state: EngineState, nodes: Collection[str], room: int) -> None:
    most = level([state.evidence[node].size_bytes for node in nodes], room)
    for node in nodes:
        state.shed_records += state.evidence[node].shed_to(most)
    count_evidence(state)


def level(sizes: Iterable[int], room: int) -> int:
    """Return up to which size each may be kept, so that together they fit: the largest give first."""
    ordered = sorted(sizes)
    left = room
    for place, size in enumerate(ordered):
        others = len(ordered) - place
        if size * others > left:
            return left // others
        left -= size
    return room
