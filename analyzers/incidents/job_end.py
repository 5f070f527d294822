"""What the end of a job is to its incident: all that the incident shows, or how the job ended once it is closed."""

from __future__ import annotations

from collections.abc import Iterable

from analyzers.incidents.detectors import OF_AN_END
from analyzers.incidents.job_views import JobView, found_again, moved_again_at
from analyzers.incidents.job_views.ending import Stop, ended_from_outside, how_it_ended, how_it_left
from analyzers.incidents.messages import Ending
from analyzers.model.incident import Incident, Symptom


def stop_of(view: JobView | None, incident: Incident, now: float) -> Stop | None:
    """Return the end from outside that is all that an incident shows: that was not clear when it opened; None: there is more."""
    stop = None if view is None else ended_from_outside(view, now)
    if stop is None or not all(one.kind in OF_AN_END and one.at >= stop.since for one in incident.symptoms):
        return None
    return stop


def why_no_crash(view: JobView, incident: Incident, now: float) -> str | None:
    """Say why an incident is over unjudged: its job was ended from outside, or its dead rank lives; None: it is not."""
    if (stop := stop_of(view, incident, now)) is not None:
        return f"the job was ended from outside: {stop.how}"
    return found_again(view, incident)


def next_run_at(view: JobView | None, incident: Incident) -> float | None:
    """Return when the job was started again since, under the same number; what it shows later is of that run."""
    return view.run_began_at if view is not None and view.run_began_at > incident.onset_at else None


def died_again(view: JobView, incident: Incident, shown: Iterable[Symptom]) -> str | None:
    """Say that a crash that has its verdict is over, as the next run of the job has died too; None: it has not."""
    began_at = next_run_at(view, incident)
    if incident.kind != "crash" or not incident.published or incident.cut is not None or began_at is None:
        return None
    again = any(one.kind == "crash" and one.at > began_at for one in shown)
    return "the job was started again, and that run has died too" if again else None


def went_on_to_its_end(view: JobView, incident: Incident, now: float) -> bool:
    """Whether a job that stood still moved again by itself, and then all its processes ended well."""
    ends = view.ended.values()
    if (
        not ends
        or view.processes.alive
        or not all(end.well for end in ends)
        or ended_from_outside(view, now) is not None
    ):
        return False
    return moved_again_at(view, incident, max(end.at for end in ends)) is not None


def how_its_job_ended(view: JobView | None, incident: Incident, said: Ending | None, now: float) -> str:
    """Say how the job of an incident that closes without a recovery ended; empty where it died by itself and waits.

    ``said``: a person's word that the job is being stopped.
    """
    if said is not None and said.at <= now <= said.until:
        return f"{said.by} has stopped it"
    if next_run_at(view, incident) is not None:
        return "it has been started again since"
    ended = "" if view is None else how_it_ended(view, now)
    if not ended and view is not None and all(one.kind in OF_AN_END for one in incident.symptoms):
        ended = how_it_left(view)
    if not ended and incident.claims and incident.claims[-1].outside:
        ended = "its log states that it was ended from outside"
    return ended
