"""What happened with an incident, as one sentence a line, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Details = Mapping[str, Any]


def said(kind: str, details: Details) -> str:
    """Return what a happening tells beside its kind; of a kind that is not known, all that it has."""
    tell = _TOLD.get(kind)
    if tell is not None:
        return tell(details)
    return details.get("text") or ", ".join(f"{name} {value}" for name, value in details.items())


def _opened(details: Details) -> str:
    return f"{details.get('kind', 'a symptom')}: {details.get('text', '')}"


def _asked(details: Details) -> str:
    nodes = details.get("nodes", 0)
    return f"{nodes} node{'s' if nodes != 1 else ''} for {details.get('verb', 'evidence')}"


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
    "published": _published,
    "closed": _closed,
    "feedback": _feedback,
}
