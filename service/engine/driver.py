"""The engine at work: it reads the log, lets time pass, and writes each decision together with its place in the log.

One thread does all of it, because it forks. A decision stays in memory until it is written: while the database is unreachable
nothing new is read and nothing is lost. An engine that lost its lease forgets everything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from msgspec.structs import replace
from sqlalchemy.orm import Session

from analyzers.incidents.downtime import Downtime, begin_downtime, update_downtimes
from analyzers.incidents.messages import Close, EngineEvent, EngineTick, Judge, Judged, Open, Withdrawn
from analyzers.incidents.state import LIMITS, EvidenceLimits, Failure
from analyzers.incidents.step import TICK_SECONDS, next_due_at, step
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident
from service.clock import now
from service.engine import learned
from service.engine.judge_processes import JudgeFailure, JudgeProcesses
from service.engine.learned import Learned
from service.engine.numbers import Numbers
from service.engine.resume import received_event, resume_engine
from service.engine.writer import Decision, IncidentUpdate, TimelineNote, Writer
from service.store import declarations, endings, incidents
from service.store.database import Database
from service.store.leases import RENEW_SECONDS, Lease
from service.store.log import Log, Stored, sane
from service.store.models import Cursor
from service.store.upserts import upsert

TURN_BATCHES = 256
BEHIND_SECONDS = 5.0  # age of the newest batch that was read; past it, time is the log's and not the clock's
BACK_SECONDS = 60.0  # by which the clock may go back; after a larger step back nothing would be due for that long
GAP_SECONDS = (
    30.0  # of which nothing was seen: the service was away, the clock was set forward, or the machine was suspended
)
LEAST_TICK_SECONDS = 0.25  # between two ticks, whatever is due
MOST_DETAIL = 200
MOST_REPORTED = 1_024  # failures that are not logged again
WRITES = "engine_writes"  # row of the cursors: the number of transactions so far

_log = logging.getLogger(__name__)


class ClockWentBack(Exception):
    """The engine's memory is dated in the future: it resumes from the store, by the new clock."""


