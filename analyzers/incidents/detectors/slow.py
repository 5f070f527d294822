"""Steps that take a tenth longer than before, for two minutes, by the job's own past (``job_views/step_pace.py``).

Of a job of several roles the steps wait for rollouts, whose lengths vary: nothing is said of those.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.incidents.job_views.pace_changes import LEAST_SECONDS, SLOWER_SHARE, Slowdown
from analyzers.model.incident import Symptom


@detector("slow")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a slowdown for as long as it lasts."""
    del now  # the steps' own instants count
    found = view.progress.slowdown
    if found is None or view.numbering.several or (view.ended and not view.processes.alive):
        return
    yield Symptom(kind="slow", detector="slow", at=found.since, text=in_words(found))


def in_words(found: Slowdown) -> str:
    """Say since when steps take longer, and by how much."""
    bound = f"bound {100 * SLOWER_SHARE:.0f} % for {LEAST_SECONDS:.0f} s"
    if found.code is not None:
        return (
            f"a step takes {found.seconds:.3g} s by code version {found.code.since}, {100 * found.share:.0f} % longer than the "
            f"{found.before_seconds:.3g} s by version {found.code.before} ({bound})"
        )
    return (
        f"a step takes {found.seconds:.3g} s since step {found.step:,}, {100 * found.share:.0f} % longer than the "
        f"{found.before_seconds:.3g} s before ({bound})"
    )
