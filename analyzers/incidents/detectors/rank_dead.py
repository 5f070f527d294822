"""A rank's process has ended with a failure, and the whole job was not ended from outside.

A scheduler that stops a job sends SIGTERM to all ranks, then SIGKILL to those that remain; a launcher kills the rest after a
rank has failed. So an end by a signal is a symptom only once it is clear that not all ranks end.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.diagnosis.crash.exits import KILL, LIMITS, TERMINATE
from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.ending import STOPS, bad_ends
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.processes import End
from analyzers.incidents.job_views.role_stalls import apart, instances_of, is_given_up
from analyzers.model.incident import Symptom

ASKED_SECONDS = 8.0  # after which a lone SIGTERM was not the first of many
UNSEEN_SECONDS = 15.0  # the same for an end that was not seen
KILLED_SECONDS = 3.0  # and for a lone SIGKILL or signal of a limit
LEFT_SECONDS = 3.0  # and for an exit code: Ctrl-C leaves ranks that lost a peer, and their peer ends after them
MOST_NAMED = 64


@detector("rank_dead")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a crash for the ranks that died, until the job goes on without them; one for each that works by itself."""
    for bad in _lost(view):
        first = bad[0]
        if _is_unseen(view, bad) or now < first.at + _patience(bad):
            continue
        yield Symptom(
            kind="crash",
            detector="rank_dead",
            at=first.at,
            text=f"the process of {view.name(first.rank)} on {first.node} ended {first.how()}{_others(bad)}",
            ranks=tuple(end.rank for end in bad[:MOST_NAMED]),
            nodes=(first.node,),
        )


def clear_at(view: JobView, now: float) -> float | None:
    """Return from when on it is clear whether further ends of ranks are a symptom; None: that is clear."""
    return min((at for bad in _lost(view) if (at := bad[0].at + _patience(bad)) > now), default=None)


def _lost(view: JobView) -> list[list[End]]:
    """Return the bad ends but those of instances that a role gave up before, those that may be of one fault together."""
    bad = bad_ends(view) if view.ended else []
    known = instances_of(view) if bad else {}
    kept = [end for end in bad if not is_given_up(view, end, known)]
    return apart(view, kept, [end.rank for end in kept])


def _others(bad: list[End]) -> str:
    """Say how the ranks after the first ended: those that a launcher ended for it did not fail."""
    first, *rest = bad
    ended = [end for end in rest if first.killed_by is None and end.killed_by in {TERMINATE, KILL}]
    own, signals = len(rest) - len(ended), sorted({str(end.killed_by) for end in ended})
    text = f", and {own} more" if own else ""
    if ended:
        by = f"signal{'s' if len(signals) > 1 else ''} {' and '.join(signals)}"
        text += f"; {len(ended)} more {'was' if len(ended) == 1 else 'were'} then ended by {by}, as a launcher ends the rest"
    return text


def _is_unseen(view: JobView, bad: list[End]) -> bool:
    """Whether all have ended and how may not be visible: most jobs end well."""
    return not view.processes.alive and not any(end.seen for end in bad)


def _patience(bad: list[End]) -> float:
    """Return how long to wait for the ends of other ranks; a crash needs no wait."""
    signals = {end.killed_by for end in bad if end.seen}
    if signals - STOPS - {KILL, *LIMITS, None}:
        return 0.0
    if None in signals:
        return LEFT_SECONDS
    if signals & {KILL, *LIMITS}:
        return KILLED_SECONDS
    return ASKED_SECONDS if signals else UNSEEN_SECONDS
