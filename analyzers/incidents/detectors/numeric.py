"""NaN, or a loss or gradient norm five times what it was."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.incidents.detectors import detector
from analyzers.incidents.job_views.job import JobView
from analyzers.model.incident import Symptom


@detector("numeric")
def detect(view: JobView, now: float) -> Iterator[Symptom]:
    """Yield a numeric symptom for as long as the odd steps last."""
    del now
    found = view.progress.trouble()
    if found is not None:
        yield Symptom(kind="numeric", detector=found.name, at=found.at, text=found.text)
