"""Open incidents and raised alarms as alerts of Alertmanager (API v2).

Alertmanager wants to hear of an alert again and again while it goes on. So what is sent is what the service says now, once
a minute, and at once when something happens; the stream only says when to look. Alerts that Alertmanager still believes in
and that the service does not are ended: the state file remembers them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import msgspec

from analyzers.model.verdict import Verdict
from service.adapters import alerts
from service.adapters.alerts import Alert, Row
from service.adapters.following import AGAIN_SECONDS, AWAY, Patience, State, StateFile, read
from service.adapters.sink import Sink
from service.endings import Forbidden
from service.reports.instants import rfc3339, seconds
from service.speech import Speech

if TYPE_CHECKING:
    from service.client import Connection

RESEND_SECONDS = 60.0  # Alertmanager ends an alert that it has not heard of for resolve_timeout, five minutes
SOON_SECONDS = 15.0  # until it is tried again after it was away
ATTEMPTS = 5  # then what is to be told is looked up anew: it may be another
MOST_OPEN = 1_000  # of incidents and of alarms; the newest
CHANGING = frozenset({"opened", "symptom", "published", "merged", "closed", "alarm", "alarm_over"})
PATH = "/api/v2/alerts"


def tell(connection: Connection, sink: Sink, file: StateFile, page: str, speech: Speech) -> NoReturn:
    """Tell for as long as the process lives."""
    from service.clock import now

    teller, patience = Teller(connection, sink, file, page, now), Patience(speech)
    while True:
        try:
            teller.wait()
            teller.tell()
            patience.back()
            sleep(AGAIN_SECONDS)  # no more often, however much happens
        except AWAY as problem:
            patience.away(problem)


class Teller:
    """What was told, and what there is to tell."""

    def __init__(
        self, connection: Connection, sink: Sink, file: StateFile, page: str, clock: Callable[[], float]
    ) -> None:
        self._connection, self._sink, self._file, self._page, self._clock = connection, sink, file, page, clock
        state = file.load()
        self._place, self._firing = state.after, state.firing
        self._changed: set[str] = set()  # incidents of which something has happened since it was last told
        self._known: dict[str, tuple[Row, Alert]] = {}
        self._due = monotonic()

    def wait(self) -> None:
        """Wait until something has happened, or it is time to tell again."""
        if self._read(max(0.0, self._due - monotonic()), until_changed=True):
            self._read(0.0, until_changed=False)  # what else happened by now is told at the same time

    def _read(self, wait_seconds: float, *, until_changed: bool) -> bool:
        with closing(read(self._connection, self._place, wait_seconds)) as happenings:
            for self._place, happening in happenings:
                if happening is None or happening.kind not in CHANGING:
                    continue
                if happening.incident is not None:
                    self._changed.add(happening.incident)
                if until_changed:
                    return True
        return False

    def tell(self) -> None:
        """Post what goes on and what has ended, and remember it once it was taken."""
        firing, ended = self._look()
        told = [*firing, *ended]
        taken = not told or self._sink.post(msgspec.json.encode(told), "application/json", ATTEMPTS)
        self._due = monotonic() + (RESEND_SECONDS if taken else SOON_SECONDS)
        if taken:
            self._firing = tuple(firing)
            self._changed.clear()
            self._file.save(State(after=self._place, firing=self._firing))

    def _look(self) -> tuple[list[Alert], list[Alert]]:
        """Return the alerts that go on, and those that have ended."""
        rows = {row["id"]: row for row in self._connection.all("/v1/incidents", MOST_OPEN, status="open")}
        was = {alert["labels"].get("incident", "") for alert in self._firing}
        for id in sorted((self._changed | was) - {""} - rows.keys()):
            row = self._detail(id)
            if row is not None:  # else it was too old for the service to keep
                rows[id] = row
        self._known = {id: self._alert(id, row) for id, row in rows.items()}
        every = [alert for _, alert in self._known.values()]
        every += [
            alerts.of_alarm(row, self._page) for row in self._connection.all("/v1/alarms", MOST_OPEN, status="raised")
        ]
        firing = [alert for alert in every if "endsAt" not in alert]
        ended = [alert for alert in every if "endsAt" in alert]
        said = {alerts.key(alert) for alert in every}
        gone = [alert for alert in self._firing if alerts.key(alert) not in said]
        return firing, ended + [self._ended(alert) for alert in gone]

    def _alert(self, id: str, row: Row) -> tuple[Row, Alert]:
        """Return an incident's alert, the one that there is where nothing has changed."""
        known = self._known.get(id)
        if known is not None and known[0] == row:
            return known
        verdict = None
        if row["verdict"] is not None:
            document = self._connection.get(_path(id, "/verdict"), version=row["verdict"]["version"])
            verdict = msgspec.convert(document, Verdict)
        elif "symptoms" not in row:
            return row, alerts.of_incident(self._detail(id) or row, None, self._page)
        return row, alerts.of_incident(row, verdict, self._page)

    def _detail(self, id: str) -> Any | None:
        try:
            return self._connection.get(_path(id))
        except Forbidden as problem:
            if problem.status != 404:
                raise
            return None

    def _ended(self, alert: Alert) -> Alert:
        began_at = seconds(alert["startsAt"]) or 0.0
        return alert | {"endsAt": rfc3339(max(began_at, self._clock()))}


def _path(id: str, below: str = "") -> str:
    return f"/v1/incidents/{quote(id, safe='')}{below}"
