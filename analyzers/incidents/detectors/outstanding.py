"""A collective that most of its members have been in for too long, in a job that reports no steps.

Where steps are reported they decide: collectives of a healthy job overlap, and a captured graph hides them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.role_stalls import silence_counts_from, states_no_phase
from analyzers.incidents.job_views.waits import OpenOperation
from analyzers.model.incident import Symptom
from analyzers.model.role_loops import TAIL_SECONDS

SHORTEST_SECONDS, P99_FACTOR = 30.0, 3.0
REPORT_SECONDS = 60.0  # two equal RAS reports, which come every thirty seconds
START_SECONDS = 600.0  # a job that has not moved for this long may still be starting
FRESH_SECONDS = 30.0


@detector("outstanding")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hang that the rings show, or, without rings, NCCL's own counts."""
    del now
    if view.newest_step is not None or (view.ended and not view.processes.alive):
        return
    # One trainer may ask for experience while the others are in a collective that distributes it.
    if silence_counts_from(view) is None or (states_no_phase(view) and _still_seconds(view) <= TAIL_SECONDS):
        return
    if view.waits.rings:
        yield from _rings(view)
    elif view.waits.communicators:
        yield from _communicators(view)


def _still_seconds(view: JobView) -> float:
    waits = view.waits
    return waits.looked_at - waits.moved_at if waits.rings else waits.counted_at - waits.changed_at


def _rings(view: JobView) -> Iterator[Symptom]:
    waits = view.waits
    if waits.looked_at - waits.moved_at <= SHORTEST_SECONDS:
        return
    allowed = (
        max(SHORTEST_SECONDS, P99_FACTOR * waits.p99_seconds())
        if waits.moved_seconds > START_SECONDS
        else START_SECONDS
    )
    if waits.looked_at - waits.moved_at <= allowed:
        return
    fresh = {rank: ring for rank, ring in waits.rings.items() if ring.at >= waits.looked_at - FRESH_SECONDS}
    still = {rank: ring.inside for rank, ring in fresh.items() if ring.inside and ring.at - ring.inside.since > allowed}
    if not still:
        return
    (group, sequence, operation), count = Counter(map(_name, still.values())).most_common(1)[0]
    ranks = tuple(sorted(rank for rank, inside in still.items() if _name(inside) == (group, sequence, operation)))
    members = still[ranks[0]].members
    if 2 * count < len(members or fresh) and 2 * len(still) < len(fresh):
        return
    since = min(still[rank].since for rank in ranks)
    yield Symptom(
        kind="hang",
        detector="outstanding",
        at=since,
        text=f"{operation} {sequence or ''} of group {group} has been open on {count} ranks for "
        f"{waits.looked_at - since:.0f} s, longer than {allowed:.0f} s, and nothing else has moved",
        ranks=ranks[:64],
    )


def _name(inside: OpenOperation) -> tuple[str, int, str]:
    return inside.group, inside.sequence, inside.operation


def _communicators(view: JobView) -> Iterator[Symptom]:
    found = view.waits.communicators
    newest_at = max(one.at for one in found.values())
    changed_at = max(one.since for one in found.values())
    started = view.waits.counted_seconds > START_SECONDS
    allowed = REPORT_SECONDS if started else START_SECONDS
    uneven = {name: one for name, one in found.items() if one.behind and one.at >= newest_at - FRESH_SECONDS}
    if newest_at - changed_at <= allowed or not uneven:
        return
    name = min(uneven)
    text = f"NCCL's counts have stood still for {newest_at - changed_at:.0f} s, longer than {allowed:.0f} s, and in "
    text += f"communicator {name} {uneven[name].behind} ranks have launched less than the others"
    yield Symptom(kind="hang", detector="outstanding", at=changed_at, text=text)
