"""How an incident closes, and what a standstill that ended was, as far as stacks that were taken in it show.

    stopped ─┬─ not counted: a step may still end ─┬───────────────┬─ not counted: it may move already ─┬─ moves again
                                                     what counts

A short pause is over before a verdict is reached. Where every rank that was read was in a pause (``pauses.toml``), or waited for
one that was, the closing states that. It is no verdict, and teaches nothing. A rank elsewhere leaves the standstill unexplained.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.evidence import concerns_job
from analyzers.incidents.job_end import how_its_job_ended, next_run_at
from analyzers.incidents.job_views import JobView, moved_again_at, stopped_at
from analyzers.incidents.job_views.node import LOG_EVERY_SECONDS
from analyzers.incidents.job_views.sampled_time import compiled_rules
from analyzers.incidents.memory import drop_incident
from analyzers.incidents.messages import Close
from analyzers.incidents.state import EngineState
from analyzers.model.frames import normal
from analyzers.model.incident import Incident
from analyzers.model.ranges import ranges
from analyzers.model.standings import WAITING, Observation
from analyzers.verdict.pauses import Pause, Pauses
from collectors.records import Frame, StackDump

OWN_WAY = frozenset({"rank_stopped", "rank_silent", "role_stalled"})  # detectors of standstills that no pause explains
WAITS = WAITING | {"store"}  # duties of a rank that the others hold up
MOST_RANKS = 4_096  # whose stacks are read while the engine's other jobs wait
MOST_SHOWN = 2  # places of a pause


def close_incident(
    state: EngineState, incident: Incident, now: float, because: str, *, recovered: bool = False
) -> Iterator[Close]:
    """Drop an incident that is over. ``recovered``: the same attempt goes on by itself, or went on to a good end."""
    view = state.jobs.get((incident.job, incident.attempt)) if incident.job is not None else None
    if view is not None and recovered:
        because = _explained(state, view, incident, because)
    # Agents report steps some seconds late: a job that moved again may already have stopped once more.
    moved_until = view.settled_until if view is not None else 0.0
    settled_at = moved_until if moved_until > incident.opened_at else next_run_at(view, incident)
    if incident.kind == "slow":
        settled_at = 0.0  # what befalls the job while its steps take longer is another trouble
    if recovered and any(symptom.detector == "role_stalled" for symptom in incident.symptoms):
        # The job goes on without one of its roles: a stall that began meanwhile, and lasts, is another one.
        settled_at = max(symptom.at for symptom in incident.symptoms)
    drop_incident(state, incident.id, settled_at)
    said = state.endings.get(incident.job or "")
    ended = "" if recovered else how_its_job_ended(view, incident, said, now)
    yield Close(incident=incident.id, at=now, because=because, ended=ended, recovered=recovered)


def end_slowdown(state: EngineState, incident: Incident, now: float) -> Iterator[Close]:
    """Close the slowdown that rests beside an incident of the same attempt, which is no pause of the job's own."""
    of_job = [one for one in state.incidents.values() if (one.job, one.attempt) == (incident.job, incident.attempt)]
    for one in of_job:
        if one.kind == "slow" and one.id != incident.id:
            yield from close_incident(state, one, now, f"it is more than a slowdown: {incident.symptoms[0].text}")


def _explained(state: EngineState, view: JobView, incident: Incident, because: str) -> str:
    """Return why an incident closes, with what its standstill was where no verdict says that."""
    moved_at = moved_again_at(view, incident, state.now)
    if moved_at is None or (incident.published and incident.shows in {"fault", "pause"}):
        return because
    since = stopped_at(incident)
    resumed_at = next((row.at for row in view.rhythm.rows if row.at > since), moved_at)
    because = f"{because}; it stood still for {resumed_at - since:.0f} s"
    if found := _meanwhile(state, view, incident, moved_at):
        return f"{because}, and meanwhile {found}: no machine is at fault"
    return because if incident.published else f"{because}, and moved before it was judged: nothing is proposed"


