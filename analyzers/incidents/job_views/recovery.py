"""Whether an incident is over: the job moves again, a new attempt does, or the job has ended.

Steps decide where the job reports them. Elsewhere any other witness that says that it lives is enough; one that was not read says
nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import zip_longest

from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.loss_anomalies import GOOD_AGAIN
from analyzers.incidents.job_views.role_stalls import rules_of, stalls_of
from analyzers.incidents.job_views.witnesses import UNREAD_SECONDS
from analyzers.model.incident import Incident, Symptom

SETTLED_SECONDS = {"crash": 30.0, "hardware": 60.0}
"""A job that goes on without a dead rank, or with a faulty device, gets its verdict before its incident ends."""
UNSEEN_SECONDS = 60.0
UNHEARD_SECONDS = 60.0  # without the reporters of steps, while other nodes report: then the other witnesses count
RUNS_SECONDS = 20.0  # that a process which was stopped must have run since
LOOK_SECONDS = 10.0  # between two readings of the processes and counters of a node
STIRRING_SECONDS = 60.0  # in which a first sign must be followed by steps, or by what closes the incident
FORGOTTEN_PACE_SECONDS = 1_800.0
STANDS_STILL = frozenset({"hang", "silence"})  # kinds of incidents that are over when the job moves


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
    if found := found_again(view, incident):
        return found
    if incident.kind == "slow":
        return _as_fast_again(view, incident, now)
    detectors = {symptom.detector for symptom in incident.symptoms}
    if "rank_stopped" in detectors and view.processes.held:
        return None
    if "role_stalled" in detectors and stalls_of(view):
        return None  # the others may go on without it
    if detectors == {"role_stalled"}:
        return "no role holds the job up any more" if now > incident.opened_at + RUNS_SECONDS else None
    if detectors == {"rank_stopped"} and (ran := _runs_again(view, incident)):
        return ran
    since = max(incident.opened_at, stopped_at(incident))
    if view.newest_step is None or view.traffic.until - view.progress.until > UNHEARD_SECONDS:
        settled = now >= incident.opened_at + SETTLED_SECONDS.get(incident.kind, 0.0)
        return _lives(view, incident) if settled and not view.processes.held else None
    step, at = view.newest_step, view.newest_step_at
    if step is None or at is None or at <= since:
        return None
    if now < incident.opened_at + SETTLED_SECONDS.get(incident.kind, 0.0):
        return None
    steps = view.rhythm.count_after(since)
    if incident.kind == "numeric":
        good = steps >= GOOD_AGAIN and view.progress.trouble() is None
        return f"loss and gradient norm are as before at step {step:,}" if good else None
    if (incident.last_step is None or step < incident.last_step + 2) and steps < 2:  # a counter may begin anew
        return None
    stood = any(one.kind in STANDS_STILL and one.detector != "role_stalled" for one in incident.symptoms)
    return f"the job {'moves again' if stood else 'goes on'}: it has done step {step:,}"


def _as_fast_again(view: JobView, incident: Incident, now: float) -> str | None:
    """Say that a slow job's steps take as long as before, or that what they took before says nothing any more."""
    if view.progress.slowdown is not None:
        return None
    if (over := view.progress.slowdown_after(incident.onset_at)) is not None:
        if over.adopted:
            hours = ((over.until or over.since) - over.since) / 3600.0
            return f"a step has taken {over.seconds:.3g} s for {hours:.0f} hours: that is the job's pace now"
        return f"a step takes as long as before again: {over.before_seconds:.3g} s"
    if view.progress.forgotten_at > incident.onset_at:
        return "another run, or another version of the code, has begun: its steps are not compared with those before"
    if now > incident.opened_at + FORGOTTEN_PACE_SECONDS:  # an engine that ended before it could write it down knew it
        return "what the job's steps took before is not known any more"
    return None


def found_again(view: JobView, incident: Incident) -> str | None:
    """Say that the processes whose ends no agent saw were read again: they never ended; None: one ended, or was replaced."""
    if {symptom.detector for symptom in incident.symptoms} != {"rank_dead"} or has_restarted(view, incident):
        return None
    numbers = {
        view.numbering.number(role or None, rank)
        for symptom in incident.symptoms
        for rank, role in zip_longest(symptom.ranks, symptom.roles)
    }
    found = [view.processes.by_rank.get(number) for number in sorted(numbers - set(view.ended))]
    read_again = [one is not None and (one.seen_at or 0.0) > incident.onset_at for one in found]
    if not numbers or len(found) < len(numbers) or not all(read_again):
        return None
    return f"the process of {'a rank' if len(found) == 1 else f'{len(found)} ranks'} was found again: it had not ended"


def _lives(view: JobView, incident: Incident) -> str | None:
    """Say which witness beside the steps shows that the job goes on since the incident was opened."""
    since = max(incident.opened_at, stopped_at(incident))
    waits = view.waits
    if waits.moved_at > since and waits.looked_at - waits.moved_at < waits.moved_at - since:
        return "the job moves again: its ranks enter and leave operations"
    if waits.changed_at > since and not any(one.behind for one in waits.communicators.values()):
        return "the job moves again: NCCL's counts go on"
    paces = view.traffic.paces  # a port carries other jobs' bytes too: what never fell says nothing of a hang's end
    if paces.came_back(incident.onset_at, since) if incident.kind == "hang" else paces.goes_on(since):
        return "the job moves again: its connections carry as much as before"
    found = view.witnesses.back(incident.onset_at, since)
    return None if found is None else f"the job moves again: {found}"


