"""Some ranks have ended well and others train on: they will wait for those that have ended."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.model.incident import Symptom

ALONE_SECONDS = 60.0
MOST_NAMED = 64


@detector("uneven_end")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a hang where the last end was a minute ago, all were good, and some ranks are left."""
    if not view.ended or not view.processes.alive or not all(end.well for end in view.ended.values()):
        return
    last_at = max(end.at for end in view.ended.values())
    heard_at = max(node.reported_until for node in view.nodes.values())
    if min(now, heard_at) <= last_at + ALONE_SECONDS or view.went_on(last_at):
        return
    gone = sorted(view.ended)
    yield Symptom(
        kind="hang",
        detector="uneven_end",
        at=last_at,
        text=f"{len(gone)} ranks have ended with exit code 0, the last {now - last_at:.0f} s ago, "
        f"and {view.processes.alive} still run (bound {ALONE_SECONDS:.0f} s)",
        ranks=tuple(gone[:MOST_NAMED]),
    )
