"""How much of its time a job has trained: ETTR, the effective training time ratio, from its attempts and its downtimes.

Its time is from its first attempt's beginning to its end, or to now while an attempt or a downtime goes on; restarts lie
within it. It trains while an attempt runs and no downtime covers the instant. Downtimes that overlap count once. Steps that
are done again after a restart count as training here: their duration is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """From one instant to before another; ``until`` None: it has no end yet."""

    since: float
    until: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingTime:
    """The seconds of a job's life in a window, and those of them that it has trained."""

    wall_seconds: float
    training_seconds: float

    @property
    def ettr(self) -> float | None:
        """Return the share of its time that the job has trained; None where it has no time in the window."""
        return self.training_seconds / self.wall_seconds if self.wall_seconds > 0 else None


def measure(attempts: Sequence[Span], downtimes: Sequence[Span], since: float, now: float) -> TrainingTime:
    """Return the ledger of the window from ``since`` to ``now``."""
    if not attempts:
        return TrainingTime(0.0, 0.0)
    begin = max(since, min(attempt.since for attempt in attempts))
    end = min(now, max(_end(span, now) for span in (*attempts, *downtimes)))
    ran = list(_joined(attempts, begin, end))
    stood = [Span(max(a[0], b[0]), min(a[1], b[1])) for a in ran for b in _joined(downtimes, *a)]
    return TrainingTime(max(0.0, end - begin), _length(ran) - _length(_joined(stood, begin, end)))


def _end(span: Span, now: float) -> float:
    return now if span.until is None else span.until


def _joined(spans: Iterable[Span], begin: float, end: float) -> Iterator[tuple[float, float]]:
    """Yield what the spans cover of a window, in order and without overlaps."""
    clipped = sorted((max(span.since, begin), min(_end(span, end), end)) for span in spans)
    reached = begin
    for first, last in clipped:
        if last > max(first, reached):
            yield max(first, reached), last
            reached = last


def _length(pieces: Iterable[tuple[float, float]]) -> float:
    return sum(last - first for first, last in pieces)