def _runs_again(view: JobView, incident: Incident) -> str | None:
    """Say that no process is stopped any more, and the steps are not late; None: one is, or they are."""
    ranks = sorted({rank for symptom in incident.symptoms for rank in symptom.ranks})
    found = [view.processes.by_rank.get(rank) for rank in ranks]
    seen = [process for process in found if process is not None and process.seen_at is not None]
    if len(seen) < len(ranks) or view.processes.held or any(rank in view.ended for rank in ranks):
        return None
    ran_since = max((one.until or 0.0 for one in view.progress.standstills if one.of_process), default=0.0)
    late = view.newest_step is not None and view.progress.silent_seconds > allowed_silence_seconds(view)
    if late or min(process.seen_at or 0.0 for process in seen) < max(ran_since, incident.onset_at) + RUNS_SECONDS:
        return None
    named = f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"
    return f"the process of {named} runs again"


def stopped_at(incident: Incident) -> float:
    """Return when the job stopped, the last time where it moved in between."""
    return incident.stops[-1] if incident.stops else incident.onset_at


def stops_again(view: JobView, incident: Incident, symptom: Symptom) -> bool:
    """Whether a symptom is of another stop than the incident's newest: the job moved in between, which did not close it."""
    last = stopped_at(incident)
    kinds = {incident.kind, symptom.kind}
    if not kinds <= STANDS_STILL or symptom.at <= max(last, incident.opened_at):
        return False
    alone = bool(symptom.roles) and all(map(rules_of(view).works_alone, symptom.roles))
    if alone or symptom.detector == "role_stalled":  # of a role: the job may not have stopped even once
        return False
    if any(one.since <= last + LOOK_SECONDS for one in view.processes.held.values()):
        return False
    if view.newest_step_at is not None:
        return view.newest_step_at > last
    return symptom.at > last + LOOK_SECONDS


def moved_again_at(view: JobView, incident: Incident, now: float) -> float | None:
    """Return since when a job that stood still may be moving again, by its steps or else by the first sign; None: it stands.

    A single reading of a single witness is enough, and it may be wrong: what no step follows within a minute is no sign.
    """
    kinds = {incident.kind, *(symptom.kind for symptom in incident.symptoms)}
    if not kinds <= STANDS_STILL or view.processes.held:
        return None
    if any(symptom.detector == "role_stalled" for symptom in incident.symptoms) and stalls_of(view):
        return None
    last, step_at = stopped_at(incident), view.newest_step_at
    if step_at is not None and step_at > last:
        if view.progress.silent_seconds > allowed_silence_seconds(view):
            return None
        first_at = next((row.at for row in view.rhythm.rows if row.at > last), step_at)
        return max(last, first_at - (view.rhythm.median_seconds() or 0.0))
    return min((at for at in _signs(view, last) if now - at <= STIRRING_SECONDS), default=None)


def _signs(view: JobView, last: float) -> Iterator[float]:
    """Yield since when each witness beside the steps may say that the job moves."""
    for one in view.progress.standstills:
        if one.of_process and one.until is not None and one.until > last:
            yield max(last, one.until - LOOK_SECONDS)  # it was found running then, and continued before
    for rank, end in view.ended.items():
        process = view.processes.by_rank.get(rank)
        held = None if process is None or not end.well else process.stopped
        if held is not None and held.until > last:
            yield held.until  # a process that is stopped does not end well: it was continued before
    for moved_at in (view.waits.moved_at, view.waits.changed_at) if view.newest_step is None else ():
        if moved_at > last + LOOK_SECONDS:
            yield moved_at - LOOK_SECONDS
    others = view.witnesses
    for paces in (view.traffic.paces, others.switches, others.cpu, others.gpu):
        if (back_at := paces.back_at(last)) is not None:
            yield back_at


def witnessed_until(view: JobView, now: float) -> float:
    """Return up to when every node's processes, and the steps, were read; infinity where no agent reads any."""
    read = [node.states_at for node in view.nodes.values() if node.states_at is not None]
    fresh = [at for at in read if now - at <= UNREAD_SECONDS]
    if view.newest_step is not None and now - view.progress.until <= UNREAD_SECONDS:
        fresh.append(view.progress.until)
    return min(fresh, default=math.inf)


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
    # Of nodes without an agent: their ranks end with the others, or soon.
    unseen = (view.world_size or 0) > len(view.ranks)
    if unseen and now < max(end.at for end in view.ended.values()) + UNSEEN_SECONDS:
        return None
    ways = Counter(end.how() for end in view.ended.values()).most_common(3)
    listed = ", ".join(f"{count:,} {way}" for way, count in ways)
    return f"all {len(view.ended):,} processes that were seen of the job have ended: {listed}"
