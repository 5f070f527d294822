"""A rank's process is stopped (SIGSTOP), or stuck in the kernel without any CPU time, whatever the steps say.

A debugger's stop is another state. Where all ranks are stopped the job is suspended from outside, as a scheduler or Ctrl-Z does;
a node that has not reported since may be a part of that.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.processes import SAME_SECONDS, STOPPED
from analyzers.incidents.job_views.role_stalls import apart
from analyzers.model.incident import Symptom

HELD_SECONDS = 20.0
WORDS = {"T": "is stopped (state T)", "D": "has been stuck in the kernel without any CPU time (state D)"}
MOST_NAMED = 64


@detector("rank_stopped")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hang for the ranks that all readings of twenty seconds found stopped or stuck; one each that works by itself."""
    del now
    processes = view.processes
    long = [one for one in processes.held.values() if one.seconds >= HELD_SECONDS - SAME_SECONDS]
    if not long or 1 < processes.alive <= sum(one.state == STOPPED for one in processes.held.values()):
        return
    newest = {one.node: one for one in sorted(long, key=lambda one: one.until) if one.state == STOPPED}
    alone = {node for node, one in newest.items() if processes.ran_beside(one)}
    held = sorted(
        (one for one in long if one.state != STOPPED or one.node in alone), key=lambda one: (one.since, one.rank)
    )
    for group in apart(view, held, [one.rank for one in held]):
        first = group[0]
        others = f", and {len(group) - 1} more" if len(group) > 1 else ""
        yield Symptom(
            kind="hang",
            detector="rank_stopped",
            at=first.since,
            text=f"the process of {view.name(first.rank)} on {first.node} {WORDS[first.state]} for {first.seconds:.0f} s"
            f"{others} (bound {HELD_SECONDS:.0f} s)",
            ranks=tuple(one.rank for one in group[:MOST_NAMED]),
            nodes=tuple(sorted({one.node for one in group})[:MOST_NAMED]),
        )
