"""The engine's decisions, written in one transaction: rows first, timeline entries last, in their order.

An instruction that cannot be written is undone alone, logged and counted; the others go on. Where the database itself fails,
everything is undone and written again later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from analyzers.incidents.downtime import Downtime
from analyzers.incidents.messages import Alarm, Ask, Close, EngineInstruction, Judge, Merge, Open, Publish
from analyzers.model.incident import Incident
from analyzers.model.verdict import Action
from service.engine.downtimes import write_downtime
from service.reports.story import no_fault
from service.store import commands, incidents, timeline
from service.store.database import TRANSIENT_ERRORS
from service.store.models import Alarm as AlarmRow
from service.store.schema import clean

_log = logging.getLogger(__name__)


class Decision(NamedTuple):
    """An instruction, a timeline note or an incident to be written, and when the engine decided it."""

    at: float
    what: EngineInstruction | TimelineNote | IncidentUpdate


class TimelineNote(NamedTuple):
    """A timeline entry that belongs to no instruction."""

    kind: str
    incident: str
    job: str | None
    details: dict[str, Any]


class IncidentUpdate(NamedTuple):
    """The engine's present state of an open incident."""

    incident: Incident
    changed: bool  # for its readers: it has one more symptom, or was merged


class Writer:
    """Writes into one transaction. ``now`` is the wall clock: commands expire by it."""

    def __init__(self, session: Session, now: float, jobs: dict[str, str | None]) -> None:
        """``jobs``: the job of each open incident."""
        self.failed = 0
        self._session, self._now, self._jobs = session, now, dict(jobs)
        self._happened: list[tuple[float, str, str | None, str | None, dict[str, Any]]] = []

    def write(self, done: Iterable[Decision], downtimes: Iterable[Downtime] = ()) -> None:
        """Write the decisions, the downtimes, and then the timeline."""
        for one in done:
            count = len(self._happened)
            if not self._tried(partial(self._write, one), type(one.what).__name__):
                del self._happened[count:]
        for downtime in downtimes:
            self._tried(partial(write_downtime, self._session, downtime), "Downtime")
        for entry in self._happened:
            self._tried(partial(timeline.add, self._session, *entry), "TimelineEntry")

    def _tried(self, write: Callable[[], None], what: str) -> bool:
        try:
            with self._session.begin_nested():
                write()
        except TRANSIENT_ERRORS:
            raise
        except Exception:  # noqa: BLE001 - one row that the database refuses must not stop the engine
            _log.exception("decision_not_written kind=%s", what)
            self.failed += 1
            return False
        return True

    def _write(self, done: Decision) -> None:
        at = done.at
        match done.what:
            case Open() as opened:
                self._open(at, opened)
            case Merge() as merged:
                seen = {"text": merged.symptom.text, "kind": merged.symptom.kind, "detector": merged.symptom.detector}
                self._note(at, "symptom", merged.incident, seen)
            case Ask() as ask:
                asked = ((clean(node, 255), dict(ask.arguments)) for node in ask.nodes)
                commands.add(self._session, asked, ask.verb, incidents.ENGINE, ask.seconds, self._now)
                self._note(at, "asked", ask.incident, {"verb": ask.verb, "nodes": len(ask.nodes)})
            case Publish() as published:
                if incidents.publish(self._session, published, at):
                    self._note(at, "published", published.incident, _summary(published))
            case Close() as closed:
                if incidents.close(
                    self._session, closed.incident, closed.at, closed.because, recovered=closed.recovered
                ):
                    details = {"because": closed.because, "recovered": closed.recovered}
                    self._note(
                        at, "closed", closed.incident, details | ({"ended": closed.ended} if closed.ended else {})
                    )
            case Alarm() as alarm:
                self._alarm(at, alarm)
            case IncidentUpdate() as saved:
                incidents.save(self._session, saved.incident, changed=saved.changed)
            case TimelineNote() as happened:
                self._note(at, happened.kind, happened.incident, happened.details, happened.job)
            case Judge():
                pass  # the driver starts it after the commit

    def _open(self, at: float, opened: Open) -> None:
        incident = opened.incident
        job = None if incident.job is None else clean(incident.job, 255)
        if incidents.insert(self._session, opened):
            first = incident.symptoms[0] if incident.symptoms else None
            details = {"kind": incident.kind, "text": first.text if first else "", "nodes": len(incident.nodes)}
            self._jobs[incident.id] = job
            self._note(at, "opened", incident.id, details, job)

    def _alarm(self, at: float, alarm: Alarm) -> None:
        job = None if alarm.job is None else clean(alarm.job, 255)
        same = (AlarmRow.kind == alarm.kind, AlarmRow.job == job, AlarmRow.over_at.is_(None))
        row = self._session.scalars(select(AlarmRow).where(*same).order_by(AlarmRow.id)).first()
        details = {"alarm": alarm.kind, "text": alarm.text, "nodes": len(alarm.nodes)}
        nodes = [clean(node, 255) for node in alarm.nodes]
        if not alarm.raised:
            if row is not None:
                row.over_at = at
                self._note(at, "alarm_over", None, details, job)
        elif row is not None:
            row.text, row.nodes = clean(alarm.text, 1_000), nodes
        else:
            text = clean(alarm.text, 1_000)
            self._session.add(AlarmRow(kind=alarm.kind, job=job, text=text, nodes=nodes, raised_at=at, over_at=None))
            self._note(at, "alarm", None, details, job)
        self._session.flush()

    def _note(
        self, at: float, kind: str, incident: str | None, details: dict[str, Any], job: str | None = None
    ) -> None:
        if incident is not None and job is None:
            job = self._jobs.get(incident)
        self._happened.append((at, kind, incident, job, details))


def _summary(published: Publish) -> dict[str, Any]:
    verdict = published.verdict
    sound = no_fault(verdict)
    return {
        **({"no_fault": clean(sound, 1_000)} if sound else {}),
        "version": published.version,
        "symptom": verdict.symptom,
        "cause": verdict.cause,
        "abstained": verdict.abstained,
        "culprits": [f"{one.kind}:{one.id}" for one in verdict.culprits[:16]],
        "action": verdict.action.kind,
        **_of_role(verdict.action),
        "looks": published.cut.looks,
    }


def _of_role(action: Action) -> dict[str, str]:
    """Return which role, and which instance of it, an action restarts."""
    named = {"role": action.role, "instance": action.instance} if action.kind == "restart_role" else {}
    return {name: value for name, value in named.items() if value}
