"""Open incidents and raised alarms as alerts of Alertmanager (API v2).

Alertmanager expects an alert again and again while it goes on. So the current alerts are posted once a minute, and at once after
an event; the stream only triggers the post. The state file remembers which alerts Alertmanager holds, to resolve those that the
service no longer has.

Labels identify an alert. A later verdict with another cause or culprit makes another alert, and the first is resolved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

import msgspec

from analyzers.model.verdict import Verdict
from collectors.records.printable import printable
from service.adapters import sink
from service.adapters.following import AdapterState, StateFile, StatePath
from service.client import RETRY_SECONDS, Connection, Say, ServicePatience, resource
from service.clock import now
from service.reports import advice, next_steps, story, text
from service.reports.instants import rfc3339, seconds

if TYPE_CHECKING:
    from service.adapters.sink import Sink

INCIDENT, ALARM = "FaulthoundIncident", "FaulthoundAlarm"
PATH = "/api/v2/alerts"
RESEND_SECONDS = 60.0  # Alertmanager resolves an alert that was not posted for resolve_timeout, five minutes
SOON_SECONDS = 15.0  # until the next attempt after it was away
ATTEMPTS = 5  # after these the alerts are read again: they may have changed
MOST_OPEN = 1_000  # of incidents and of alarms; the newest
CHANGING = frozenset({"opened", "symptom", "published", "merged", "closed", "alarm", "alarm_over"})
CRITICAL = frozenset({"hang", "crash", "numeric", "infrastructure"})  # the job stands, or its numbers are wrong
# The alert of an incident that closes sooner lasts so long: a crashed job's incident closes seconds after the verdict, within
# Alertmanager's group_wait, and no notification would be sent.
LEAST_SECONDS = 300.0
MOST_NAMED = 3
MOST_REASONS = 3
LONGEST = 2_000

Alert = dict[str, Any]
Row = Mapping[str, Any]


def run(
    connection: Connection, say: Say, to_url: sink.To, state: StatePath = Path("faulthound-alertmanager.json"),
    sink_token_file: sink.TokenFile = None, public: sink.Public = None,
) -> None:  # fmt: skip
    """Keep the open incidents and the alarms as alerts in Alertmanager (API v2), until it is stopped.

    They are posted when something changes and every minute, and resolved when an incident closes.

    \b
    Examples:
      faulthound adapter alertmanager --to http://alertmanager:9093 --token-file read.token
      faulthound adapter alertmanager --to http://am:9093 --public https://faulthound.example
    """
    page, patience = sink.page_address(public, connection), ServicePatience(say)
    with sink.opened(to_url, sink_token_file, connection, say, PATH) as receiver:
        alerts = Alerts(connection, receiver, StateFile(state), page, now)
        while True:
            try:
                alerts.wait()
                alerts.post()
                patience.back()
                sleep(RETRY_SECONDS)  # no more often, however much happens
            except patience.failures as problem:
                patience.away(problem)


class Alerts:
    """The alerts that Alertmanager holds, and those that it should hold."""

    def __init__(
        self, connection: Connection, receiver: Sink, file: StateFile, page: str, clock: Callable[[], float]
    ) -> None:
        self._connection, self._sink, self._file, self._page, self._clock = connection, receiver, file, page, clock
        state = file.load()
        self._place, self._firing = state.after, state.firing
        self._changed: set[str] = set()  # incidents with an event since the last post
        self._known: dict[str, tuple[Row, Alert]] = {}
        self._due = monotonic()

    def wait(self) -> None:
        """Wait for an event, or until it is time to post again."""
        if self._read(max(0.0, self._due - monotonic()), until_changed=True):
            self._read(0.0, until_changed=False)  # the events that came with it are in the same post

    def _read(self, wait_seconds: float, *, until_changed: bool) -> bool:
        with closing(self._connection.events(self._place, wait_seconds)) as events:
            for self._place, event in events:
                if event is None or event.kind not in CHANGING:
                    continue
                if event.incident is not None:
                    self._changed.add(event.incident)
                if until_changed:
                    return True
        return False

    def post(self) -> None:
        """Post the alerts that go on and those that have ended, and remember them once they were accepted."""
        firing, ended = self._current()
        every = [*firing, *ended]
        accepted = not every or self._sink.post(msgspec.json.encode(every), "application/json", ATTEMPTS)
        self._due = monotonic() + (RESEND_SECONDS if accepted else SOON_SECONDS)
        if accepted:
            self._firing = tuple(firing)
            self._changed.clear()
            self._file.save(AdapterState(after=self._place, firing=self._firing))

    def _current(self) -> tuple[list[Alert], list[Alert]]:
        """Return the alerts that go on, and those that have ended."""
        rows = {row["id"]: row for row in self._connection.all("/v1/incidents", MOST_OPEN, status="open")}
        was = {alert["labels"].get("incident", "") for alert in self._firing}
        for id in sorted((self._changed | was) - {""} - rows.keys()):
            row = self._connection.find(resource("incidents", id))
            if row is not None:  # else it was too old for the service to keep
                rows[id] = row
        self._known = {id: self._alert(id, row) for id, row in rows.items()}
        every = [alert for _, alert in self._known.values()]
        every += [of_alarm(row, self._page) for row in self._connection.all("/v1/alarms", MOST_OPEN, status="raised")]
        firing = [alert for alert in every if "endsAt" not in alert]
        ended = [alert for alert in every if "endsAt" in alert]
        current = {_key(alert) for alert in every}
        dropped = [alert for alert in self._firing if _key(alert) not in current]
        return firing, ended + [self._ended(alert) for alert in dropped]

    def _alert(self, id: str, row: Row) -> tuple[Row, Alert]:
        """Return an incident's alert; where nothing has changed, the one from before."""
        known = self._known.get(id)
        if known is not None and known[0] == row:
            return known
        verdict = None
        if row["verdict"] is not None:
            path = resource("incidents", id, "verdict")
            verdict = msgspec.convert(self._connection.get(path, version=row["verdict"]["version"]), Verdict)
        elif "symptoms" not in row:
            detail = self._connection.find(resource("incidents", id))
            return row, of_incident(detail or row, None, self._page)
        return row, of_incident(row, verdict, self._page)

    def _ended(self, alert: Alert) -> Alert:
        began_at = seconds(alert["startsAt"]) or 0.0
        return alert | {"endsAt": rfc3339(max(began_at, self._clock()))}


