"""Errors that a log states in the words of a closed vocabulary, on lines of programs that no rule is about.

They are weaker than a line that is known: they count where nothing stronger shows why a process failed, and for less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from collectors.records import OF_SERVICES, LogEvent

STATED, NCCL_WARNED = "stated", "nccl_warned"
OF_WORDS = frozenset({STATED, NCCL_WARNED})
SHARE = 0.75  # of the strength that a known line gives
_EXPLAINS_NOTHING = frozenset({"", "launcher", "echo", "watchdog", "exit", "aborted", "closing", "terminated"})
"""Kinds beside which an error that a line states may be the reason."""
UNANSWERED = "UNANSWERED_"


def kind_of_code(code: str | None, kinds: Mapping[str, Sequence[str]]) -> str:
    """Return the kind of failure that an error's name is of; "" for one that says nothing of a cause."""
    name = code or ""
    if exact := next((kind for kind, names in kinds.items() if name in names), None):
        return exact
    return next((kind for kind, names in kinds.items() if any(_fits(name, each) for each in names)), "")


def _fits(name: str, pattern: str) -> bool:
    return pattern.endswith("*") and name.startswith(pattern[:-1])


def with_stated(classified: Iterable[tuple[str, LogEvent]], kinds: Mapping[str, Any]) -> Iterator[tuple[str, LogEvent]]:
    """Yield the events with their kinds; what lines state counts only where no known line says more.

    An exception that no rule is about is of the kind of the error that its message names.
    """
    known = [(_by_message(kind, event, kinds), event) for kind, event in classified]
    weak = all(_explains_nothing(kind, event) for kind, event in known if event.event not in OF_WORDS)
    for kind, event in known:
        if event.event not in OF_WORDS or kind:
            yield kind, event
        elif weak:
            yield kind_of_code(event.code, kinds), event


def _by_message(kind: str, event: LogEvent, kinds: Mapping[str, Any]) -> str:
    code = event.code or ""
    if code.startswith(UNANSWERED):  # its library says whom it asked, and the exception that no answer came
        return kind_of_code(code, kinds) if kind in {"echo", "network"} and event.event == "traceback" else kind
    answered = kind in {"echo", "network", "storage"} and code.startswith(OF_SERVICES)
    named = (kind == "user" or answered) and event.event == "traceback"
    return (kind_of_code(event.code, kinds) or kind) if named else kind


def _explains_nothing(kind: str, event: LogEvent) -> bool:
    """Whether an error beside it may be the reason; so for an exception that no rule is about, and of which no frame is left."""
    return kind in _EXPLAINS_NOTHING or (kind == "user" and event.event == "traceback" and not event.frames)


def is_stated(events: Iterable[LogEvent | None]) -> bool:
    """Whether errors that lines state are all that shows a failure."""
    return all(event is not None and event.event in OF_WORDS for event in events)
