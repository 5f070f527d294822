"""What an incident leaves behind in its job: a standstill that teaches no rhythm, and a count of the nodes that show up again.

A fault that recovers leaves no machine to be found. That the same node shows it for the fifth time is then the finding.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from analyzers.incidents.job_views.recovery import stopped_at
from analyzers.incidents.job_views.standstills import MOST_NODES, OWN, Standstill, Why
from analyzers.incidents.state import EngineState
from analyzers.model.incident import Cut, Incident
from analyzers.model.verdict import Culprit, EvidenceItem, Verdict

_EXPLAINED: tuple[Why, ...] = ("fault", "pause", "place")
STANDSTILLS = frozenset({"hang", "silence", "crash"})  # kinds of incidents in which the job stands still


def shown_by(verdict: Verdict, before: str = "") -> Why:
    """Return what a verdict says of the standstill: the job's own pause, a fault, or nothing.

    ``before``: what the last verdict on the same stop said. An evaluation may follow a checkpoint in one silence: that nothing
    waits for too long does not take the pause back, but what followed it is not known.
    """
    if verdict.cause == "none" and any(root.fault_class.startswith("pause_") for root in verdict.roots):
        return "pause"
    if verdict.symptom == "healthy" and before in OWN:
        return "place"
    return "unknown" if verdict.abstained or verdict.cause in {"none", "unknown"} else "fault"


def named_by(verdict: Verdict) -> tuple[str, ...]:
    """Return the nodes that a verdict names, none where they are many."""
    found = {one.id for one in verdict.culprits if one.kind == "node"} | set(verdict.action.nodes)
    return tuple(sorted(found)) if len(found) <= MOST_NODES else ()


def _key_of(incident: Incident) -> str:
    """Return the key of an incident's newest standstill: a job may stop several times in one."""
    return f"{incident.id} {len(incident.stops) + 1}" if incident.stops else incident.id


def note_standstill(state: EngineState, incident: Incident, until: float | None = None) -> None:
    """Keep the span of an incident from being learned as the rhythm of its job."""
    view = state.jobs.get((incident.job, incident.attempt)) if incident.job is not None else None
    if view is None or incident.kind not in STANDSTILLS:
        return
    shown = {node for symptom in incident.symptoms for node in symptom.nodes}
    # Where a process dies, its node is only where it died, unless a verdict names it.
    whose = shown if incident.kind != "crash" and len(shown) <= MOST_NODES else set[str]()
    nodes = incident.named or tuple(sorted(whose))
    why: Why = next((one for one in _EXPLAINED if one == incident.shows), "unknown")
    key = _key_of(incident)
    view.progress.standstills.put(Standstill(key=key, since=stopped_at(incident), until=until, why=why, nodes=nodes))


def seen_before(state: EngineState, incident: Incident) -> dict[str, int]:
    """Return in how many earlier stalls of an incident's job each node showed up, in all attempts that are known."""
    if incident.kind == "crash":  # it did not stand still
        return {}
    views = [view for (job, _attempt), view in state.jobs.items() if job == incident.job]
    counts = sum((view.progress.standstills.counted(_key_of(incident)) for view in views), Counter[str]())
    return dict(sorted(counts.items()))


def with_count(verdict: Verdict, cut: Cut) -> Verdict:
    """State of each named node that the job has stood still with it before, and how often."""
    culprits, evidence = list(verdict.culprits), list(verdict.evidence)
    for index, one in enumerate(culprits):
        earlier = cut.seen.get(one.id, 0) if one.kind == "node" else 0
        if earlier:
            culprits[index], item = _counted(one, earlier, len(evidence) + 1)
            evidence.append(item)
    return replace(verdict, culprits=tuple(culprits), evidence=tuple(evidence))


def _counted(one: Culprit, earlier: int, number: int) -> tuple[Culprit, EvidenceItem]:
    id, before = f"e{number}", f"{earlier} earlier stall{'s' if earlier > 1 else ''} of this job"
    item = EvidenceItem(id=id, text=f"{one.id} showed up in {before}", source="incidents", analyzer="recurrence")
    return replace(one, why=f"{one.why}; its node showed up in {before}", evidence=(*one.evidence, id)), item
