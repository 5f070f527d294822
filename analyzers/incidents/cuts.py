"""The cut of an incident: which records its next judgement sees, and what the engine knows of them beside."""

from __future__ import annotations

from analyzers.incidents import messages
from analyzers.incidents.code_versions import other_code
from analyzers.incidents.evidence import select_records
from analyzers.incidents.job_views.recovery import STANDS_STILL
from analyzers.incidents.moving_again import moves_since
from analyzers.incidents.recurrence import seen_before
from analyzers.incidents.restarts import between_runs, going_on, restarted_at
from analyzers.incidents.seats import seats_in_words
from analyzers.incidents.state import EngineState
from analyzers.model.incident import Cut, Incident
from analyzers.model.slow_look import SlowLook
from analyzers.model.window import SILENT_SECONDS
from collectors.records import directory_sender

BEFORE_ONSET_SECONDS = 10.0  # the first rank may stand so long before the last sign of progress
MOST_PAUSES = 16
MOST_UNCONFIRMED = 8  # nodes that a verdict mentions


def make_cut(state: EngineState, incident: Incident) -> Cut:
    """Return the cut at this moment, and remember which nodes are silent in it."""
    state.silent[incident.id] = _silent(state, incident)
    stands_still = any(symptom.kind in STANDS_STILL for symptom in incident.symptoms)
    return Cut(
        after=incident.after, through=state.sequence, at=state.now, looks=incident.answered, nodes=len(incident.nodes),
        joined=incident.joined, offsets=incident.offsets, refused=_refused(state, incident),
        unconfirmed=_unconfirmed(state, incident), shed=_shed(state, incident),
        seen=seen_before(state, incident), since=max(incident.opened_at, *incident.stops, 0.0), round_at=incident.round_at,
        abstains=incident.abstains, held_back=incident.held_back, moved_at=moves_since(state, incident),
        until=_restarted_at(state, incident), began_at=_began_at(state, incident), stands_still=stands_still,
        ended_at=_ended_at(state, incident), onset_at=_shows_since(state, incident),
        slow=_slow(state, incident), pauses=_pauses(state, incident),
    )  # fmt: skip


def _shows_since(state: EngineState, incident: Incident) -> float | None:
    """Return since when a stack shows what the incident is about: before a stop or a death the job ran, and one rank was last."""
    died_at = min((symptom.at for symptom in incident.symptoms if symptom.kind == "crash"), default=None)
    stops = [symptom.at for symptom in incident.symptoms if symptom.kind in STANDS_STILL]
    if not stops:
        return incident.onset_at if died_at is None and incident.kind == "slow" else died_at
    stopped_since = max(stops[0], *incident.stops, 0.0)
    if died_at is not None and not _stood_before(state, incident, stopped_since, died_at):
        return died_at
    return stopped_since - BEFORE_ONSET_SECONDS


def _stood_before(state: EngineState, incident: Incident, stopped_since: float, died_at: float) -> bool:
    """Whether the job was known to stand still when its first rank died: otherwise it may have run until then."""
    view = state.jobs.get((incident.job or "", incident.attempt))
    if view is not None and view.newest_step_at is not None and view.newest_step_at > stopped_since:
        return False
    claimed = any(one.symptom in STANDS_STILL and one.at < died_at for one in incident.claims)
    return claimed or (incident.kind in STANDS_STILL and incident.opened_at < died_at)


def _slow(state: EngineState, incident: Incident) -> SlowLook | None:
    """Return what is known of the slowdown that an incident is about, None of one that is about something else."""
    if incident.kind != "slow":
        return None
    since = incident.symptoms[0].at
    view = state.jobs.get((incident.job or "", incident.attempt))
    found = None if view is None else view.progress.slowdown or view.progress.slowdown_after(since)
    reported = None if view is None else view.stragglers.look(view.ranks)
    if view is None or found is None:
        return SlowLook(since=since, step=incident.last_step or 0, reported=reported)
    earlier = view.progress.slowdowns_before(found.since)
    # What was read after the steps have become shorter is not what they were longer by.
    over_at = found.until or view.progress.recovered_at
    until, lasts = min(over_at or state.now, state.now), over_at is None
    pauses = view.progress.rhythm.pauses()
    measures = view.burdens.compare(
        found.since, until, found.before_seconds, found.seconds, earlier, pauses, lasts=lasts
    )
    return SlowLook(
        since=found.since, step=found.step, before_seconds=found.before_seconds, seconds=found.seconds,
        measures=tuple(measures), code=other_code(state, view, found), reported=reported,
    )  # fmt: skip


