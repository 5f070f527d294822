"""One step of the engine: an event in, instructions out, and no other effect.

An incident of a job:

                symptom                 all nodes have answered, or the bound has passed
    (none) ───────────────► round 1 ─────────────────────────────────► judging ──► published
                 │             ▲  stacks, recorders, logs: asked at once    │
                 │             └──── ten seconds after the first round ◄────┤  round 2: moving or frozen
                 │             └──── then after 1, 2, 3, 5, 10 … minutes ◄────┘
    same again: merged, judged again
                                       the job moves, a new attempt does, or it has ended ──► closed

A slowdown rests while its job stands still: an incident of that is opened beside it, and ends it where it shows a fault.
A round is a round of evidence (``looks`` in stored fields). Time is the receipt clock: ``now`` is an argument. Memory
(``observe_batch``) and decisions (``step``) are apart: after a restart the log is observed again and nothing is decided twice.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator

from msgspec.structs import replace

from analyzers.incidents import infrastructure, messages
from analyzers.incidents.awaited import hold_back, in_grace, is_awaited, is_fleet_awaited, take_due
from analyzers.incidents.closing import close_incident, end_slowdown
from analyzers.incidents.cuts import make_cut, request_judgement
from analyzers.incidents.detectors import OF_AN_END, find_symptoms
from analyzers.incidents.job_end import (
    died_again,
    stop_of,
    went_on_to_its_end,
    why_no_crash,
)
from analyzers.incidents.job_views import JobView, ended_because, has_restarted, recovered_because, stops_again
from analyzers.incidents.job_views.ending import BEFORE_SECONDS
from analyzers.incidents.job_views.pace_changes import LEAST_SECONDS
from analyzers.incidents.job_views.recovery import STANDS_STILL
from analyzers.incidents.job_views.standstills import OWN
from analyzers.incidents.memory import (
    context_records,
    drop_incident,
    forget_old,
    observe_batch,
    remember_declared,
    remember_incident,
    restore_incidents,
)
from analyzers.incidents.moving_again import weigh_judgement
from analyzers.incidents.recurrence import named_by, note_standstill, shown_by
from analyzers.incidents.restarts import READ_SECONDS, befell_before, counting, going_on, restarted_at, why_restarted
from analyzers.incidents.rounds import ask, looks_before_abstaining, waits_until
from analyzers.incidents.second_faults import folded, is_known, is_replaced, unknown
from analyzers.incidents.standing_claim import claim_of, contest_claims, remember_claim
from analyzers.incidents.state import FORGOTTEN_SECONDS, LOOKBACK_SECONDS, EngineState, JobKey
from analyzers.model.fault_classes import with_trait
from analyzers.model.incident import Incident, Symptom
from analyzers.model.verdict import Verdict, digest
from analyzers.verdict.gate import ROUNDS_AFTER_SECONDS
from collectors.records import CommandResult

TICK_SECONDS = 10.0
CHANGED_SECONDS = 1.0  # after new records of a job, until its detectors run again
SETTLE_SECONDS = 2.0  # after new evidence: related records are on their way
CRASH_HELD_SECONDS = 15.0  # after a death: an agent reads logs every five seconds, and they are judged too
CRASH_SETTLE_SECONDS = 4.0  # after the first death: further deaths and the logs follow
MOST_SYMPTOMS = 64  # of one incident


def step(
    state: EngineState, event: messages.EngineEvent, now: float
) -> tuple[EngineState, list[messages.EngineInstruction]]:
    """Apply an event; return the state, which is the same object, and the instructions."""
    state.now = max(state.now, now)
    if isinstance(event, messages.Received):
        observe_batch(state, event)
        return state, list(_answered(state, event))
    if isinstance(event, messages.EngineTick):
        return state, list(_tick(state, now))
    if isinstance(event, messages.Judged):
        return state, list(_judged(state, event, now))
    if isinstance(event, messages.Declared):
        remember_declared(state, event)
        return state, []
    if isinstance(event, messages.Ending):
        state.endings[event.job] = event
        return state, []
    drop_incident(state, event.incident)
    return state, []


def next_due_at(state: EngineState) -> float | None:
    """Return when a tick is needed before the ordinary one; None: it is not."""
    looks = [*state.held_back.values(), *([0.0] if state.changed else [])]
    instants = [max(min(looks), state.looked_at + CHANGED_SECONDS)] if looks else []
    for incident in state.incidents.values():
        if (
            incident.merged_into is not None
            or is_awaited(state, (incident.job or "", incident.attempt))
            or state.rests(incident)
        ):
            continue
        if incident.asked_at is not None:
            instants.append(waits_until(state, incident, incident.asked_at))
        if incident.cut is None:
            # While a round is open, the next one is not due.
            next_look_at = incident.next_look_at if incident.asked_at is None else None
            instants += [at for at in (incident.judge_at, next_look_at) if at is not None]
    return min(instants, default=None)


def _answered(state: EngineState, event: messages.Received) -> Iterator[messages.EngineInstruction]:
    """Judge as soon as all nodes have answered, and again when a node answers later."""
    results = {record.verb for record in event.records if isinstance(record, CommandResult)}
    if not results:
        return
    for id, waiting in list(state.waiting.items()):
        before = len(waiting)
        waiting.difference_update((event.node, verb) for verb in results)
        if len(waiting) == before or (incident := state.incidents.get(id)) is None:
            continue
        if incident.asked_at is None:
            state.unanswered[id] = len(waiting)
            remember_incident(state, replace(incident, judge_at=incident.judge_at or state.now + SETTLE_SECONDS))
        elif not waiting:
            state.unanswered[id] = 0
            remember_incident(state, replace(incident, asked_at=None, answered=incident.looks))
            if incident.merged_into is None and not _settling(incident):
                yield from _apart(state, "judge", id, _judge(state, id))


def _settling(incident: Incident) -> bool:
    """Whether a crash still unfolds: logs and further deaths come after the first answers."""
    return incident.judge_at is not None and _crashed(incident)


def _crashed(incident: Incident) -> bool:
    return any(symptom.kind == "crash" for symptom in incident.symptoms)


def _apart(
    state: EngineState, what: str, subject: str, decide: Iterator[messages.EngineInstruction]
) -> list[messages.EngineInstruction]:
    """Return the decisions on one job or incident. Where they fail it stays as it was, and the others' decisions go on."""
    incidents, contexts = dict(state.incidents), dict(state.contexts)
    try:
        return list(decide)
    except Exception as error:  # noqa: BLE001 - one job's odd record must not take the verdicts of all the others
        state.incidents, state.contexts = incidents, contexts
        state.note_failure(what, subject, error)
        return []


