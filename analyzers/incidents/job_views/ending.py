"""Whether a job was ended from outside: by a signal to its launcher, Ctrl-C, a scheduler, a deleted pod.

No record has who sent a signal. There is how each process ended and when, and what launchers and schedulers say. A launcher
that is asked to stop ends its ranks at once; one that stops because a rank has died ends the others after that. So an own death
counts as the beginning unless it is clearly later than the first end by a signal that people and schedulers send.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.processes import End
from collectors.records import LogEvent

TYPED = frozenset({1, 2, 3})  # SIGHUP, SIGINT, SIGQUIT: of a terminal; no launcher sends them after a failure
STOPS = TYPED | {15}
KILL = 9
TOGETHER_SECONDS = 10.0
READ_SECONDS = 1.5  # ends within one reading of an agent have no order
TYPED_SECONDS = 3.0  # a process that Ctrl-C breaks off may end after those that lost it
SAID = {
    "terminated": "its launcher was asked to stop", "cancelled": "it was cancelled", "time_limit": "it reached its time limit",
    "preempted": "it was preempted",
}  # fmt: skip
BEFORE_SECONDS = 30.0  # what is seen in the last seconds of a job that is ended is of its end
STOPPING_SECONDS = 600.0  # for which its last ranks may save what they have


class Stop(NamedTuple):
    """An end from outside: since when, and how, as a sentence."""

    at: float
    how: str


def ended_from_outside(view: JobView, now: float) -> Stop | None:
    """Return how the job was or is being ended from outside; None: it is not, or a rank has died by itself before."""
    bad = bad_ends(view)
    own = [end for end in bad if end.seen and end.killed_by not in STOPS]
    said = _said(view)
    if said is not None:
        # A line without a stamp is dated by its reading, which is later.
        before = own and said.stamped and own[0].at < said.at - READ_SECONDS
        found = None if before else Stop(min([said.at, *(end.at for end in bad)]), SAID[said.word])
    else:
        how = _by_signals(view, bad, own) if bad else None
        found = None if how is None else Stop(bad[0].at, how)
    last_at = max((end.at for end in view.ended.values()), default=0.0)
    if found is None or (view.processes.alive and now > max(found.at, last_at) + STOPPING_SECONDS):
        return None
    return found


def how_it_ended(view: JobView, now: float) -> str:
    """Say how a job has ended that did not die by itself; empty where it did, or has not ended."""
    if not view.ended or view.processes.alive:
        return ""
    if (stop := ended_from_outside(view, now)) is not None:
        return stop.how
    if all(end.well for end in view.ended.values()):
        return "its processes have ended well"
    return "" if any(end.seen for end in view.ended.values()) else "how its processes ended was not seen"


class _Said(NamedTuple):
    at: float
    stamped: bool
    word: str


def _said(view: JobView) -> _Said | None:
    """Return the first line since the job last moved in which a launcher or a scheduler states that it is ended."""
    since = view.settled_until
    for seen in view.logged.entries:
        if seen.at >= since and isinstance(seen.event, LogEvent) and seen.event.event in SAID:
            return _Said(seen.at, seen.event.at is not None, seen.event.event)
    return None


def bad_ends(view: JobView) -> list[End]:
    """Return the ends since the job last moved that were not good, the earliest first.

    A process without a number may come and go, as environment workers do: that one is gone is no failure.
    """
    since = view.settled_until
    bad = (end for end in view.ended.values() if not end.well and end.at >= since)
    found = [end for end in bad if end.seen or not view.is_placed(end.rank)]
    return sorted(found, key=lambda end: (end.at, end.rank))


def _by_signals(view: JobView, bad: Sequence[End], own: Sequence[End]) -> str | None:
    stopped = [end for end in bad if end.killed_by in STOPS]
    typed = [end for end in stopped if end.killed_by in TYPED]
    if typed:
        before = own and own[0].at < typed[0].at - TYPED_SECONDS
        return None if before else f"its processes were sent signal {typed[0].killed_by}"
    if stopped:
        before = own and own[0].at < stopped[0].at + READ_SECONDS
        together = [end for end in stopped if end.at <= stopped[0].at + TOGETHER_SECONDS]
        return None if before or not _covers(view, together) else "its processes were sent SIGTERM"
    killed = [end for end in own if end.killed_by == KILL and end.at <= own[0].at + TOGETHER_SECONDS]
    if 1 < len(killed) == len(view.ranks) and not any(map(view.processes.killed_for_memory, killed)):
        return "all its processes were killed at once"
    return None


def _covers(view: JobView, ends: Sequence[End]) -> bool:
    """Whether these are most ranks of the job, or all of a node that has several: one rank alone may be one process's matter."""
    ranks = {end.rank for end in ends}
    if ranks >= view.ranks.keys() or (2 * len(ranks) >= len(view.ranks) and len(view.ranks) > 1):
        return True
    here = {rank for rank, node in view.ranks.items() if node == ends[0].node}
    return len(here) > 1 and here <= ranks
