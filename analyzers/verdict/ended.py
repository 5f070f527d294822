"""Which processes the logs show as ended: of those no stack can be taken, and a dump of them shows no more."""

from __future__ import annotations

from analyzers.model.finding import Evidence
from analyzers.model.topology import Topology
from analyzers.model.window import Window
from collectors.records import ENGINE_DIED, LogEvent

MOST_SHOWN = 3  # lines
_BY_CODE = frozenset({"torchrun_failure", "exit", "container_end"})
_BY_WORDS = frozenset({"worker_died", "actor_died"})
"""A framework's own word for a process that is gone; it seldom has a code."""
_BY_ITSELF = frozenset({"traceback", "fatal_python", "watchdog_abort"})
"""What a process prints last: a job that went on after it has had it left out."""


def with_error(window: Window) -> bool:
    """Return whether a launcher reports an end with an error, a watchdog ends its process, or an engine has died."""
    events = window.records_of(LogEvent)
    if any(event.event in {"watchdog_abort", ENGINE_DIED} for event in events):
        return True
    return any(event.exit_code or event.signal for event in events if event.event in _BY_CODE)


def of_all(window: Window, topology: Topology) -> bool:
    """Return whether no process runs any more: torchrun, which ends all with the first, reports it, or each rank's end is."""
    events = window.records_of(LogEvent)
    if any(event.event == "torchrun_failure" for event in events):
        return True
    own = [event for event in events if event.event in _BY_ITSELF]
    return bool(topology.ranks) and {event.rank for event in (*own, *reported(window))} >= set(topology.ranks)


def reported(window: Window) -> list[LogEvent]:
    """Return the lines that report a process as gone: with an error's code, or without one."""
    return [
        event
        for event in window.records_of(LogEvent)
        if event.event in _BY_WORDS
        or (event.event in _BY_CODE and (event.exit_code or event.signal or event.exit_code is None))
    ]


def shown(window: Window) -> tuple[Evidence, ...]:
    """Return the first of these lines as evidence."""
    return tuple(Evidence(text=one.text, source=one.source, at=one.at) for one in reported(window)[:MOST_SHOWN])
