"""A rank's process has ended with a failure, and the whole job was not ended from outside.

A scheduler that stops a job sends SIGTERM to all ranks, then SIGKILL to those that remain; a launcher kills the rest after a
rank has failed. So an end by a signal is a symptom only once it is clear that not all ranks end.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.processes import End
from analyzers.model.incident import Symptom

STOPS = frozenset({2, 15})  # SIGINT, SIGTERM: what a person or a scheduler sends
KILL = 9
ASKED_SECONDS = 8.0  # after which a lone SIGTERM was not the first of many
UNSEEN_SECONDS = 15.0  # the same for an end that was not seen
KILLED_SECONDS = 3.0  # and for a lone SIGKILL
TOGETHER_SECONDS = 10.0
MOST_NAMED = 64


@detector("rank_dead")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a crash for the ranks that died, until the job goes on without them."""
    if not view.ended:
        return
    since = view.settled_until
    bad = [end for end in view.ended.values() if not end.well and end.at >= since]
    bad.sort(key=lambda end: (end.at, end.rank))
    if not bad or _is_stopped(view, bad) or now < bad[0].at + _patience(bad):
        return
    first = bad[0]
    others = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
    yield Symptom(
        kind="crash",
        detector="rank_dead",
        at=first.at,
        text=f"the process of rank {first.rank} on {first.node} ended {first.how()}{others}",
        ranks=tuple(end.rank for end in bad[:MOST_NAMED]),
        nodes=(first.node,),
    )


def _is_stopped(view: JobView, bad: list[End]) -> bool:
    """Whether the job was ended from outside: most ranks end by SIGTERM at once, the first too, or all by SIGKILL."""
    if not view.processes.alive and not any(end.seen for end in bad):
        return True  # all have ended, and how may not be visible: most jobs end well
    first = bad[0]
    together = [end for end in bad if end.at <= first.at + TOGETHER_SECONDS]
    asked = sum(end.killed_by in STOPS for end in together)
    if first.killed_by in STOPS and 2 * asked >= len(view.ranks) and len(view.ranks) > 1:
        return True
    killed = [end for end in together if end.killed_by == KILL]
    return len(killed) > 1 and len(killed) == len(view.ranks)


def _patience(bad: list[End]) -> float:
    """Return how long to wait for the ends of other ranks; an exit code or a crash needs no wait."""
    signals = {end.killed_by for end in bad if end.seen}
    if signals - STOPS - {KILL}:
        return 0.0
    if KILL in signals:
        return KILLED_SECONDS
    return ASKED_SECONDS if signals else UNSEEN_SECONDS
