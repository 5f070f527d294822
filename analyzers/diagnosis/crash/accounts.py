"""What only a person's words report: the cause that they have, for little, and no machine by name.

Beside lines of programs they count where these leave the cause open: a paste that ends within a traceback, a lost peer, a signal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from analyzers.diagnosis.crash.failures import evidence_of, kind_of
from analyzers.diagnosis.crash.statements import kind_of_code
from analyzers.knowledge import Knowledge
from analyzers.model.finding import KIND_OF_CAUSE, Cause, Finding, Suspect
from collectors.records import ACCOUNT, LogEvent


def findings(events: Sequence[LogEvent], knowledge: Knowledge) -> Iterator[Finding]:
    """Yield the one cause of what they report; none where it has several, or one that says nothing."""
    table = knowledge.table("accounts")
    causes = {cause for event in events if (cause := _cause_of(event, knowledge))}
    if len(causes) != 1:
        return
    cause = causes.pop()
    shown = tuple(evidence_of(event) for event in events[:3])
    why = f"a person's words report it ({shown[0].text}); no line of a program was read that shows it"
    suspect = Suspect(kind=KIND_OF_CAUSE[cause], strength=float(table["strength"]), why=why, evidence=shown)
    yield Finding(
        analyzer="crash", family="log", symptom="crash", cause=cause, fault_class="account", suspects=(suspect,),
        first_symptom=shown[0], missing=(str(table["missing"]),),
    )  # fmt: skip


def apart(events: Sequence[LogEvent]) -> tuple[list[LogEvent], list[LogEvent]]:
    """Return what lines of programs show, and what only words report."""
    reports = [event for event in events if event.event == ACCOUNT]
    return [event for event in events if event.event != ACCOUNT], reports


def beside(
    found: Sequence[Finding], lines: Sequence[LogEvent], reports: Sequence[LogEvent], knowledge: Knowledge
) -> Iterator[Finding]:
    """Yield what was found from lines; what words report where these leave the cause open, and then of no machine."""
    is_open = bool(reports) and all(each.cause == "unknown" for each in found)
    claims = findings(reports, knowledge) if is_open else ()
    yield from [each for each in claims if not lines or each.cause != "machine"] or found


def _cause_of(event: LogEvent, knowledge: Knowledge) -> Cause | None:
    causes: Mapping[str, Any] = knowledge.table("accounts").get("cause", {})
    kind = kind_of_code(event.code, knowledge.table("codes").get("kind", {}))
    raised = msgspec.structs.replace(event, event="traceback") if event.exception else None
    named = {event.code, kind, kind_of(raised, knowledge.table("crash")) if raised else None}
    return next((cause for cause in KIND_OF_CAUSE if named & set(causes.get(cause, ()))), None)