def _pauses(state: EngineState, incident: Incident) -> tuple[tuple[float, float], ...]:
    """Return the newest pauses of a slow job since its steps became longer."""
    view = state.jobs.get((incident.job or "", incident.attempt)) if incident.kind == "slow" else None
    known = [] if view is None else view.progress.rhythm.pauses()
    return tuple(one for one in known if one[1] > incident.onset_at)[-MOST_PAUSES:]


def _restarted_at(state: EngineState, incident: Incident) -> float | None:
    view = state.jobs.get((incident.job or "", incident.attempt))
    if view is None:
        return None
    return restarted_at(view, going_on(view, state.jobs.values(), state.declared_nodes(view.job)))


def _began_at(state: EngineState, incident: Incident) -> float | None:
    """Return since when records are of the processes of the incident: all were started anew under the same name and attempt."""
    view = state.jobs.get((incident.job or "", incident.attempt))
    return between_runs(view) if view is not None and 0.0 < view.run_began_at <= incident.onset_at else None


def _ended_at(state: EngineState, incident: Incident) -> float | None:
    """Return since when records are of the processes that replaced those of the incident under the same name and attempt."""
    view = state.jobs.get((incident.job or "", incident.attempt))
    return between_runs(view) if view is not None and view.run_began_at > incident.onset_at else None


def _silent(state: EngineState, incident: Incident) -> set[str]:
    """Return the nodes that have not answered the newest round, or that report nothing any more."""
    found = {node for node, _verb in state.waiting.get(incident.id, ())}
    seen = ((node, state.nodes.get(node)) for node in incident.nodes)
    return found | {node for node, one in seen if one is None or state.now - one.last_received_at > SILENT_SECONDS}


def _refused(state: EngineState, incident: Incident) -> dict[str, str]:
    """Return which ranks the nodes of an incident claim that others host."""
    hosting = state.hosting.get(incident.job or "")
    if hosting is None:
        return {}
    found = {node: hosting.refused(node, incident.attempt) for node in incident.nodes}
    return {node: seats_in_words(seats) for node, seats in found.items() if seats}


def _unconfirmed(state: EngineState, incident: Incident) -> tuple[str, ...]:
    """Return the nodes that joined late and say nothing of the job: a verdict that names nothing mentions them."""
    hosting = state.hosting.get(incident.job or "")
    return () if hosting is None else tuple(hosting.unconfirmed(incident.attempt)[:MOST_UNCONFIRMED])


def _shed(state: EngineState, incident: Incident) -> dict[str, int]:
    """Return the nodes of which records that the cut should hold were given up, and through which number."""
    nodes = (*incident.nodes, directory_sender(incident.job or ""))
    through = {node: state.evidence[node].shed for node in nodes if node in state.evidence}
    return {node: shed for node, shed in through.items() if shed > max(incident.after, incident.joined.get(node, 0))}


def request_judgement(state: EngineState, incident: Incident) -> messages.Judge:
    """Return the request to judge an incident's cut; after a restart it is asked again."""
    cut = incident.cut
    if cut is None:
        raise ValueError(f"incident {incident.id} is not being judged")
    records = select_records(
        state.evidence, incident.nodes[: cut.nodes], state.contexts.get(incident.id, ()), cut, incident.job,
        incident.attempt,
    )  # fmt: skip
    return messages.Judge(incident=incident.id, cut=cut, records=records, attempt=incident.attempt)
