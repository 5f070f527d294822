"""The newest steps of every running job, in memory: which step it is at, and how long its steps take.

A view of the log for people; the engine has its own. After a restart it begins with the newest batches of the log.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

import numpy as np

from analyzers.incidents.job_views import StepRhythm
from analyzers.incidents.job_views.progress import newest_values
from analyzers.incidents.job_views.step_rhythm import StepRow
from collectors.records import COUNTED, Record, Steps, block
from collectors.records.record import Damaged
from service.store.log import Log, Stored

MOST_JOBS = 4_096
MOST_REPORTERS = 4  # of a job, those of its lowest ranks
MOST_ROWS = 256  # of a reporter
MOST_READ = 512  # batches that are read again after a restart

AGAIN_SECONDS = 5.0  # for which a lower attempt must do steps alone: the last words of an attempt come late
WHOLE_SPAN_SECONDS, WHOLE_GAP_SECONDS = (
    8.0,
    3.0,
)  # of stamps in whole seconds: a difference of one says little of a step

Row = tuple[float, int, bool]  # UTC seconds by the service's clock, step, whether its stamp is of whole seconds
Key = tuple[int, str]  # rank (-1: the log names none) and the log's format


@dataclass(frozen=True, slots=True)
class JobSteps:
    """A job's newest steps. ``recent_seconds``: of a step, from one report to the next, the newest last."""

    attempt: int
    step: int
    at: float
    recent_seconds: tuple[float, ...]
    unit: Literal["step", "line"] = "step"  # line: the log gives no numbers, and its lines are counted
    rows: tuple[Row, ...] = ()  # from which they are computed

    @property
    def median_seconds(self) -> float | None:
        """Return how long a step takes; None before two were reported."""
        return float(np.median(self.recent_seconds)) if self.recent_seconds else None

    def longest(self) -> tuple[float | None, float | None]:
        """Return the seconds of the longest step and of the longest pause between two; None: there was none."""
        rhythm, rows = StepRhythm(), [(at, step) for at, step, _ in self.rows]
        if len(rows) == MOST_ROWS:  # the first of them are not the job's first
            rhythm.restore({"rows": rows})
        else:
            for row in rows:
                rhythm.add(StepRow(*row))
        paused = {until: until - since for since, until in rhythm.pauses()}
        spans = list(_intervals(self.rows))
        steps = (seconds for until, seconds in spans if until not in paused)
        return max(steps, default=None), max((paused[until] for until, _ in spans if until in paused), default=None)


@dataclass(slots=True)
class _Job:
    attempt: int
    reporters: dict[Key, deque[Row]] = field(default_factory=dict)
    again: _Job | None = None  # a lower attempt that has done steps since its newest: the job may have begun anew

    @property
    def newest_at(self) -> float:
        """Return when its newest step ended."""
        return max((rows[-1][0] for rows in self.reporters.values() if rows), default=0.0)

    def add(self, steps: Steps, stored: Stored, since: float = 0.0) -> None:
        """Take up the steps of a record that ended after an instant."""
        key = (-1 if steps.rank is None else steps.rank, steps.told_by)
        if key in self.reporters or _has_room(self, key):
            rows = self.reporters.setdefault(key, deque(maxlen=MOST_ROWS))
            rows.extend(row for row in _rows(steps, stored) if row[0] > since and (not rows or row > rows[-1]))


