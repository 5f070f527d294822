"""Whether an incident is over: the job moves again, a new attempt does, or the job has ended."""

from __future__ import annotations

from analyzers.incident import Incident
from analyzers.watch.job import JobView


def moved(view: JobView, incident: Incident, now: float) -> str | None:
    """Return the sentence why the incident is over; None: it is not."""
    raise NotImplementedError
