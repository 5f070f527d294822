"""The engine at work: the log comes in, time passes, judgements end; what is decided is written with the place in the log.

One thread does all of it, for it forks. What has been decided stays in memory until it is written: while the database is
away nothing new is read and nothing is lost, and an engine whose lease was taken meanwhile forgets everything.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace
from sqlalchemy.orm import Session

from analyzers.incidents.detectors import find_symptoms
from analyzers.incidents.messages import Close, EngineEvent, EngineTick, Judge, Judged, Open, Withdrawn
from analyzers.incidents.step import TICK_SECONDS, next_due_at, step
from analyzers.knowledge import Knowledge
from analyzers.model.incident import Incident
from collectors.records import block
from collectors.records.record import Damaged
from service.clock import now
from service.engine import ledger
from service.engine.judge_processes import JudgeFailure, JudgeProcesses
from service.engine.numbers import Numbers
from service.engine.resume import received_event, resume_engine
from service.engine.writer import Decision, IncidentUpdate, TimelineNote, Writer
from service.store import incidents
from service.store.database import Database
from service.store.leases import RENEW_SECONDS, Lease
from service.store.log import Log, Stored
from service.store.models import Cursor
from service.store.upserts import upsert

TURN_BATCHES = 256
BEHIND_SECONDS = 5.0  # of the newest batch that was read: then time is what the log says, and not the clock
BACK_SECONDS = 60.0  # by which the clock may go back; by more, and nothing would be due for so long
LEAST_TICK_SECONDS = 0.25  # between two ticks, whatever is due
MOST_DETAIL = 200
WRITES = "engine_writes"  # row of the cursors: how many transactions there were

_log = logging.getLogger(__name__)


class ClockWentBack(Exception):
    """What the engine remembers is dated in the future: it takes up again from the store, by the new clock."""


class Driver:
    """One engine under one lease, from its resuming until the lease is lost."""

    def __init__(
        self, database: Database, lease: Lease, knowledge: Knowledge, judges: JudgeProcesses, numbers: Numbers,
        clock: Callable[[], float] = now,
    ) -> None:  # fmt: skip
        self._database, self._lease, self._judges, self._clock = database, lease, judges, clock
        self._log = Log(database)
        self.numbers = numbers
        self._proved_at = self._looked_at = clock()
        self._todo: list[Decision] = []  # decided and not yet written
        self._asked: list[Judge] = []  # to be judged once that is written
        taken_up = resume_engine(database, knowledge, clock(), self._stay)
        self.state, self.sequence, self._costs = taken_up.state, taken_up.sequence, taken_up.costs
        self._changed_costs: dict[str, ledger.Cost] = {}
        with database.session() as session:
            self._writes = _writes(session)
        self._unsure = False  # whether the last transaction was committed
        self._stored = dict(self.state.incidents)  # as the table has them
        self._ticked_at = 0.0
        self._caught_up = False
        self.busy = False  # the last turn found batches

    def turn(self) -> bool:
        """Do what there is to do; return whether there is more at once.

        Raise ``Lost``, ``ClockWentBack``, or what the database raises.
        """
        self._write()  # what is left of a turn that the database broke off
        batches = self._log.read_from(self.sequence, TURN_BATCHES)
        at = self._clock()
        if at < self.state.now - BACK_SECONDS:
            raise ClockWentBack(f"the clock shows {self.state.now - at:.0f} s less than before")
        self.busy = bool(batches)
        self._caught_up = not batches or at - batches[-1].received_at < BEHIND_SECONDS
        self.numbers.lag_seconds = max(0.0, at - batches[0].received_at) if batches else 0.0
        for stored in batches:
            self._stay()
            self._take(stored)
        for ended in self._judges.turn():
            self._conclude(ended)
        if self._caught_up:
            self._tick(self._clock())
        self._write()
        self._count()
        return bool(batches) and not (self._caught_up and len(batches) < TURN_BATCHES)

    # --- what the engine is told

    def _take(self, stored: Stored) -> None:
        """Take up a batch; while the log is behind, time is what the batches say."""
        try:
            records = block.decode(stored.block)
        except Damaged:  # the follower has told of it
            self.numbers.undecodable_batches += 1
        else:
            self._step(received_event(stored, records), stored.received_at)
        self.numbers.batches += 1
        self.sequence = stored.sequence
        if not self._caught_up:
            self._tick(stored.received_at)

    def _tick(self, at: float) -> None:
        next_due = next_due_at(self.state)
        whole = at - self.state.ticked_at >= TICK_SECONDS
        early = next_due is not None and next_due <= at and at - self._ticked_at >= LEAST_TICK_SECONDS
        if not whole and not early:
            return
        began = time.perf_counter()
        self._step(EngineTick(), at)
        if whole:
            # A tick that fails must not be due again at once, for ever.
            self.state.ticked_at = max(self.state.ticked_at, at)
            self._note_costs()
        self._ticked_at = at
        seconds = time.perf_counter() - began
        self.numbers.ticks += 1
        self.numbers.tick_seconds += seconds
        self.numbers.longest_tick_seconds = max(self.numbers.longest_tick_seconds, seconds)

    def _conclude(self, ended: Judged | JudgeFailure) -> None:
        """Take up what came of a judgement. While the log is behind, it is as late as the log."""
        at = self._clock() if self._caught_up else self.state.now
        incident = self.state.incidents.get(ended.incident)
        if incident is None:  # it was closed meanwhile
            return
        if isinstance(ended, JudgeFailure):
            told: dict[str, Any] = {"analyzer": ended.analyzer, "why": ended.why[:MOST_DETAIL]}
            self._todo.append(Decision(at, TimelineNote("judge_failed", ended.incident, incident.job, told)))
            self.numbers.judge_failures += 1
            return
        told = {"looks": ended.cut.looks, "through": ended.cut.through, "unfinished": list(ended.cut.unfinished)}
        self._todo.append(Decision(at, TimelineNote("judged", ended.incident, incident.job, told)))
        self._step(ended, at)

    def _step(self, event: EngineEvent, at: float) -> None:
        """Let the engine decide; an event that it cannot take is left out, told of and counted."""
        incidents_before, contexts_before = dict(self.state.incidents), dict(self.state.contexts)
        try:
            _state, decided = step(self.state, event, at)
        except Exception:  # noqa: BLE001 - one job's odd record must not take the verdicts of all the others
            _log.exception("step_failed event=%s sequence=%d", type(event).__name__, self.sequence)
            self.numbers.step_failures += 1
            # What was decided before it broke is lost, and so must not be remembered as done.
            self.state.incidents, self.state.contexts = incidents_before, contexts_before
            if isinstance(event, EngineTick):
                self._drop_broken(at)
            if isinstance(event, Judged):  # or it would be waited for, and nothing judged any more
                incident = self.state.incidents[event.incident]
                self.state.incidents[event.incident] = replace(incident, cut=None)
            return
        self._todo += [Decision(at, instruction) for instruction in decided]
        self._asked += [instruction for instruction in decided if isinstance(instruction, Judge)]

    def _drop_broken(self, at: float) -> None:
        """Forget what is known of the jobs that break a detector: one of them would keep all others from being looked at."""
        for key, view in list(self.state.jobs.items()):
            try:
                find_symptoms(view, at)
            except Exception:  # noqa: BLE001 - its traceback has been told
                _log.error("job_dropped job=%r attempt=%s", *key)
                del self.state.jobs[key]
                for keys in self.state.jobs_on.values():
                    keys.discard(key)
        self.state.changed.update(self.state.jobs)  # to be looked at again: the tick was not whole

    def _note_costs(self) -> None:
        for cost in ledger.grown(self._costs.values(), self.state):
            self._changed_costs[cost.incident] = cost

    # --- what is written

    def _write(self) -> None:
        """Write what was decided, the place in the log and the proof of the lease in one transaction; then judge."""
        at = self._clock()
        saved = list(self._saves())
        if not (self._todo or saved or self._changed_costs) and at - self._proved_at < RENEW_SECONDS:
            return
        looking = at - self._looked_at >= RENEW_SECONDS
        if self._unsure and self._stands():
            self._written()
            return
        self._unsure = True
        with self._database.transaction() as session:
            self._lease.prove(session)
            places = {incidents.READER: self.sequence, WRITES: self._writes + 1}
            upsert(session, Cursor, [{"reader": name, "sequence": place} for name, place in places.items()])
            writer = Writer(session, at, {incident.id: incident.job for incident in self._stored.values()})
            writer.write([*self._todo, *saved], self._changed_costs.values())
            withdrawn = incidents.closed_among(session, list(self.state.incidents)) if looking else []
        self._proved_at = at
        self._looked_at = at if looking else self._looked_at
        self.numbers.write_failures += writer.failed
        self._written()
        for incident in withdrawn:
            self._step(Withdrawn(incident=incident), self.state.now)

    def _saves(self) -> Iterator[Decision]:
        """Yield the incidents that the table does not have as they are, and what their readers should be told."""
        opened = {done.what.incident.id for done in self._todo if isinstance(done.what, Open)}
        for id, incident in self.state.incidents.items():
            before = self._stored.get(id)
            if before is incident:
                continue
            yield from self._seen(before, incident)
            yield Decision(
                self.state.now, IncidentUpdate(incident, changed=id not in opened and _shows(before, incident))
            )

    def _seen(self, before: Incident | None, incident: Incident) -> Iterator[Decision]:
        at = self.state.now
        if incident.answered > (before.answered if before is not None else 0):
            told = {"look": incident.answered, "waits_for": self.state.unanswered.get(incident.id, 0)}
            yield Decision(at, TimelineNote("answered", incident.id, incident.job, told))
        if incident.merged_into is not None and (before is None or before.merged_into != incident.merged_into):
            yield Decision(at, TimelineNote("merged", incident.id, incident.job, {"into": incident.merged_into}))

    def _stands(self) -> bool:
        """Return whether what broke off had been committed: where the database goes away just then, nobody is told."""
        with self._database.session() as session:
            return _writes(session) == self._writes + 1

    def _written(self) -> None:
        self._writes, self._unsure = self._writes + 1, False
        for done in self._todo:
            if isinstance(done.what, Open) and done.what.incident.job is not None:
                opened = done.what.incident
                self._costs[opened.id] = ledger.of(opened)
            elif isinstance(done.what, Close):
                self._judges.forget(done.what.incident)
        self._todo.clear()
        self._stored = dict(self.state.incidents)
        for id, cost in self._changed_costs.items():
            if cost.first_good_at is None:
                self._costs[id] = cost
            else:
                self._costs.pop(id, None)
        self._changed_costs.clear()
        for judge in self._asked:
            self._judges.ask(judge)
        self._asked.clear()

    def _stay(self) -> None:
        """Hold the lease while many batches are taken up."""
        if (at := self._clock()) - self._proved_at >= RENEW_SECONDS:
            with self._database.transaction() as session:
                self._lease.prove(session)
            self._proved_at = at

    def _count(self) -> None:
        self.numbers.working = True
        self.numbers.sequence = self.sequence
        self.numbers.open_incidents = len(self.state.incidents)
        self.numbers.judgements, self.numbers.judge_seconds = self._judges.count, self._judges.seconds_total


def _writes(session: Session) -> int:
    row = session.get(Cursor, WRITES)
    return row.sequence if row is not None else 0


def _shows(before: Incident | None, incident: Incident) -> bool:
    """Whether what a reader sees of an incident's row has changed, but for what publishing and closing change."""
    if before is None:
        return True
    return (before.symptoms, before.nodes, before.merged_into) != (
        incident.symptoms,
        incident.nodes,
        incident.merged_into,
    )
