"""The engine's part in remediation: verdicts become proposals, approvals expire, outcomes are observed and learned from.

It reads the timeline from a cursor that is written together with its effects, so that a killed engine does everything once.
It runs after the engine's own turn: a failure is logged and counted. A timeline entry that fails is tried once more alone and
then left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from analyzers.incidents.state import EngineState
from analyzers.knowledge import Knowledge
from analyzers.model.verdict import TAKES_NODES
from analyzers.remediation.checkpoint_saves import LONGEST_SECONDS, SaveDetector
from analyzers.remediation.messages import Proposed, RemediationEvent, RemediationTick, Verified
from analyzers.remediation.plan import Costs
from analyzers.remediation.role_outcome import observe_role
from analyzers.remediation.types import CHECKS, CLAIMED, STOPS_NOTHING, WAITING, Policy, Remediation
from collectors.records import Record
from service import packaged_knowledge
from service.remediation import burn_in_watch, fleet_facts, outcomes, role_facts, rows
from service.remediation.job_history import needs_nothing
from service.remediation.proposals import asks, build_proposal, is_news, open_beside, ripe_incidents
from service.remediation.repository import RemediationRepository
from service.remediation.withdrawal import called_wrong, explain_withdrawal, overtaken, stands_back, unwanted
from service.store import incidents, timeline
from service.store.database import TRANSIENT_ERRORS, Database
from service.store.leases import Lease, LeaseLost
from service.store.models import Cursor, Feedback, Hold, Incident, Job, TimelineEntry
from service.store.upserts import upsert

READER, CLOCK = "remedies", "remedies_clock"  # cursors: in the timeline, and in time, in seconds
PERSON = "person_wanted"
BACK_SECONDS = 60.0  # an engine that starts looks this far back: the one before may have been killed meanwhile
DUE_SECONDS = 3_600.0  # an engine that stood for longer does not act on what it missed
READ_SECONDS, TICK_SECONDS = 0.5, 5.0
MOST_AT_ONCE = 256  # timeline entries

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ProposerCounts:
    """Counts since the process began; ``remediations``: those that have not ended."""

    proposals: int = 0
    remediations: int = 0
    failures: int = 0


class Proposer:
    """Proposes and follows the remediations of one engine, under its lease."""

    def __init__(
        self, database: Database, lease: Lease, knowledge: Knowledge, policy: Callable[[], Policy],
        counts: ProposerCounts,
    ) -> None:  # fmt: skip
        self._database, self._lease, self._counts = database, lease, counts
        self._repository = RemediationRepository(database, policy)
        self._costs, self._weights, self._saving = (
            Costs.from_knowledge(knowledge),
            packaged_knowledge.weights_of(knowledge),
            SaveDetector(knowledge),
        )
        self._role_rules = packaged_knowledge.role_rules_of(knowledge)
        self._read_at = self._ticked_at = self._watched_at = 0.0
        self._most = MOST_AT_ONCE
        self._back_seconds = BACK_SECONDS
        self._still_ripe: set[str] = set()  # incidents that failed for a passing reason

    def turn(self, state: EngineState, now: float) -> None:
        """Do what is due. Raise ``LeaseLost``; any other failure is logged and counted."""
        if abs(now - self._read_at) >= READ_SECONDS:
            self._read_at = now
            if self._fails(lambda: self._read_timeline(state, now)):
                self._fails(self._leave_out)
        if abs(now - self._ticked_at) >= TICK_SECONDS:
            self._ticked_at = now
            self._fails(lambda: self._ripen(state, now))
            self._fails(lambda: self._tick(state, now))
        if abs(now - self._watched_at) >= burn_in_watch.WATCH_SECONDS:
            self._watched_at = now
            self._fails(lambda: burn_in_watch.watch_nodes(self._database, self._lease, state, self._weights, now))

    def _fails(self, act: Callable[[], None]) -> bool:
        """Whether this failed for a lasting reason; a passing failure of the database is tried again later."""
        try:
            act()
        except LeaseLost:
            raise
        except TRANSIENT_ERRORS as error:
            _log.warning("remedies_wait reason=%s", str(error.__cause__ or error).partition("\n")[0])
        except Exception:  # noqa: BLE001 - verdicts must go on even if remediation fails
            _log.exception("remedies_failed")
            self._counts.failures += 1
            return True
        return False

    # --- the timeline

    def _read_timeline(self, state: EngineState, now: float) -> None:
        """Handle the new timeline entries, all together; after a failure one by one."""
        with self._database.session() as session:
            place = session.get(Cursor, READER)
            if place is None:
                after = (
                    session.scalar(select(func.max(TimelineEntry.sequence))) or 0
                )  # older entries lead to no proposal
                found: Sequence[TimelineEntry] = []
            else:
                after = place.sequence
                newer = select(TimelineEntry).where(TimelineEntry.sequence > after).order_by(TimelineEntry.sequence)
                found = session.scalars(newer.limit(self._most)).all()
            events = self._proposals(session, found, now)
            people = _people(session, events)
        if not found and place is not None:
            self._most = MOST_AT_ONCE
            return
        concerned = {event.plan.job for event in events if event.plan is not None}
        with self._database.transaction() as session:
            self._lease.prove(session)
            _lock_incidents(session, people)
            self._learn(session, found, now)
            self._note_saving(session, state, concerned, now)
            upsert(session, Cursor, [{"reader": READER, "sequence": found[-1].sequence if found else after}])
            self._repository.all_within(session, events, now)
            _call_people(session, people, now)
        self._most = min(MOST_AT_ONCE, self._most * 2)  # after an entry was left out, twice as many each time
        self._counts.proposals += sum(event.plan is not None for event in events)

    def _leave_out(self) -> None:
        """After a failure, go on with one entry at a time; an entry that fails alone is not tried again."""
        if self._most > 1:
            self._most = 1
            return
        with self._database.transaction() as session:
            self._lease.prove(session)
            place = session.get(Cursor, READER)
            after = place.sequence if place is not None else 0
            broken = session.scalar(select(func.min(TimelineEntry.sequence)).where(TimelineEntry.sequence > after))
            if broken is not None:
                upsert(session, Cursor, [{"reader": READER, "sequence": broken}])
                _log.error("happening_left_out sequence=%d", broken)

    def _proposals(self, session: Session, found: Sequence[TimelineEntry], now: float) -> list[Proposed]:
        """Return the proposals that verdicts, feedback, ends and findings lead to, for each incident as it is now."""
        asked = dict.fromkeys(one.incident for one in found if one.incident is not None and asks(one))
        asked |= dict.fromkeys(open_beside(session, found))
        has_news = {one.incident for one in found if is_news(one)}
        over = {one.incident for one in found if one.kind == "closed" and needs_nothing(one)}
        return [
            proposed
            for id in asked
            if (incident := session.get(Incident, id)) is not None
            and (proposed := self._proposed(session, incident, now, over=id in over, has_news=id in has_news))
            is not None
        ]

    def _proposed(
        self, session: Session, incident: Incident, now: float, *, over: bool = False, has_news: bool = True
    ) -> Proposed | None:
        if incident.closed_at is not None:
            why = _acquitted(session, incident)
            why = why or called_wrong(session, incident)
            if over or why:
                return Proposed(incident=incident.id, plan=None, why=why or incident.closed_because)
            if not has_news or _is_past(session, incident):
                return None
        if incident.merged_into is not None:
            return Proposed(incident=incident.id, plan=None, why=f"{incident.merged_into} explains it")
        if not incident.verdict_version:
            return None
        if (stopped := _stopped_by(session, incident)) is not None:
            why = f"{stopped.id} has stopped attempt {incident.attempt}: what that shows at its end is no new trouble"
            return Proposed(incident=incident.id, plan=None, why=why)
        if why := called_wrong(session, incident):
            return Proposed(incident=incident.id, plan=None, why=why)
        built = build_proposal(session, incident, self._costs, self._weights, self._role_rules, now)
        if built.plan is not None and (
            why := overtaken(session, built.plan)
            or stands_back(session, built.plan)
            or explain_withdrawal(session, built.plan, incident, now)
        ):
            return Proposed(incident=incident.id, plan=None, why=why)
        return built

    def _learn(self, session: Session, found: Iterable[TimelineEntry], now: float) -> None:
        """Record what shadow mode would have done, the outcome, and what both show about the nodes."""
        for one in found:
            if one.kind == "closed" and one.incident is not None:
                because = str(one.details.get("because", ""))
                outcomes.close_cases(
                    session, one.incident, one.at, because, recovered=bool(one.details.get("recovered"))
                )
            elif one.kind == "feedback":
                row = session.get(Feedback, one.details.get("feedback"))
                if row is not None:
                    outcomes.apply_feedback(session, row)
            elif one.kind.startswith("remediation_"):
                self._learn_of(session, one, now)

    def _learn_of(self, session: Session, one: TimelineEntry, now: float) -> None:
        about = rows.read_one(session, str(one.details.get("remediation")))
        if about is None:
            return
        if one.kind == "remediation_would_act" or (one.kind == "remediation_approved" and about.mode == "automatic"):
            outcomes.note_case(session, about, now)
        elif one.kind == "remediation_verified":
            cures = self._costs.cured_by_restart(about.fault_class)
            outcomes.record_trials(session, about, one.at, self._weights, cures)
            outcomes.settle_cases(session, about)
        elif one.kind == "remediation_failed":  # nodes may be out: that is recorded, and proves nothing about them
            cures = self._costs.cured_by_restart(about.fault_class)
            outcomes.record_trials(session, about, one.at, self._weights, cures)
        elif one.kind == "remediation_completed" and about.kind == "probe":
            outcomes.record_checks(session, about, one.at, self._weights)
        elif one.kind == "remediation_undone":
            outcomes.record_return(session, about, one.at, self._weights)

    # --- time

    def _ripen(self, state: EngineState, now: float) -> None:
        """Propose what becomes due with time: no suspect is named, and the job has stood still for long."""
        with self._database.session() as session:
            place = session.get(Cursor, CLOCK)
            after = now if place is None else max(min(place.sequence, now) - self._back_seconds, now - DUE_SECONDS)
            ripe = {one.id for one in ripe_incidents(session, after, now, self._weights.ladder)} | self._still_ripe
            if place is not None and not ripe:
                return
        with self._database.transaction() as session:  # the cursor first: a failing proposal is not tried forever
            self._lease.prove(session)
            upsert(session, Cursor, [{"reader": CLOCK, "sequence": int(now)}])
        self._back_seconds, self._still_ripe = 0.0, set()
        for id in sorted(ripe):
            self._fails(partial(self._try_ripe, state, id, now))

    def _try_ripe(self, state: EngineState, incident_id: str, now: float) -> None:
        """Propose for one incident; after a passing failure it is tried again at the next tick."""
        try:
            self._ripe(state, incident_id, now)
        except TRANSIENT_ERRORS:
            self._still_ripe.add(incident_id)
            raise

    def _ripe(self, state: EngineState, incident_id: str, now: float) -> None:
        """Propose for one incident, where nothing is proposed or done for it yet."""
        with self._database.session() as session:
            incident = session.get(Incident, incident_id)
            if incident is None or any(one.incident == incident_id for one in rows.read_live(session).values()):
                return
            proposed = self._proposed(session, incident, now)
        if proposed is None:
            return
        with self._database.transaction() as session:
            self._lease.prove(session)
            _lock_incidents(session, people := _people(session, [proposed]))
            if proposed.plan is not None:
                self._note_saving(session, state, {proposed.plan.job}, now)
            self._repository.all_within(session, [proposed], now)
            _call_people(session, people, now)
        self._counts.proposals += proposed.plan is not None

    def _tick(self, state: EngineState, now: float) -> None:
        """Expire what is due, observe outcomes, and note which jobs save a checkpoint."""
        with self._database.session() as session:
            live = rows.read_live(session)
            self._counts.remediations = len(live)
            saving = set(session.scalars(select(Job.name).where(Job.saving_since.is_not(None))))
            if not live and not saving and session.scalar(select(Hold.id).limit(1)) is None:
                return
            events: list[RemediationEvent] = [
                *self._outcomes(session, state, live.values(), now),
                *unwanted(session, live.values(), now),
            ]
        waiting = {one.job for one in live.values() if one.status in WAITING | CLAIMED}
        with self._database.transaction() as session:
            self._lease.prove(session)
            self._note_saving(session, state, waiting | saving, now)
            self._repository.all_within(session, [*events, RemediationTick()], now)

    def _outcomes(
        self, session: Session, state: EngineState, live: Iterable[Remediation], now: float
    ) -> Iterator[Verified]:
        for one in live:
            if one.status != "verifying":
                continue
            if one.role_restart is not None and one.role_restart.epochs:
                facts = role_facts.read_role_facts(session, one.job, self._role_rules)
                at, incident = one.completed_at or one.changed_at, session.get(Incident, one.incident)
                troubled = incident is not None and incident.closed_at is None
                if seen := observe_role(one.role or "", one.role_restart, facts, at, now, troubled=troubled):
                    yield Verified(id=one.id, outcome=seen[0], why=seen[1])
                continue
            since = (Incident.job == one.job, Incident.opened_at >= (one.began_at or one.changed_at))
            shown = session.scalars(select(Incident).where(*since).order_by(Incident.opened_at)).all()
            if (seen := outcomes.observe_outcome(state, one, list(shown))) is not None:
                yield Verified(id=one.id, outcome=seen[0], why=seen[1])

    def _note_saving(self, session: Session, state: EngineState, jobs: Iterable[str], now: float) -> None:
        """Write since when these jobs save a checkpoint; the end of a save is when the newest checkpoint was made.

        A save in which the job began to hang has made none, and does not count in the usual time of a save.
        """
        for name in sorted(jobs):
            row = session.get(Job, name)
            if row is None:
                continue
            since = self._saves_since(state, name, now)
            began = None if row.saving_since is None else min(row.saving_since, now)
            values: dict[str, float | None] = {"saving_since": since if began is None else began}
            if began is not None and since is None:
                values = {"saving_since": None}
                if not _hung_since(session, name, began):
                    took = min(now - began, LONGEST_SECONDS)
                    usual = took if row.save_seconds is None else (took + row.save_seconds) / 2
                    values |= {"last_checkpoint_at": now, "save_seconds": usual}
            if any(getattr(row, key) != value for key, value in values.items()):
                session.execute(update(Job).where(Job.name == name).values(values))

    def _saves_since(self, state: EngineState, job: str, now: float) -> float | None:
        """Return since when a job saves; each node's records are compared with its own clock, which may be wrong."""
        found = []
        for node in sorted({node for view in state.jobs.values() if view.job == job for node in view.nodes}):
            ahead = state.nodes[node].offset if node in state.nodes else 0.0
            if (since := self._saving.since(_records_of(state, node, job), now + ahead)) is not None:
                found.append(since - ahead)
        return max(found, default=None)