def _key(alert: Alert) -> tuple[tuple[str, str], ...]:
    """Return what identifies an alert to Alertmanager."""
    return tuple(sorted(alert["labels"].items()))


def of_incident(row: Row, verdict: Verdict | None, page: str) -> Alert:
    """Return the alert of an incident; of a closed one with its end. ``page``: the address of the service's pages."""
    newest = row["verdict"]
    labels = {
        "alertname": INCIDENT,
        "incident": row["id"],
        "kind": row["kind"],
        "severity": "critical" if row["kind"] in CRITICAL else "warning",
        "job": row["job"] or "",
        "cause": newest["cause"] if newest else "",
        "culprit": culprit(newest["culprits"]) if newest else "",
        "explained_by": row["merged_into"] or "",
    }
    ends = {}
    if row["closed_at"] is not None:
        ends = {"endsAt": rfc3339(max(row["closed_at"], row["opened_at"] + LEAST_SECONDS))}
    return {
        "labels": _filled(labels),
        "annotations": _filled({"summary": _summary(row, verdict), "description": _description(row, verdict)}),
        "startsAt": rfc3339(row["opened_at"]),
        "generatorURL": f"{page}/incidents/{row['id']}",
    } | ends


def of_alarm(row: Row, page: str) -> Alert:
    """Return the alert of a raised alarm."""
    labels = {"alertname": ALARM, "kind": row["kind"], "severity": "warning", "job": row["job"] or ""}
    annotations = {
        "summary": f"{row['kind']} of {row['job'] or 'the fleet'}: Faulthound does not see everything",
        "description": text.sentence(row["text"]),
    }
    return {
        "labels": _filled(labels),
        "annotations": _filled(annotations),
        "startsAt": rfc3339(row["raised_at"]),
        "generatorURL": f"{page}/",
    }


def culprit(culprits: list[Row]) -> str:
    """Return the culprits as a label: ``node:gpu-0413``; the first few and how many more; empty where none is named."""
    names = [f"{one['kind']}:{one['id']}" for one in culprits]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ",".join([*names[:MOST_NAMED], *more])


def _summary(row: Row, verdict: Verdict | None) -> str:
    whose = row["job"] or "the fleet"
    if verdict is None:
        return f"{row['kind']} of {whose}: no verdict yet"
    first, *others = story.headlines(verdict)
    return f"{whose}: {first}{f', and {len(others)} more' if others else ''}"


def _description(row: Row, verdict: Verdict | None) -> str:
    """State why, which ranks wait, and what to do; before the first verdict, the symptom; at the end, why it closed."""
    parts = _symptom(row) if verdict is None else _judged(verdict)
    if row["merged_into"]:
        parts.append(f"It is explained by {row['merged_into']}.")
    if row["closed_at"] is not None:
        parts.append(f"Closed: {row['closed_because']}.")
    return " ".join(part for part in parts if part)


def _symptom(row: Row) -> list[str]:
    return [text.sentence(one["text"]) for one in row.get("symptoms", ())[:1] if one["text"]]


def _judged(verdict: Verdict) -> list[str]:
    reasons = [
        story.reason(why, culprits, named=len(verdict.culprits) > len(culprits))
        for why, culprits in text.reasons(verdict)[:MOST_REASONS]
    ]
    steps = advice.own_steps(verdict) or [advice.what_to_do(verdict)]
    return [*reasons, story.waiting(verdict), next_steps.first_of_all(verdict), *steps]


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    """Leave out empty values: Alertmanager drops an empty label."""
    return {name: printable(value)[:LONGEST] for name, value in values.items() if value}