class Driver:
    """One engine under one lease, from its resuming until the lease is lost."""

    def __init__(
        self, database: Database, lease: Lease, knowledge: Knowledge, judges: JudgeProcesses, numbers: Numbers,
        clock: Callable[[], float] = now, limits: EvidenceLimits = LIMITS,
    ) -> None:  # fmt: skip
        self._database, self._lease, self._judges, self._clock = database, lease, judges, clock
        self._log = Log(database)
        self.numbers = numbers
        self._proved_at = self._looked_at = clock()
        self._todo: list[Decision] = []  # decided and not yet written
        self._asked: list[Judge] = []  # to be judged once that is written
        resumed = resume_engine(database, knowledge, clock(), self._keep_lease, limits)
        self.state, self.sequence, self._downtimes = resumed.state, resumed.sequence, resumed.downtimes
        self._changed_downtimes: dict[str, Downtime] = {}
        with database.session() as session:
            self._writes = _writes(session)
        self._unsure = False  # whether the last transaction may have been committed
        self._stored = dict(self.state.incidents)  # as the table has them
        self._ticked_at = 0.0
        self._came_to = self.state.marks[-1][0] if self.state.marks else clock()
        self._caught_up = False
        self._learned, self._learned_rows = Learned(), list[dict[str, Any]]()
        self._reported: dict[Failure, None] = {}
        self.busy = False  # the last turn found batches

    def turn(self) -> bool:
        """Read, decide and write once; return whether more batches are waiting.

        Raise ``LeaseLost``, ``ClockWentBack``, or an error of the database.
        """
        self._write()  # the rest of a turn that the database interrupted
        at = self._clock()
        batches = [sane(stored, at) for stored in self._log.read_from(self.sequence, TURN_BATCHES)]
        if at < self.state.now - BACK_SECONDS:
            raise ClockWentBack(f"the clock shows {self.state.now - at:.0f} s less than before")
        self.busy = bool(batches)
        self._caught_up = not batches or at - batches[-1].received_at < BEHIND_SECONDS
        self.numbers.lag_seconds = max(0.0, at - batches[0].received_at) if batches else 0.0
        for stored in batches:
            self._keep_lease()
            self._take(stored)
        for ended in self._judges.turn():
            self._take_judgement(ended)
        if self._caught_up:
            self._pass_to(at := self._clock())
            self._tick(at)
        self._write()
        self._count()
        return bool(batches) and not (self._caught_up and len(batches) < TURN_BATCHES)

    # --- events

    def _take(self, stored: Stored) -> None:
        """Step with a batch; while the engine is behind, time is the batches' time of receipt."""
        self._pass_to(stored.received_at)
        event = received_event(stored)
        self.numbers.undecodable_batches += event.unreadable < 0
        self._step(event, stored.received_at)
        self.numbers.batches += 1
        self.sequence = stored.sequence
        if not self._caught_up:
            self._tick(stored.received_at)

    def _pass_to(self, at: float) -> None:
        """Note that time has come to an instant; after a gap no job is decided on until its agents could report."""
        if at - self._came_to > GAP_SECONDS:
            self.state.back_at = at
        self._came_to = at

    def _tick(self, at: float) -> None:
        next_due = next_due_at(self.state)
        whole = at - self.state.ticked_at >= TICK_SECONDS
        early = next_due is not None and next_due <= at and at - self._ticked_at >= LEAST_TICK_SECONDS
        if not whole and not early:
            return
        began = time.perf_counter()
        self._step(EngineTick(), at)
        if whole:
            # A tick that fails must not be due again at once.
            self.state.ticked_at = max(self.state.ticked_at, at)
            for downtime in update_downtimes(self._downtimes.values(), self.state.jobs.values()):
                self._changed_downtimes[downtime.incident] = downtime
        learned = self._learned.due if whole else self._learned.due_of_new
        self._learned_rows += learned(self.state, at)
        self._ticked_at = at
        seconds = time.perf_counter() - began
        self.numbers.ticks += 1
        self.numbers.tick_seconds += seconds
        self.numbers.longest_tick_seconds = max(self.numbers.longest_tick_seconds, seconds)

    def _take_judgement(self, ended: Judged | JudgeFailure) -> None:
        """Step with the result of a judgement. While the engine is behind, its time is the log's."""
        at = self._clock() if self._caught_up else self.state.now
        incident = self.state.incidents.get(ended.incident)
        if incident is None:  # it was closed meanwhile
            return
        if isinstance(ended, JudgeFailure):
            details: dict[str, Any] = {"analyzer": ended.analyzer, "why": ended.why[:MOST_DETAIL]}
            self._todo.append(Decision(at, TimelineNote("judge_failed", ended.incident, incident.job, details)))
            self.numbers.judge_failures += 1
            return
        details = {"looks": ended.cut.looks, "through": ended.cut.through, "unfinished": list(ended.cut.unfinished)}
        self._todo.append(Decision(at, TimelineNote("judged", ended.incident, incident.job, details)))
        self._step(ended, at)

    def _step(self, event: EngineEvent, at: float) -> None:
        """Let the engine decide; an event on which it fails is left out, logged and counted."""
        incidents_before, contexts_before = dict(self.state.incidents), dict(self.state.contexts)
        try:
            _state, decided = step(self.state, event, at)
        except Exception:  # noqa: BLE001 - one job's odd record must not take the verdicts of all the others
            _log.exception("step_failed event=%s sequence=%d", type(event).__name__, self.sequence)
            self.numbers.step_failures += 1
            # Decisions from before the failure are lost, so the state must not show them as done.
            self.state.incidents, self.state.contexts = incidents_before, contexts_before
            if isinstance(event, Judged):  # else the engine would wait for this judgement and start no other
                incident = self.state.incidents[event.incident]
                self.state.incidents[event.incident] = replace(incident, cut=None)
            return
        if self.state.failures:
            self._report_failures()
        self._todo += [Decision(at, instruction) for instruction in decided]
        self._asked += [instruction for instruction in decided if isinstance(instruction, Judge)]

    def _report_failures(self) -> None:
        """Log what the engine left out, each once until it is left out no more."""
        new = {failure: None for failure in self.state.failures if failure not in self._reported}
        for failure in new:
            _log.error("left_out what=%r of=%r why=%r", failure.what, failure.subject, failure.why)
        self._reported = dict(islice({**new, **self._reported}.items(), MOST_REPORTED))
        self.state.failures.clear()

    # --- writing

    def _write(self) -> None:
        """Write the decisions, the place in the log and the proof of the lease in one transaction; then start judgements."""
        at = self._clock()
        saved = list(self._changed_incidents())
        if (
            not (self._todo or saved or self._changed_downtimes or self._learned_rows)
            and at - self._proved_at < RENEW_SECONDS
        ):
            return
        looking = at - self._looked_at >= RENEW_SECONDS
        if self._unsure and self._was_committed():
            self._written()
            return
        self._unsure = True
        with self._database.transaction() as session:
            self._lease.prove(session)
            places = {incidents.READER: self.sequence, WRITES: self._writes + 1}
            upsert(session, Cursor, [{"reader": name, "sequence": place} for name, place in places.items()])
            writer = Writer(session, at, {incident.id: incident.job for incident in self._stored.values()})
            writer.write([*self._todo, *saved], self._changed_downtimes.values())
            learned.write(session, self._learned_rows)
            withdrawn = incidents.closed_among(session, list(self.state.incidents)) if looking else []
            known, running = self.state.declared, self.state.hosting
            declared: list[EngineEvent] = list(declarations.changed(session, known, at, running)) if looking else []
            declared += endings.changed(session, self.state.endings, at) if looking else []
        self._proved_at = at
        self._looked_at = at if looking else self._looked_at
        self.numbers.write_failures += writer.failed
        self._written()
        for incident in withdrawn:
            self._step(Withdrawn(incident=incident), self.state.now)
        for rank_map in declared:
            self._step(rank_map, self.state.now)

    def _changed_incidents(self) -> Iterator[Decision]:
        """Yield the incidents that differ from their rows, each after its timeline entries."""
        opened = {done.what.incident.id for done in self._todo if isinstance(done.what, Open)}
        for id, incident in self.state.incidents.items():
            before = self._stored.get(id)
            if before is incident:
                continue
            yield from self._timeline_notes(before, incident)
            yield Decision(
                self.state.now, IncidentUpdate(incident, changed=id not in opened and _shows(before, incident))
            )

    def _timeline_notes(self, before: Incident | None, incident: Incident) -> Iterator[Decision]:
        at = self.state.now
        if incident.answered > (before.answered if before is not None else 0):
            details = {"look": incident.answered, "waits_for": self.state.unanswered.get(incident.id, 0)}
            yield Decision(at, TimelineNote("answered", incident.id, incident.job, details))
        if incident.merged_into is not None and (before is None or before.merged_into != incident.merged_into):
            yield Decision(at, TimelineNote("merged", incident.id, incident.job, {"into": incident.merged_into}))

    def _was_committed(self) -> bool:
        """Whether the interrupted transaction was committed: a database that fails at its commit reports neither."""
        with self._database.session() as session:
            return _writes(session) == self._writes + 1

    def _written(self) -> None:
        self._writes, self._unsure = self._writes + 1, False
        for done in self._todo:
            if isinstance(done.what, Open) and done.what.incident.job is not None:
                self._downtimes[done.what.incident.id] = begin_downtime(done.what.incident)
            elif isinstance(done.what, Close):
                self._judges.forget(done.what.incident)
        self._todo.clear()
        self._stored = dict(self.state.incidents)
        for id, downtime in self._changed_downtimes.items():
            if downtime.first_good_at is None:
                self._downtimes[id] = downtime
            else:
                self._downtimes.pop(id, None)
        self._changed_downtimes.clear()
        self._learned_rows = []
        for judge in self._asked:
            self._judges.ask(judge)
        self._asked.clear()

    def _keep_lease(self) -> None:
        """Renew the lease while many batches are read."""
        if (at := self._clock()) - self._proved_at >= RENEW_SECONDS:
            with self._database.transaction() as session:
                self._lease.prove(session)
            self._proved_at = at

    def _count(self) -> None:
        self.numbers.working = True
        self.numbers.sequence = self.sequence
        self.numbers.open_incidents = len(self.state.incidents)
        self.numbers.left_out, self.numbers.shed_records = self.state.failed, self.state.shed_records
        self.numbers.evidence_bytes = self.state.evidence_bytes
        self.numbers.judgements, self.numbers.judge_seconds = self._judges.count, self._judges.seconds_total


def _writes(session: Session) -> int:
    row = session.get(Cursor, WRITES)
    return row.sequence if row is not None else 0


def _shows(before: Incident | None, incident: Incident) -> bool:
    """Whether an incident's row changes for its readers, apart from publishing and closing."""
    if before is None:
        return True
    return (before.symptoms, before.nodes, before.merged_into) != (
        incident.symptoms,
        incident.nodes,
        incident.merged_into,
    )
