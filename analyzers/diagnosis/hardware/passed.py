"""Which trouble of a host is over: it passed, and the job went on afterwards.

A kernel log keeps weeks, and an agent that starts reads it from its beginning. A GPU that was lost stays lost; a processor that
was stuck for a while is free again, and what the job shows hours later has nothing to do with it.
"""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.model.window import Window, last_activity_ns
from collectors.records import KernelEvent, Steps

PASSING = frozenset({"soft_lockup", "rcu_stall", "hung_task", "oom_kill", "segfault"})
PASSED_SECONDS = 300.0  # a kernel reports a stuck processor again every minute or less for as long as it is stuck


def without_passed(events: Iterable[KernelEvent], window: Window) -> list[KernelEvent]:
    """Leave out what passed and was followed by progress of its node and of the job; only a known clock can show that."""
    known = list(events)
    if not any(event.event in PASSING for event in known):
        return known
    of_job, of_node = _went_on(window)
    return [event for event in known if not _passed(event, min(of_job, of_node.get(event.node or "", of_job)))]


def _passed(event: KernelEvent, went_on_at: float) -> bool:
    # With both clocks of one boot nothing is guessed: a line of text may lack its zone, or its year.
    known = None not in (event.boot_id, event.monotonic_at, event.at)
    return known and event.event in PASSING and (event.at or 0.0) + PASSED_SECONDS < went_on_at


def _went_on(window: Window) -> tuple[float, dict[str, float]]:
    """Return when most of the ranks last launched a collective or reported a step, and when those of each node did."""
    launched = {(dump.node, dump.rank): last_activity_ns(dump) / 1e9 for dump in window.dumps}
    stepped = {
        (steps.node, steps.rank): steps.at for steps in window.records_of(Steps) if steps.at is not None and steps.count
    }  # in order of time
    of_node: dict[str, float] = {}
    for (node, _), at in (*launched.items(), *stepped.items()):
        of_node[node or ""] = max(of_node.get(node or "", 0.0), at)
    return max(_most(launched.values()), _most(stepped.values())), of_node


def _most(instants: Iterable[float]) -> float:
    """Return what at least half of them reach: one wild clock does not make it."""
    ordered = sorted(instants)
    return ordered[len(ordered) // 2] if ordered else 0.0