def _people(session: Session, events: Iterable[RemediationEvent]) -> list[tuple[str, str | None, str]]:
    """Return the incidents that need a person, each with its job and the reason: once for the same reason."""
    found = []
    for one in events:
        if isinstance(one, Proposed) and one.person and (incident := session.get(Incident, one.incident)) is not None:
            calls = select(TimelineEntry).where(TimelineEntry.incident == incident.id, TimelineEntry.kind == PERSON)
            newest = session.scalars(calls.order_by(TimelineEntry.sequence.desc()).limit(1)).first()
            if newest is None or newest.details.get("why") != one.why:
                found.append((incident.id, incident.job, one.why))
    return found


def _lock_incidents(session: Session, people: Iterable[tuple[str, str | None, str]]) -> None:
    """Lock the incidents before the timeline, in the same order as the code that closes an incident."""
    ids = sorted(incident for incident, _, _ in people)
    if ids:
        held = select(Incident.id).where(Incident.id.in_(ids)).order_by(Incident.id)
        session.scalars(held.with_for_update(read=True, key_share=True)).all()


def _call_people(session: Session, people: Iterable[tuple[str, str | None, str]], now: float) -> None:
    """Write the entries that call a person, at the end of the transaction."""
    for incident, job, why in people:
        timeline.add(session, now, PERSON, incident, job, {"why": why})


