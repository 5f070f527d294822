"""An attempt that its launcher has restarted: which of its symptoms still count, until when its records are, how it closes.

A launcher starts the next attempt within a second or two, before ends and logs have all been read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from analyzers.incidents.job_views import JobView
from analyzers.incidents.job_views.ending import STOPS, TYPED, TYPED_SECONDS, bad_ends
from analyzers.model.incident import Incident, Symptom
from collectors.records.identity import plain

SAME_START_SECONDS = 1.0  # in which the processes of a run start, and by which clocks differ
READ_SECONDS = 60.0  # after the next attempt began: agents have read ends and logs by then


def number_of(view: JobView) -> int:
    """Return the number of an attempt; without one it comes before all numbered ones."""
    return -1 if view.attempt is None else view.attempt


def going_on(view: JobView, attempts: Iterable[JobView], declared: Iterable[str] = ()) -> list[JobView]:
    """Return an attempt, and those later ones of its job that go on from it. ``attempts``: of any jobs.

    One goes on where a node of an earlier one takes part in it, or a declared one. Others may be inventions of a stranger.
    """
    found, known = [view], {plain(node) for node in (*view.nodes, *declared)}
    later = (one for one in attempts if one.job == view.job and number_of(one) > number_of(view))
    for one in sorted(later, key=number_of):
        nodes = {plain(node) for node in one.nodes}
        if not view.nodes or not known.isdisjoint(nodes):
            found.append(one)
            known |= nodes
    return found


def restarted_at(view: JobView, attempts: Iterable[JobView]) -> float | None:
    """Return when the next attempt of the same job began; None: none has. ``attempts``: of any jobs."""
    later = [one.first_at for one in attempts if one.job == view.job and number_of(one) > number_of(view)]
    return min((at for at in later if at > view.first_at or view.attempt is None), default=None)


def counting(view: JobView, shown: list[Symptom], incident: Incident | None, at: float, now: float) -> list[Symptom]:
    """Return what counts of an attempt after its restart at ``at``: what came before, and of a new incident the crash alone.

    The nodes' records belong to the next attempt then, those without an attempt to the numbered ones. Launchers and schedulers
    also end attempts that were well: that ranks were sent a signal, or that their ends were not seen, is no crash then.
    """
    before = [one for one in shown if one.at <= at]
    if incident is not None:
        return before
    if view.attempt is None or now > at + READ_SECONDS:
        return []
    died = any(end.seen and end.killed_by not in STOPS for end in bad_ends(view))
    return [one for one in before if one.kind == "crash" and (died or one.detector != "rank_dead")]


def between_runs(view: JobView) -> float:
    """Return the instant up to which records are of the run before, where processes were started anew under the same number.

    Halfway from the last end that was seen to the first start: a loop starts the next run within a second, and the last words of
    the run before may be dated after its ends.
    """
    began_at = view.run_began_at
    ends = (end.at for end in view.processes.former.values())
    last = max((at for at in ends if began_at - SAME_START_SECONDS < at <= began_at), default=None)
    return began_at - SAME_START_SECONDS if last is None else (last + began_at) / 2


def befell_before(view: JobView) -> float:
    """Return up to when symptoms are of an earlier run of the same number that no rank died in by itself.

    A person ends it and starts it again, and its last words are read when the next run is there already.
    """
    former = [end for end in view.processes.former.values() if end.seen and not end.well]
    together = {end.code for end in former} == {1} and len(former) > 1  # as after Ctrl-C
    asked = (end.at - (TYPED_SECONDS if end.killed_by in TYPED else 0.0) for end in former if end.killed_by in STOPS)
    asked_at = min(
        asked, default=math.inf
    )  # what loses a peer, or does not leave when asked, ends later in another way
    died = not together and any(end.killed_by not in STOPS and end.at < asked_at for end in former)
    return 0.0 if died else view.run_began_at


def why_restarted(view: JobView, attempts: Iterable[JobView], *, crashed: bool) -> str | None:
    """Say that a later attempt runs: it does steps, or its processes were started after a crash; None: none does."""
    later = [one for one in attempts if one.job == view.job and number_of(one) > number_of(view)]
    newest = max((one for one in later if one.newest_step is not None), key=number_of, default=None)
    if newest is not None:
        return f"the job was restarted: attempt {newest.attempt} is at step {newest.newest_step}"
    newest = max((one for one in later if crashed and one.processes.alive), key=number_of, default=None)
    return None if newest is None else f"the job was restarted: attempt {newest.attempt} runs"