# --- time


def _tick(state: EngineState, now: float) -> Iterator[messages.EngineInstruction]:
    whole = now - state.ticked_at >= TICK_SECONDS
    if whole or now - state.looked_at >= CHANGED_SECONDS:
        due = take_due(state, now)
        keys = set(state.jobs) if whole else (state.changed | due) & set(state.jobs)
        state.changed = {key for key in keys if is_awaited(state, key)}
        state.looked_at = now
        attempts: dict[str, list[JobView]] = defaultdict(list)
        for view in state.jobs.values():
            attempts[view.job].append(view)
        for key in sorted(keys - state.changed, key=str):
            going = going_on(state.jobs[key], attempts[key[0]], state.declared_nodes(key[0]))
            look = _look_at(state, state.jobs[key], state.incident_of(key), going, now)
            yield from _apart(state, "examine", f"job {key[0]}", look)
    state.ticked_at = now if whole else state.ticked_at
    if whole and not is_fleet_awaited(state, state.jobs):
        yield from _apart(state, "examine", "the fleet", infrastructure.watch_fleet(state, now))
        forget_old(state, now)
    else:
        infrastructure.merge_incidents(state)
    for id, incident in list(state.incidents.items()):
        if incident.job is None or id not in state.incidents:
            continue
        if whole and not in_grace(state) and _unseen(state, incident, now):
            yield from close_incident(state, incident, now, f"nothing was reported of job {incident.job} for an hour")
        elif incident.merged_into is None and not is_awaited(state, (incident.job, incident.attempt)):
            yield from _apart(state, "go on with", id, _go_on(state, id, now))


def _unseen(state: EngineState, incident: Incident, now: float) -> bool:
    """Whether no node reports the job any more."""
    reported_at = state.reported_at.get((incident.job or "", incident.attempt), 0.0)
    return now > max(incident.opened_at, reported_at) + FORGOTTEN_SECONDS


