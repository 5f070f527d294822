"""What the platform's own lines say of a job: how it was ended, what its pods wait for, what failed before."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from analyzers.diagnosis.crash.failures import Failure
from collectors.records import LogEvent


def how_ended(events: Sequence[LogEvent]) -> str:
    """Return how the job was ended from outside, in words: by the signal that its lines name, or a cancellation."""
    if any(event.signal == signal.SIGINT or event.exception == "KeyboardInterrupt" for event in events):
        return "interrupted (SIGINT)"
    if any(event.signal == signal.SIGHUP for event in events):
        return "ended with its terminal (SIGHUP)"
    if all(event.event == "cancelled" for event in events):
        return "cancelled"
    return "asked to end (SIGTERM)"


def older_than(own: Sequence[Failure], events: Sequence[LogEvent], seconds: float) -> bool:
    """Return whether a rank failed by itself well before the first of the events; unknown times prove nothing."""
    first = min((event.at for event in events if event.at is not None), default=None)
    mine = [failure.event.at for failure in own if failure.event is not None and failure.event.at is not None]
    return first is not None and any(at < first - seconds for at in mine)


def still_waits(classified: Sequence[tuple[str, LogEvent]]) -> list[LogEvent]:
    """Return what a pod waits for and no later line says that it got; a container that runs has a place, too."""
    waits: list[LogEvent] = []
    for kind, event in classified:
        if kind == "waits_for_place":
            waits.append(event)
        elif kind == "got_place":
            waits = [one for one in waits if event.operation not in {one.operation, "start"}]
    return waits
