"""By when a failure had happened of which no line has a time: by the stamps that stand beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from analyzers.diagnosis.crash.failures import BARE_ENDS, Failure, place
from analyzers.model.window import Window, newest_step_at
from collectors.records import LogEvent, Steps

SILENT_SECONDS = 3_600.0
"""So long a job may stand still after its last stamped line before it fails: twice the longest usual time-out."""


def newest_steps(window: Window) -> dict[str, float]:
    """Return the time of the newest step that each log has."""
    found: dict[str, float] = {}
    for steps in window.records_of(Steps):
        if (at := newest_step_at(steps)) is not None:
            found[steps.source] = max(at, found.get(steps.source, at))
    return found


def no_later_than(group: Iterable[Failure], events: Sequence[LogEvent], newest: Mapping[str, float]) -> float | None:
    """Return by when the first of these failures had happened; None where no stamp is beside any of them."""
    known = (_of(one.event, events, newest) for one in group if one.event is not None)
    return min((at for at in known if at is not None), default=None)


def first_of(
    group: Sequence[Failure], classified: Sequence[tuple[str, LogEvent]], kinds: Collection[str], by: float | None
) -> tuple[LogEvent | None, float | None]:
    """Return the first symptom, and when these failures began: the earliest line with a time, or one of them if it is older.

    ``kinds``: of symptoms. ``by``: when the failures had happened. What has a later time than the line that shows it came after
    them, and may be of a later start of the job.
    """
    named = min((one.event for one in group if one.event is not None), key=_when, default=None)
    own = [one.event.at for one in group if one.event is not None and one.event.at is not None]
    timed = [event for kind, event in classified if kind in kinds and event.at is not None]
    earliest = min(timed, key=_when, default=None)
    at = None if earliest is None else earliest.at
    is_shown = by is not None and any(event.at == by for _, event in classified)
    if named is not None and at is not None and by is not None and is_shown and by < at:
        return named, min(own, default=by)
    return earliest or named, min(own, default=at)


def _when(event: LogEvent) -> tuple[float, str, int]:
    return (float("inf") if event.at is None else event.at, *place(event.source))


def _of(event: LogEvent, events: Sequence[LogEvent], newest: Mapping[str, float]) -> float | None:
    """Return the stamp of the next line of its log, or of its launcher's report; else so long after the log's last."""
    if event.at is not None:
        return event.at
    file, line = place(event.source)
    stamped = [(*place(one.source), one.at) for one in events if one.at is not None]
    after = min(((number, at) for name, number, at in stamped if name == file and number > line), default=None)
    if after is not None:
        return after[1]
    reports = (one.at for one in events if one.event in BARE_ENDS and one.rank is not None and one.rank == event.rank)
    if (reported := max((at for at in reports if at is not None), default=None)) is not None:
        return reported
    last = max((at for name, _, at in stamped if name == file), default=newest.get(file))
    return None if last is None else max(last, newest.get(file, last)) + SILENT_SECONDS
