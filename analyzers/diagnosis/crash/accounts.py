"""What only a person's words report: the cause that they have, for little, and no machine by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analyzers.diagnosis.crash.failures import evidence_of
from analyzers.diagnosis.crash.statements import kind_of_code
from analyzers.knowledge import Knowledge
from analyzers.model.finding import Cause, Finding, Kind, Suspect
from collectors.records import LogEvent

ACCOUNT = "account"
_SUSPECTS: Mapping[Cause, Kind] = {
    "machine": "node", "code": "code", "platform": "platform", "storage": "storage", "data": "data", "network": "link",
}  # fmt: skip


def findings(events: Sequence[LogEvent], knowledge: Knowledge) -> Iterator[Finding]:
    """Yield the one cause of what they report; none where it has several, or one that says nothing."""
    table, kinds = knowledge.table("accounts"), knowledge.table("codes").get("kind", {})
    causes = {cause for event in events if (cause := _cause_of(event.code or "", table.get("cause", {}), kinds))}
    if len(causes) != 1:
        return
    cause = causes.pop()
    shown = tuple(evidence_of(event) for event in events[:3])
    why = f"a person's words report it ({shown[0].text}); no line of a program was read that shows it"
    suspect = Suspect(kind=_SUSPECTS[cause], strength=float(table["strength"]), why=why, evidence=shown)
    yield Finding(
        analyzer="crash", family="log", symptom="crash", cause=cause, fault_class="account", suspects=(suspect,),
        first_symptom=shown[0], missing=(str(table["missing"]),),
    )  # fmt: skip


def _cause_of(name: str, causes: Mapping[str, Any], kinds: Mapping[str, Any]) -> Cause | None:
    kind = kind_of_code(name, kinds)
    return next((cause for cause in _SUSPECTS if {name, kind} & set(causes.get(cause, ()))), None)