def _look_at(
    state: EngineState, view: JobView, incident: Incident | None, attempts: list[JobView], now: float
) -> Iterator[messages.EngineInstruction]:
    """Run the detectors on a job: open, merge or close. ``attempts``: it, and those that go on from it."""
    key = (view.job, view.attempt)
    next_at = restarted_at(view, attempts)
    if incident is None and next_at is not None and now > next_at + READ_SECONDS:
        return
    since = state.settled.get(key, 0.0)
    ending = state.endings.get(view.job)
    since = since if incident is not None else max(since, befell_before(view))
    found = (one for one in find_symptoms(view, now) if _is_new(one, since, now))
    shown = [one for one in found if not _is_announced(view, ending, one, now)]
    if next_at is not None:
        shown = counting(view, shown, incident, next_at, now)
    hold_back(state, view, now)
    others = [one for one in shown if one.kind != "slow"]
    more = incident is not None and incident.kind == "slow" and bool(others)
    if incident is not None and (more or incident.kind != "slow"):
        shown = others
    if incident is not None and more and any(one.kind not in STANDS_STILL for one in others):
        yield from close_incident(state, incident, now, f"it is more than a slowdown: {others[0].text}")
        incident = None
    while view.broken:
        name, why = view.broken.popitem()
        state.note_failure(f"detect {name} in", f"job {view.job}", why)
    if incident is not None and (because := _over(view, incident, attempts, shown, now)):
        passed = recovered_because(view, incident, now) is not None or went_on_to_its_end(view, incident, now)
        recovered = passed and not has_restarted(view, incident)
        yield from close_incident(state, incident, now, because, recovered=recovered)
        state.changed.add(key)  # a symptom of the next run opens an incident of its own
        return
    for symptom in folded(shown) if incident is None or more else shown:
        incident = state.incident_of(key)
        if incident is None or (more and incident.kind == "slow"):  # which rests: after a pause it goes on
            yield from _open(state, key, symptom, now)
        elif stops_again(view, incident, symptom):
            yield from _stop_again(state, incident, symptom, now)
    if (incident := state.incident_of(key)) is None:
        return
    for symptom in unknown(view, incident, shown):
        yield from _merge(state, state.incidents[incident.id], symptom, now)
    if is_replaced(view, incident, now):
        remember_incident(state, replace(state.incidents[incident.id], judge_at=now, judged_at=now))


def _is_new(symptom: Symptom, since: float, now: float) -> bool:
    """Whether a symptom counts after what was settled at an instant. A slowdown that outlasts that goes on being one."""
    return symptom.at > since or (symptom.kind == "slow" and now > since + LEAST_SECONDS)


def _over(view: JobView, incident: Incident, attempts: list[JobView], shown: list[Symptom], now: float) -> str | None:
    """Say why an incident is over. A crash is judged first, however fast the job comes back.

    Deaths are reported at once, logs some seconds later. A job may crash during an incident of another kind.
    """
    if any(symptom.kind == "crash" and not is_known(view, incident, symptom) for symptom in shown):
        return None
    if (because := why_no_crash(view, incident, now) or died_again(view, incident, shown)) is not None:
        return because
    died_at = max((symptom.at for symptom in incident.symptoms if symptom.kind == "crash"), default=None)
    if died_at is not None and (now < died_at + CRASH_HELD_SECONDS or incident.cut is not None):
        return None
    if _crashed(incident) and not incident.published and now < incident.opened_at + ROUNDS_AFTER_SECONDS[2]:
        return None
    return why_restarted(view, attempts, crashed=_crashed(incident)) or ended_because(view, incident, now)


def _is_announced(view: JobView, ending: messages.Ending | None, symptom: Symptom, now: float) -> bool:
    """Whether a person has said that the job is being stopped. A hang that outlasts that is one, and so is a later run's."""
    if ending is None or symptom.kind not in OF_AN_END or symptom.at < ending.at - BEFORE_SECONDS:
        return False
    if view.has_begun_since(ending.at):
        return False
    return symptom.at <= ending.until if symptom.kind == "crash" else now <= ending.until


def _open(state: EngineState, key: JobKey, symptom: Symptom, now: float) -> Iterator[messages.EngineInstruction]:
    view = state.jobs[key]
    after = state.mark_before(now - LOOKBACK_SECONDS)
    nodes = tuple(sorted(view.nodes))
    incident = Incident(
        id=_name(key, symptom, state.sequence), kind=symptom.kind, job=key[0], attempt=key[1], opened_at=now,
        onset_at=min(symptom.at, now), symptoms=(symptom,), after=after, nodes=nodes, next_look_at=now,
        offsets=state.offsets(nodes), last_step=view.newest_step,
    )  # fmt: skip
    state.contexts[incident.id] = context_records(state, incident)
    remember_incident(state, incident)
    yield messages.Open(incident=incident, context=state.contexts[incident.id])
    yield from _go_on(state, incident.id, now)


def _merge(
    state: EngineState, incident: Incident, symptom: Symptom, now: float
) -> Iterator[messages.EngineInstruction]:
    if len(incident.symptoms) >= MOST_SYMPTOMS:
        return
    settle = CRASH_SETTLE_SECONDS if symptom.kind == "crash" else SETTLE_SECONDS
    again = any(one.subject == symptom.subject for one in incident.symptoms)  # of another instance: with stacks of now
    rested = again and incident.asked_at is None and now >= (incident.round_at or 0.0) + ROUNDS_AFTER_SECONDS[1]
    next_at = now if rested else incident.next_look_at
    changed = replace(incident, symptoms=(*incident.symptoms, symptom), judge_at=now + settle, next_look_at=next_at)
    remember_incident(state, changed)
    yield messages.Merge(incident=incident.id, symptom=symptom)


