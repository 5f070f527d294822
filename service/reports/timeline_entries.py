"""The entries of an incident's timeline as sentences, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from service.reports.instants import moment, rfc3339
from service.reports.remediations import short
from service.reports.story import NOT_A_MACHINE, called

Details = Mapping[str, Any]
_ASKED_FOR = {"recorders": "flight-recorder dumps", "read": "the newest steps"}


def entry_text(kind: str, details: Details) -> str:
    """Return an entry's text beside its kind; for an unknown kind, all its details."""
    sentence = _SENTENCES.get(kind)
    if sentence is not None:
        return sentence(details)
    return details.get("text") or ", ".join(f"{name} {value}" for name, value in details.items())


def _opened(details: Details) -> str:
    return f"{details.get('kind', 'a symptom')}: {details.get('text', '')}"


def _asked(details: Details) -> str:
    nodes, verb = details.get("nodes", 0), str(details.get("verb", "evidence"))
    return f"{nodes} node{'s' if nodes != 1 else ''} for {_ASKED_FOR.get(verb, verb)}"


def _answered(details: Details) -> str:
    waits_for = details.get("waits_for", 0)
    missing = f"; {waits_for} answer{'s' if waits_for != 1 else ''} did not come in time" if waits_for else ""
    return f"evidence round {details.get('look', '?')}{missing}"


def _judged(details: Details) -> str:
    looks, unfinished = details.get("looks", 0), [str(one) for one in details.get("unfinished") or ()]
    without = f", without {', '.join(unfinished)}" if unfinished else ""
    return f"after {looks} evidence round{'s' if looks != 1 else ''}{without}"


def _published(details: Details) -> str:
    if details.get("no_fault"):
        return f"version {details.get('version', '?')}: no fault: {details['no_fault']}"
    parts = [str(details[name]) for name in ("symptom", "cause") if details.get(name)]
    if "culprits" in details:
        named = [_named(str(one)) for one in details["culprits"]] or ["no culprit"]
        parts += [one for one in named if one not in parts]  # the cause "code" may be all that is named
    if details.get("action") == "none":
        parts.append("no action")
    elif details.get("action"):
        parts.append(" ".join(str(details[name]) for name in ("action", "role", "instance") if details.get(name)))
    return f"version {details.get('version', '?')}{': ' if parts else ''}{', '.join(parts)}"


def _named(culprit: str) -> str:
    """Return ``node gpu-0413``, ``code of rank 1``, ``code`` for a culprit that a document gives as KIND:ID."""
    kind, _, name = culprit.partition(":")
    return f"{kind} of {name}" if kind in NOT_A_MACHINE and name.startswith("rank") else called(kind, name)


def _closed(details: Details) -> str:
    return str(details.get("because") or details.get("reason") or "")


def _feedback(details: Details) -> str:
    of = f" of version {details['verdict_version']}" if "verdict_version" in details else ""
    return f"{details.get('judgement', '')}{of}, by {details.get('by', 'a person')}"


def _remedied(details: Details) -> str:
    """Return what it does to which nodes, then the actor and the reason."""
    hindered = ", ".join(str(one) for one in details.get("hindered") or ())
    parts = [
        f"{details.get('remediation', '')} {short({'kind': 'remediation', **details})}",
        f"by {details.get('by', 'the engine')}",
        str(details.get("outcome", "")).replace("_", " "),
        f"rule {details['rule']}" if details.get("rule") else "",
        f"blocked by: {hindered}" if hindered else "",
    ]
    return ", ".join(part for part in parts if part) + _reason(details)


def _stopped(details: Details) -> str:
    """Return what is stopped or released: a node, a job, or everything."""
    of = next((f"{kind} {details[kind]}, " for kind in ("node", "job") if details.get(kind)), "")
    until = f", until {moment(rfc3339(details['until']))}" if details.get("until") else ""
    return f"{of}by {details.get('by', 'the engine')}{until}{_reason(details)}"


def _reason(details: Details) -> str:
    why = details.get("why") or details.get("reason")
    return f": {why}" if why else ""


_REMEDIED = ("proposed", "approved", "claimed", "begun", "completed", "verified", "rejected", "failed", "expired",
             "cancelled", "released", "undo_asked", "undone", "undo_failed", "would_act", "hindered")  # fmt: skip
_STOPPED = ("breaker_tripped", "breaker_closed", "hold_added", "hold_expired", "frozen", "thawed")
_SENTENCES: dict[str, Callable[[Details], str]] = {
    "opened": _opened,
    "asked": _asked,
    "answered": _answered,
    "judged": _judged,
    "published": _published,
    "closed": _closed,
    "feedback": _feedback,
    "person_wanted": lambda details: str(details.get("why", "")),
    **{f"remediation_{what}": _remedied for what in _REMEDIED},
    **dict.fromkeys(_STOPPED, _stopped),
}