def _is_past(session: Session, incident: Incident) -> bool:
    """Whether a closed incident needs nothing more: a later attempt runs, or something is proposed or done for it."""
    later = fleet_facts.later_attempt(session, incident.job or "", (incident.attempt or 0, incident.nodes))
    return later is not None or any(one.incident == incident.id for one in rows.read_live(session).values())


def _acquitted(session: Session, incident: Incident) -> str:
    """Say that a person has rejected the verdict behind a waiting remediation; empty: no person has."""
    takes = [one for one in rows.read_live(session).values() if one.incident == incident.id and one.kind in TAKES_NODES]
    waiting = {node for one in takes for node in one.nodes}
    wrong = sorted(incidents.acquitted(session, incident.id) & waiting)
    return f"a person has said that it was wrong to take {', '.join(wrong)} out" if wrong else ""


def _stopped_by(session: Session, incident: Incident) -> Remediation | None:
    """Return the remediation that ended the attempt of an incident, while its outcome is unknown."""
    for one in rows.read_under_way(session, incident.job or ""):
        if one.kind in STOPS_NOTHING | CHECKS:
            continue
        if one.attempt is None or incident.attempt is None or incident.attempt <= one.attempt:
            return one
    return None


def _hung_since(session: Session, job: str, since: float) -> bool:
    """Whether a job has begun to hang since then."""
    began = select(Incident.id).where(Incident.job == job, Incident.kind == "hang", Incident.onset_at >= since)
    return session.scalar(began.limit(1)) is not None


def _records_of(state: EngineState, node: str, job: str) -> Iterator[Record]:
    """Yield the recent records of a node that concern a job."""
    if (evidence := state.evidence.get(node)) is not None:
        yield from (record for _, _, record in evidence.since(0) if record.job in (None, job))