def _meanwhile(state: EngineState, view: JobView, incident: Incident, moved_at: float) -> str:
    """Say in which pause the ranks were during the newest stop; empty: their stacks do not show that all of it was one."""
    since = stopped_at(incident)
    held = any(one.of_process and (one.until or moved_at) > since for one in view.progress.standstills)
    other = held or view.numbering.several or any(one.detector in OWN_WAY for one in incident.symptoms)
    if other or len(view.ranks) > MOST_RANKS:
        return ""
    pauses = Pauses.from_knowledge(state.knowledge)
    newest = _newest(state, view, incident, moved_at, pauses)
    busy = {rank: pause for rank, (_, pause) in sorted(newest.items()) if pause is not None}
    waiting = [one for one, pause in newest.values() if pause is None]
    frames = {normal(frame) for one in waiting for frame in one.frames}
    shared = any(pauses.shared(newest[rank][0], frames, rank) for rank in busy)
    lasted = moved_at - since
    elsewhere = any(one.duty.name not in WAITS for one in waiting)
    too_long = not all(one.excuses(lasted) for one in busy.values())
    if elsewhere or shared or too_long or 2 * len(newest) < len(view.ranks):
        return ""
    found = [_in_words(words, busy, len(newest)) for words in dict.fromkeys(one.words for one in busy.values())]
    return " and ".join(found) + (", and the others that were read waited" if found and waiting else "")


def _newest(
    state: EngineState, view: JobView, incident: Incident, moved_at: float, pauses: Pauses
) -> dict[int, tuple[Observation, Pause | None]]:
    """Return each rank's newest stack of the stop, with its pause; of a rank that was elsewhere, neither waiting, that one.

    A step may have ended after the newest that was reported. An agent reads the next one some seconds after it began, but not
    while a rank is still in a pause.
    """
    seen = list(_stacks(state, view, incident, moved_at, pauses))
    counted_since = stopped_at(incident) + (view.rhythm.median_seconds() or 0.0)
    counted_until = max([moved_at - LOG_EVERY_SECONDS, *(at for at, _, _, pause in seen if pause is not None)])
    newest: dict[int, tuple[Observation, Pause | None]] = {}
    for at, rank, one, pause in seen:
        known = newest.get(rank)
        if known is not None and known[1] is None and known[0].duty.name not in WAITS:
            continue
        if pause is not None or counted_since <= at <= counted_until:
            newest[rank] = one, pause
    return newest


def _stacks(
    state: EngineState, view: JobView, incident: Incident, until: float, pauses: Pauses
) -> Iterator[tuple[float, int, Observation, Pause | None]]:
    """Yield when, of which rank, the stack and its pause, for those that were taken in the newest stop, the oldest first."""
    rules, found = compiled_rules(state.knowledge), list[tuple[float, int, StackDump]]()
    known: dict[tuple[Frame, ...], Pause | None] = {}  # most ranks stand alike
    for name in incident.nodes:
        node, kept = view.nodes.get(name), state.evidence.get(name)
        if node is None or kept is None:
            continue
        for one in kept.stacks(incident.after):
            hosted = one.rank is not None and view.ranks.get(one.rank) == name
            if hosted and one.threads and one.parent_pid is None and concerns_job(one, view.job, view.attempt):
                found.append((node.here(one.at, state.now), one.rank or 0, one))
    for at, rank, dump in sorted(found, key=lambda item: item[:2]):
        if stopped_at(incident) < at <= until:
            observed = Observation.from_dump(dump, rules)
            if observed.frames not in known:
                known[observed.frames] = pauses.seen((observed,), (), ())
            yield at, rank, observed, known[observed.frames]


def _in_words(words: str, busy: dict[int, Pause], read: int) -> str:
    found = {rank: one for rank, one in busy.items() if one.words == words}
    places = ", ".join(list(dict.fromkeys(one.where for one in found.values()))[:MOST_SHOWN])
    named = f"rank {next(iter(found))} was" if len(found) == 1 else f"ranks {ranges(sorted(found))} were"
    return f"{'every rank that was read was' if len(found) == read > 1 else named} {words}, {places}"