def _stop_again(
    state: EngineState, incident: Incident, symptom: Symptom, now: float
) -> Iterator[messages.EngineInstruction]:
    """Take up another stop of the job, which had moved again: it is reported, counted, and judged from a round of its own."""
    note_standstill(state, incident, symptom.at)  # the one before has ended
    changed = replace(
        incident, stops=(*incident.stops, symptom.at), last_step=state.jobs[incident.job or "", incident.attempt].newest_step,
        changes=0, abstains="", held_back="", doubted_at=None, next_look_at=now,
        shows="" if incident.shows in OWN else incident.shows,  # this stop may be something else
    )  # fmt: skip
    yield from _merge(state, changed, replace(symptom, text=f"stopped again: {symptom.text}"), now)


def _go_on(state: EngineState, id: str, now: float) -> Iterator[messages.EngineInstruction]:
    """Do what is due for an open incident: ask again, stop waiting, judge."""
    incident = state.incidents[id]
    if state.rests(incident):
        return
    if incident.asked_at is not None and now >= waits_until(state, incident, incident.asked_at):
        state.unanswered[id] = len(state.waiting.get(id, ()))
        incident = replace(incident, asked_at=None, answered=incident.looks, judge_at=now)
        remember_incident(state, incident)
    if incident.next_look_at is not None and now >= incident.next_look_at and incident.asked_at is None:
        yield from ask(state, incident, now)
        if _crashed(state.incidents[id]) and state.incidents[id].judge_at is None:
            remember_incident(state, replace(state.incidents[id], judge_at=now + CRASH_SETTLE_SECONDS))
        incident = state.incidents[id]
    if incident.judge_at is not None and now >= incident.judge_at:
        yield from _judge(state, id)


def _judge(state: EngineState, id: str) -> Iterator[messages.EngineInstruction]:
    incident = state.incidents[id]
    # One judgement at a time: the next sees the records that came meanwhile.
    if incident.cut is not None or state.rests(incident):
        remember_incident(state, replace(incident, judge_at=state.now + CHANGED_SECONDS))
        return
    remember_incident(state, replace(incident, cut=make_cut(state, incident), judge_at=None, judged_at=state.now))
    yield request_judgement(state, state.incidents[id])


def _judged(state: EngineState, event: messages.Judged, now: float) -> Iterator[messages.EngineInstruction]:
    """Publish a verdict that differs from the last one."""
    incident = state.incidents.get(event.incident)
    if incident is None:  # it was closed in the meantime
        return
    content = digest(event.verdict)
    early = event.cut.looks < looks_before_abstaining(incident) and _is_early(
        event.verdict, state.unanswered.get(incident.id, 0)
    )
    claim = claim_of(event.verdict, event.cut.at)
    incident, weighed = weigh_judgement(state, replace(incident, cut=None), event, claim)
    if weighed == "contest":
        incident = replace(contest_claims(incident, claim), judge_at=now)
    elif weighed == "publish":
        incident = replace(incident, shows=shown_by(event.verdict, incident.shows), named=named_by(event.verdict))
    # The word may have come during the judgement: then the incident closes with it.
    view = state.jobs.get((incident.job or "", incident.attempt))
    held = early or (not claim.outside and stop_of(view, incident, now) is not None)
    # An incident that an outage explains names no culprit.
    if weighed == "publish" and content != incident.digest and not held and incident.merged_into is None:
        incident = remember_claim(incident, claim)
        incident = replace(incident, digest=content, published=incident.published + 1)
        yield messages.Publish(
            incident=incident.id, version=incident.published, cut=event.cut, verdict=event.verdict, claims=event.claims
        )
        if incident.shows == "fault":
            yield from end_slowdown(state, incident, now)
    remember_incident(state, incident)
    if incident.merged_into is None:
        yield from _go_on(state, incident.id, now)


def _is_early(verdict: Verdict, unanswered: int) -> bool:
    """Whether the next round may change the verdict: it abstains, names a rank that has not answered, or lacks the stacks.

    Waits alone show who is waited for: what holds that rank shows in a stack that is asked for and has not come.
    """
    classes = {root.fault_class for root in verdict.roots}
    by_waits = any(root.cause == "machine" and set(root.families) == {"waits"} for root in verdict.roots)
    return verdict.abstained or (unanswered > 0 and (by_waits or bool(classes & with_trait("no_dump"))))


def _name(key: JobKey, symptom: Symptom, sequence: int) -> str:
    parts = f"{key[0]}\x00{key[1]}\x00{symptom.kind}\x00{sequence}"
    return "inc-" + hashlib.sha256(parts.encode()).hexdigest()[:12]


__all__ = ["next_due_at", "observe_batch", "remember_declared", "request_judgement", "restore_incidents", "step"]
