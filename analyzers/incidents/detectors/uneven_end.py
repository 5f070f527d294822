"""Some ranks have ended well and others train on: they will wait for those that have ended."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.role_stalls import instances_of, works_alone
from analyzers.model.incident import Symptom

ALONE_SECONDS = 60.0
MOST_NAMED = 64


@detector("uneven_end")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hang where the last end was a minute ago, all were good, and some ranks are left."""
    gone, running = _uneven(view)
    if not gone or not all(end.well for end in view.ended.values()):
        return
    last_at = max(view.ended[number].at for number in gone)
    heard_at = max(node.reported_until for node in view.nodes.values())
    if min(now, heard_at) <= last_at + ALONE_SECONDS or view.went_on(last_at):
        return
    yield Symptom(
        kind="hang",
        detector="uneven_end",
        at=last_at,
        text=f"{len(gone)} ranks have ended with exit code 0, the last {now - last_at:.0f} s ago, "
        f"and {running} still run (bound {ALONE_SECONDS:.0f} s)",
        ranks=tuple(gone[:MOST_NAMED]),
    )


def _uneven(view: JobView) -> tuple[list[int], int]:
    """Return the ranks that have ended in roles that go on, and how many of those still run; a role may end as a whole."""
    if not view.ended:  # nearly always: nothing is to be counted
        return [], 0
    gone, running = defaultdict[str, list[int]](list), Counter[str]()
    known = instances_of(view)
    for number in view.ranks:
        role = view.numbering.of(number)[0] if view.numbering.several else ""
        if view.is_placed(number) or works_alone(view, number, known):
            continue  # workers without a number come and go, and so do rollouts
        if number in view.ended:
            gone[role].append(number)
        else:
            running[role] += 1
    uneven = [role for role in gone if running[role]]
    return sorted(number for role in uneven for number in gone[role]), sum(running[role] for role in uneven)
