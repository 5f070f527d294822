"""Whether a job was ended from outside: by a signal to its launcher, Ctrl-C, a scheduler, a deleted pod.

No record says who sent a signal. There is how each process ended and when, and what launchers and schedulers say. A launcher
that is asked to stop ends its ranks at once; one that stops because a rank has died ends the others after that. So an own death
counts as the beginning unless it is clearly later than the first end by a signal that people and schedulers send.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from analyzers.diagnosis.crash.exits import CLEANUP_SECONDS, KILL, LEFT_SECONDS, LIMITS, TERMINATE
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.processes import End
from analyzers.model.processes import READ_AGAIN_SECONDS
from collectors.records import LogEvent

INTERRUPT = 2
ENDED_WELL = "its processes have ended well"
TYPED = frozenset({1, INTERRUPT, 3})  # SIGHUP, SIGINT, SIGQUIT: of a terminal; no launcher sends them after a failure
STOPS = TYPED | {TERMINATE}
TOGETHER_SECONDS = 10.0
READ_SECONDS = 1.5  # ends within one reading of an agent have no order
FAILED_SECONDS = 5.0  # a failure that was logged so long before the end is none of it
FAILURES = frozenset({"watchdog_timeout", "watchdog_abort", "cuda_error", "fatal_python", "oom_kill"})
INTERRUPTED = "KeyboardInterrupt"
LAUNCHED = frozenset({"exit", "torchrun_failure"})  # how a launcher reports the end of a rank
TYPED_SECONDS = 5.0  # a process that Ctrl-C breaks off may end after those that lost it
SAID = {
    "terminated": "its launcher was asked to stop", "cancelled": "it was cancelled", "time_limit": "it reached its time limit",
    "preempted": "it was preempted",
}  # fmt: skip
BEFORE_SECONDS = 30.0  # what is seen in the last seconds of a job that is ended is of its end
MOST_OF_FOUR = 3  # of four ranks, ended by a limit's signal, show that the others got it too
STOPPING_SECONDS = 600.0  # for which its last ranks may save what they have


class Stop(NamedTuple):
    """An end from outside: since when, and how, as a sentence; ``since``: what is seen later than that is of it."""

    at: float
    how: str
    since: float


def ended_from_outside(view: JobView, now: float) -> Stop | None:
    """Return how the job was or is being ended from outside; None: it is not, or a rank has died by itself before."""
    bad = bad_ends(view)
    own = [end for end in bad if end.seen and end.killed_by not in STOPS]
    said = _announced(view, bad)
    if said is not None:
        # A line without a stamp is dated by its reading, which is later.
        before = own and said.stamped and own[0].at < said.at - READ_SECONDS
        how = None if before else SAID[said.word]
    else:
        how = _by_signals(view, bad, own) if bad else None
    if how is None:
        return None
    at = min([end.at for end in bad] if said is None else [said.at, *(end.at for end in bad)])
    last_at = max((end.at for end in view.ended.values()), default=0.0)
    if view.processes.alive and now > max(at, last_at) + STOPPING_SECONDS:
        return None
    failed = [math.nextafter(one, math.inf) for one, _ in _logged(view, FAILURES) if one < at - FAILED_SECONDS]
    return Stop(at, how, since=max([at - BEFORE_SECONDS, *failed]))


def how_it_ended(view: JobView, now: float) -> str:
    """Say how a job has ended that did not die by itself; empty where it did, or has not ended."""
    if not view.ended or view.processes.alive:
        return ""
    if (stop := ended_from_outside(view, now)) is not None:
        return stop.how
    if all(end.well for end in view.ended.values()):
        return ENDED_WELL
    return "" if any(end.seen for end in view.ended.values()) else "how its processes ended was not seen"


def how_it_left(view: JobView) -> str:
    """Say that all ranks left with one exit code at once, and no log or device shows why; empty: they did not.

    A Ctrl-C that Python handles and an error that all ranks meet look like that. To start the job again could undo what a
    person did. A launcher that passes Ctrl-C on kills what has not left after half a minute, of which a busy machine may need
    most to end the first; one that answers a failure sends SIGTERM.
    """
    ends = list(view.ended.values())
    if len(ends) < max(2, view.world_size or 0) or view.processes.alive:
        return ""
    first_at = min(end.at for end in ends)
    most_left = 2 * sum(end.killed_by != KILL for end in ends) > len(ends)
    together_until = first_at + (LEFT_SECONDS if most_left else CLEANUP_SECONDS)
    left = [end for end in ends if end.killed_by != KILL or end.at < together_until]
    one_code = len({end.code for end in left}) == 1 and left[0].seen and not any(end.killed_by for end in left)
    shown = (seen.at for log in (view.logged, view.hardware) for seen in log.entries)
    if (
        left[0].well
        or not one_code
        or max(end.at for end in left) > first_at + LEFT_SECONDS
        or any(at >= first_at - BEFORE_SECONDS for at in shown)
    ):
        return ""
    return f"its processes left together {left[0].how()}, and no log shows why"


class _Announced(NamedTuple):
    at: float
    stamped: bool
    word: str


def _announced(view: JobView, bad: Sequence[End]) -> _Announced | None:
    """Return the first line since the job last moved in which a launcher or a scheduler states that it is ended.

    A line after which no rank ended for long was about something else, and one of an earlier run is about that.
    """
    since = max(view.run_began_at, bad[0].at - STOPPING_SECONDS if bad else 0.0)
    found = ((at, event) for at, event in _logged(view, SAID) if at >= since)
    return next((_Announced(at, event.at is not None, event.event) for at, event in found), None)


def _logged(view: JobView, names: Container[str]) -> Iterator[tuple[float, LogEvent]]:
    """Yield what the log reports of some kinds since the job last moved, and when."""
    since = view.settled_until
    for seen in view.logged.entries:
        if seen.at >= since and isinstance(seen.event, LogEvent) and seen.event.event in names:
            yield seen.at, seen.event


def bad_ends(view: JobView) -> list[End]:
    """Return the ends since the job last moved that were not good, the earliest first.

    A process without a number may come and go, as environment workers do: that one is gone is no failure. One scan may miss
    a process: an end that no agent saw counts once its agent has looked again.
    """
    since = view.settled_until
    reported = {event.rank: event for _, event in _logged(view, LAUNCHED | {"traceback"}) if _of_an_end(event)}
    bad = (_as_reported(end, reported) for end in view.ended.values() if not end.well and end.at >= since)
    found = [end for end in bad if not end.well and (end.seen or _is_confirmed(view, end))]
    return sorted(found, key=lambda end: (end.at, end.rank))


def _is_confirmed(view: JobView, end: End) -> bool:
    node = view.nodes.get(end.node)
    return not view.is_placed(end.rank) and node is not None and node.reported_until >= end.at + READ_AGAIN_SECONDS


def _of_an_end(event: LogEvent) -> bool:
    """Whether it reports how one rank ended: a launcher's word, or that Ctrl-C reached it."""
    return event.rank is not None and (event.event in LAUNCHED or event.exception == INTERRUPTED)


