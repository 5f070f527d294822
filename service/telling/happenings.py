"""What happened with an incident, as one sentence a line, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Details = Mapping[str, Any]
_ASKED_FOR = {"recorders": "flight-recorder dumps", "read": "the newest steps"}


def said(kind: str, details: Details) -> str:
    """Return what a happening tells beside its kind; of a kind that is not known, all that it has."""
    tell = _TOLD.get(kind)
    if tell is not None:
        return tell(details)
    return details.get("text") or ", ".join(f"{name} {value}" for name, value in details.items())


def _opened(details: Details) -> str:
    return f"{details.get('kind', 'a symptom')}: {details.get('text', '')}"


def _asked(details: Details) -> str:
    nodes, verb = details.get("nodes", 0), str(details.get("verb", "evidence"))
    return f"{nodes} node{'s' if nodes != 1 else ''} for {_ASKED_FOR.get(verb, verb)}"


def _answered(details: Details) -> str:
    waits_for = details.get("waits_for", 0)
    missing = f"; {waits_for} answer{'s' if waits_for != 1 else ''} did not come in time" if waits_for else ""
    return f"look {details.get('look', '?')}{missing}"


def _judged(details: Details) -> str:
    looks, unfinished = details.get("looks", 0), [str(one) for one in details.get("unfinished") or ()]
    without = f", without {', '.join(unfinished)}" if unfinished else ""
    return f"after {looks} look{'s' if looks != 1 else ''}{without}"


def _published(details: Details) -> str:
    told = [str(details[name]) for name in ("symptom", "cause") if details.get(name)]
    if "culprits" in details:
        told.append(", ".join(str(one).replace(":", " ", 1) for one in details["culprits"]) or "nobody")
    if details.get("action"):
        told.append(str(details["action"]))
    return f"version {details.get('version', '?')}{': ' if told else ''}{', '.join(told)}"


def _closed(details: Details) -> str:
    return str(details.get("because") or details.get("reason") or "")


def _feedback(details: Details) -> str:
    of = f" of version {details['verdict_version']}" if "verdict_version" in details else ""
    return f"{details.get('by', 'somebody')} says {details.get('judgement', '')}{of}"


_TOLD: dict[str, Callable[[Details], str]] = {
    "opened": _opened,
    "asked": _asked,
    "answered": _answered,
    "judged": _judged,
    "published": _published,
    "closed": _closed,
    "feedback": _feedback,
}
