"""An incident or an alarm of the service as an alert of Alertmanager's API v2. Pure: documents in, documents out.

Labels are what makes an alert the same alert. What a later version of the verdict says otherwise (cause, culprit) makes it
another one, and who sends it has to end the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzers.model.verdict import Verdict
from service.reports import story, text
from service.reports.instants import rfc3339

INCIDENT, ALARM = "FaulthoundIncident", "FaulthoundAlarm"
CRITICAL = frozenset({"hang", "crash", "numeric", "infrastructure"})  # the job stands, or what it computes is wrong
# An incident that is closed sooner keeps its alert so long: a job that has crashed has its incident closed seconds after
# the verdict, and Alertmanager, which waits (group_wait) before it tells, would tell nobody.
LEAST_SECONDS = 300.0
MOST_NAMED = 3
MOST_REASONS = 3
LONGEST = 2_000

Alert = dict[str, Any]
Row = Mapping[str, Any]


def key(alert: Alert) -> tuple[tuple[str, str], ...]:
    """Return what Alertmanager knows an alert by."""
    return tuple(sorted(alert["labels"].items()))


def of_incident(row: Row, verdict: Verdict | None, page: str) -> Alert:
    """Return the alert of an incident; of a closed one with its end. ``page``: the address of the service's pages."""
    said = row["verdict"]
    labels = {
        "alertname": INCIDENT,
        "incident": row["id"],
        "kind": row["kind"],
        "severity": "critical" if row["kind"] in CRITICAL else "warning",
        "job": row["job"] or "",
        "cause": said["cause"] if said else "",
        "culprit": culprit(said["culprits"]) if said else "",
        "explained_by": row["merged_into"] or "",
    }
    ends = {}
    if row["closed_at"] is not None:
        ends = {"endsAt": rfc3339(max(row["closed_at"], row["opened_at"] + LEAST_SECONDS))}
    return {
        "labels": _filled(labels),
        "annotations": _filled({"summary": summary(row, verdict), "description": description(row, verdict)}),
        "startsAt": rfc3339(row["opened_at"]),
        "generatorURL": f"{page}/incidents/{row['id']}",
    } | ends


def of_alarm(row: Row, page: str) -> Alert:
    """Return the alert of an alarm that goes on."""
    labels = {"alertname": ALARM, "kind": row["kind"], "severity": "warning", "job": row["job"] or ""}
    whose = row["job"] or "the fleet"
    told = {
        "summary": f"{row['kind']} of {whose}: Faulthound does not see all",
        "description": text.sentence(row["text"]),
    }
    return {
        "labels": _filled(labels),
        "annotations": _filled(told),
        "startsAt": rfc3339(row["raised_at"]),
        "generatorURL": f"{page}/",
    }


def culprit(culprits: list[Row]) -> str:
    """Name whom a verdict names: ``node:gpu-0413``; the first few, and how many more; empty where nobody is named."""
    names = [f"{one['kind']}:{one['id']}" for one in culprits]
    more = [f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else []
    return ",".join([*names[:MOST_NAMED], *more])


def summary(row: Row, verdict: Verdict | None) -> str:
    """Say in one line who did what to whom."""
    whose = row["job"] or "the fleet"
    if verdict is None:
        return f"{row['kind']} of {whose}: no verdict yet"
    first, *others = story.headlines(verdict)
    return f"{whose}: {first}{f', and {len(others)} more' if others else ''}"


def description(row: Row, verdict: Verdict | None) -> str:
    """Say why, who waits, and what to do; before there is a verdict, what was noticed; at the end, why it is over."""
    told = _noticed(row) if verdict is None else _judged(verdict)
    if row["merged_into"]:
        told.append(f"It is explained by {row['merged_into']}.")
    if row["closed_at"] is not None:
        told.append(f"Closed: {row['closed_because']}.")
    return " ".join(part for part in told if part)


def _noticed(row: Row) -> list[str]:
    return [text.sentence(one["text"]) for one in row.get("symptoms", ())[:1] if one["text"]]


def _judged(verdict: Verdict) -> list[str]:
    reasons = [
        story.reason(why, culprits, named=len(verdict.culprits) > len(culprits))
        for why, culprits in text.reasons(verdict)[:MOST_REASONS]
    ]
    return [*reasons, story.waiting(verdict), *(story.numeric_advice(verdict) or [story.advice(verdict)])]


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    """Leave out what is empty: to Alertmanager an empty label is none."""
    return {name: text.printable(value)[:LONGEST] for name, value in values.items() if value}