def _as_reported(end: End, reported: Mapping[int | None, LogEvent]) -> End:
    """Return an end with what the log reports of it: that of Ctrl-C, and a launcher's word where no agent saw it.

    ``reported``: the newest word on each rank.
    """
    if (event := reported.get(end.rank)) is None:
        return end
    if event.exception == INTERRUPTED:  # Python leaves with 1 where it was handling a lost connection then
        return end if end.killed_by else replace(end, code=None, signal=INTERRUPT)
    if end.seen:
        return end
    return replace(end, code=event.exit_code, signal=event.signal)


def _by_signals(view: JobView, bad: Sequence[End], own: Sequence[End]) -> str | None:
    stopped = [end for end in bad if end.killed_by in STOPS]
    typed = [end for end in stopped if end.killed_by in TYPED]
    if typed:  # those that lost their peers to the signal left with a code
        if not _covers(view, [end for end in bad if end.at <= typed[0].at + TOGETHER_SECONDS]):
            return None
        before = own and own[0].at < typed[0].at - TYPED_SECONDS
        return None if before else f"its processes were sent signal {typed[0].killed_by}"
    if stopped:
        before = own and own[0].at < stopped[0].at + READ_SECONDS
        together = [end for end in stopped if end.at <= stopped[0].at + TOGETHER_SECONDS]
        return None if before or not _covers(view, together) else "its processes were sent SIGTERM"
    for signal in (KILL, *sorted(LIMITS)):
        if _got_all(view, [end for end in own if end.killed_by == signal and end.at <= own[0].at + TOGETHER_SECONDS]):
            return (
                "all its processes were killed at once"
                if signal == KILL
                else f"signal {signal} ended all its processes"
            )
    return None


def _got_all(view: JobView, ends: Sequence[End]) -> bool:
    """Whether these are all that still ran (a role may have ended before), and none of them died by itself.

    A limit's signal can be caught: the few that save what they have, and leave well, got it too.
    """
    standing = (
        [rank for rank in view.ranks if rank not in view.ended or view.ended[rank].at >= ends[0].at] if ends else []
    )
    if len(standing) < 2 or _died_first(view, ends):
        return False
    if ends[0].killed_by not in LIMITS:
        return len(ends) == len(standing)
    left_well = [rank for rank in standing if rank in view.ended and view.ended[rank].well]
    save = [rank for rank in standing if rank not in view.ended]
    most = not save or 4 * len(ends) >= MOST_OF_FOUR * len(standing)
    return most and len(ends) + len(left_well) + len(save) == len(standing)


def _died_first(view: JobView, killed: Sequence[End]) -> bool:
    """Whether of processes that were all killed one died by itself: for memory, or clearly before the others of its node."""
    if any(map(view.processes.killed_for_memory, killed)) or any(_logged(view, ("oom_kill",))):
        return True
    others = [end.at for end in killed[1:] if end.node == killed[0].node]
    return bool(others) and min(others) > killed[0].at + READ_SECONDS


def _covers(view: JobView, ends: Sequence[End]) -> bool:
    """Whether these are most ranks of the job, or all of a node that has several: one rank alone may be one process's matter."""
    ranks = {end.rank for end in ends}
    if 2 * len(ranks) > len(view.ranks):
        return True
    here = {rank for rank, node in view.ranks.items() if node == ends[0].node}
    return len(here) > 1 and here <= ranks
