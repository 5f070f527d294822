"""Incidents of the fleet, and the job incidents that they explain.

A merged job incident keeps its symptoms and waits: nothing is asked, judged or published for it until the infrastructure has
recovered. If the job does not move then, the incident continues.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from msgspec.structs import replace

from analyzers.incidents.fleet import SharedIncident, incident_key
from analyzers.incidents.memory import drop_incident, remember_incident
from analyzers.incidents.messages import Close, EngineInstruction, Open, Publish
from analyzers.incidents.state import LOOKBACK_SECONDS, EngineState
from analyzers.model.incident import Cut, Incident
from analyzers.model.verdict import digest


def watch_fleet(state: EngineState, now: float) -> Iterator[EngineInstruction]:
    """Examine all jobs and nodes together; open, publish, merge and close incidents of the fleet."""
    report = state.fleet.look(state.jobs, state.nodes, now)
    yield from report.alarms
    open_by_key = {incident_key(one): one for one in state.incidents.values() if one.kind == "infrastructure"}
    for key, because in report.over.items():
        if (incident := open_by_key.pop(key, None)) is not None:
            yield from _close(state, incident, now, because)
    for shared in report.shared:
        incident = open_by_key.get(shared.key)
        if incident is None:
            incident = _new_incident(state, shared, now)
            yield Open(incident=incident)
        yield from _publish(state, incident, shared, now)
    state.report = report
    merge_incidents(state)


def _new_incident(state: EngineState, shared: SharedIncident, now: float) -> Incident:
    name = hashlib.sha256(f"{shared.key}\x00{state.sequence}".encode()).hexdigest()[:12]
    nodes = tuple(sorted(shared.nodes))
    return Incident(
        id=f"inc-{name}", kind="infrastructure", job=None, attempt=None, opened_at=now, onset_at=min(shared.symptom.at, now),
        symptoms=(shared.symptom,), after=state.mark_before(now - LOOKBACK_SECONDS), nodes=nodes, offsets=state.offsets(nodes),
    )  # fmt: skip


def _publish(state: EngineState, incident: Incident, shared: SharedIncident, now: float) -> Iterator[EngineInstruction]:
    """Publish the verdict where it differs from the last one."""
    joined = sorted(shared.nodes - set(incident.nodes))
    if joined:
        incident = replace(incident, nodes=(*incident.nodes, *joined))
    content = digest(shared.verdict)
    if content != incident.digest:
        incident = replace(incident, digest=content, published=incident.published + 1)
        cut = Cut(
            after=incident.after, through=state.sequence, at=now, nodes=len(incident.nodes), offsets=incident.offsets
        )
        yield Publish(incident=incident.id, version=incident.published, cut=cut, verdict=shared.verdict)
    if incident is not state.incidents.get(incident.id):
        remember_incident(state, incident)


def merge_incidents(state: EngineState) -> None:
    """Pause job incidents that an infrastructure incident explains, and resume the others."""
    report = state.report
    ids = {incident_key(one): one.id for one in state.incidents.values() if one.kind == "infrastructure"}
    unseen = {id for key, id in ids.items() if all(one.key != key for one in report.shared)}
    for incident in list(state.incidents.values()):
        if incident.job is None or incident.merged_into in unseen:
            continue  # a restarted engine knows of a stored outage before it sees it
        into = next((ids[one.key] for one in report.shared if one.key in ids and one.explains(incident)), None)
        if into == incident.merged_into:
            continue
        # Records from the outage are no ground for a judgement after it: a new round of evidence comes first.
        changed = replace(incident, merged_into=into, judge_at=None, asked_at=None, next_look_at=state.now)
        remember_incident(state, changed if into is None else replace(incident, merged_into=into))


def _close(state: EngineState, incident: Incident, now: float, because: str) -> Iterator[EngineInstruction]:
    drop_incident(state, incident.id)
    yield Close(incident=incident.id, at=now, because=because, recovered=True)
