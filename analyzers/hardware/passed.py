"""Which trouble of a host is over: it passed, and the job went on after it.

A kernel log keeps weeks, and an agent that starts reads it from its beginning. A GPU that was lost stays lost; a processor that
was stuck for a while is free again, and what the job shows hours later has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.window import Window, last_activity_ns
from collectors.records import KernelEvent, Placement, ProcessState, Steps

PASSING = frozenset({"soft_lockup", "hard_lockup", "rcu_stall", "hung_task", "oom_kill", "segfault"})
PASSED_SECONDS = 300.0  # a kernel tells of a stuck processor again every minute or less for as long as it is stuck


def without_passed(events: Iterable[KernelEvent], window: Window) -> list[KernelEvent]:
    """Leave out what passed and was followed by progress of the job; only a clock that is known can tell that."""
    went_on_at = _went_on_at(window)
    return [event for event in events if not _passed(event, went_on_at)]


def _passed(event: KernelEvent, went_on_at: float) -> bool:
    known = event.boot_id is not None and event.at is not None  # read live: no stamp whose zone or year is guessed
    return known and event.event in PASSING and (event.at or 0.0) + PASSED_SECONDS < went_on_at


def _went_on_at(window: Window) -> float:
    """Return the newest instant at which most of the ranks began, or launched a collective, or told of a step."""
    started, launched, stepped = {}, {}, {}
    ranked = {pid for record in window.of(Placement) for pid in record.pids}
    for row in window.of(ProcessState):
        if row.started_at is not None and (row.rank is not None or row.pid in ranked):
            started[row.node, row.pid] = row.started_at
    for dump in window.dumps:
        launched[dump.rank] = last_activity_ns(dump) / 1e9
    for steps in window.of(Steps):  # in order of time
        if steps.at is not None and steps.count:
            stepped[steps.node, steps.rank] = steps.at
    return max(_most(told.values()) for told in (started, launched, stepped))


def _most(instants: Iterable[float]) -> float:
    """Return what at least half of them reach: one wild clock does not make it."""
    told = sorted(instants)
    return told[len(told) // 2] if told else 0.0