class StepTail:
    """What each job's steps were lately. One writer, any number of readers."""

    def __init__(self) -> None:
        self._jobs: dict[str, _Job] = {}
        self._lock = threading.Lock()

    def add(self, stored: Stored, records: Sequence[Record]) -> None:
        """Take up the steps among a batch's records."""
        for record in records:
            if isinstance(record, Steps) and record.job:
                with self._lock:
                    self._take(record.job, record, stored)

    def resume(self, log: Log, until_sequence: int, since: float, now: float) -> None:  # noqa: ARG002 - a consumer's
        """Begin with the newest batches of the log."""
        for stored in log.read_from(max(0, until_sequence - MOST_READ), MOST_READ):
            if stored.sequence <= until_sequence:
                try:
                    self.add(stored, block.decode(stored.block))
                except Damaged:  # the follower has reported it
                    continue

    def find(self, job: str, since: float = 0.0) -> JobSteps | None:
        """Return a job's newest steps; None where none was reported lately. ``since``: when its run began."""
        with self._lock:
            found = self._jobs.get(job)
            of_all = (
                {key: [row for row in rows if row[0] >= since] for key, rows in found.reporters.items()}
                if found
                else {}
            )
        numbered = [rows for key, rows in of_all.items() if rows and not key[1].endswith(COUNTED)]
        series = numbered or [rows for rows in of_all.values() if rows]
        if found is None or not series:
            return None
        at, step, _ = max(rows[-1] for rows in series if rows)
        longest = max(series, key=len)
        rows = tuple(longest)
        recent = tuple(seconds for _, seconds in _intervals(rows))
        return JobSteps(found.attempt, step, at, recent, "step" if numbered else "line", rows)

    def _take(self, name: str, steps: Steps, stored: Stored) -> None:
        attempt, job = steps.attempt or 0, self._jobs.pop(name, None)
        if job is None or attempt > job.attempt:
            job = _Job(attempt)
        self._jobs[name] = job  # at the end: the first is the one longest unseen
        if len(self._jobs) > MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]
        if attempt == job.attempt:
            job.again = None
            job.add(steps, stored)
            return
        if job.again is None or job.again.attempt != attempt:
            job.again = _Job(attempt)
        job.again.add(steps, stored, since=job.newest_at)
        if job.again.newest_at - job.newest_at >= AGAIN_SECONDS and any(
            len(rows) > 1 for rows in job.again.reporters.values()
        ):
            self._jobs[name] = job.again


def _has_room(job: _Job, key: Key) -> bool:
    if len(job.reporters) >= MOST_REPORTERS:
        if key > (last := max(job.reporters)):
            return False
        del job.reporters[last]
    return True


def _rows(steps: Steps, stored: Stored) -> Iterator[Row]:
    """Yield the steps by the service's clock. One without an instant is left out, but for the last, which was just read."""
    ahead = 0.0 if stored.sent_at is None else stored.sent_at - stored.received_at
    numbers, instants = newest_values(steps, "step", MOST_ROWS), newest_values(steps, "at", MOST_ROWS)
    last = min(len(numbers), len(instants)) - 1
    for index, (number, at) in enumerate(zip(numbers, instants, strict=False)):
        dated = steps.at if math.isnan(at) and index == last else at
        if dated is not None and math.isfinite(dated):
            yield min(dated - ahead, stored.received_at), int(number), dated == int(dated)


def _intervals(rows: Sequence[Row]) -> Iterator[tuple[float, float]]:
    """Yield the instant of a report, and how long a step took since the last one: a log may report every tenth step."""
    spans = _spans(rows) if _are_coarse(rows) else pairwise(rows)
    for (before_at, before, _), (at, step, _) in spans:
        if step > before and at > before_at:
            yield at, (at - before_at) / (step - before)


def _are_coarse(rows: Sequence[Row]) -> bool:
    """Whether stamps are of whole seconds, and their differences vary."""
    differences = {(row[0] - before[0], row[1] - before[1]) for before, row in pairwise(rows)}
    return len(differences) > 1 and all(whole for _, _, whole in rows)


def _spans(rows: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    """Yield spans over several steps, whose stamps are of whole seconds; a pause is a span of its own."""
    begin, usual = rows[0], (rows[-1][0] - rows[0][0]) / len(rows)
    long = WHOLE_GAP_SECONDS * max(1.0, usual)
    for before, row in pairwise(rows):
        pauses = row[0] - before[0] >= long
        if pauses and before[0] - begin[0] >= WHOLE_GAP_SECONDS:
            yield begin, before
        if pauses:
            yield before, row
        elif row[0] - begin[0] >= WHOLE_SPAN_SECONDS:
            yield begin, row
        else:
            continue
        begin = row
