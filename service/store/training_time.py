"""How much of its time a job has trained: ETTR, the effective training time ratio, from its attempts and its downtimes.

Its time is from its first attempt's beginning to its end, or to now while an attempt or a downtime goes on; restarts lie
within it. It trains while an attempt runs and no downtime covers the instant. Downtimes that overlap count once. Steps that
are done again after a restart count as training here: their duration is not recorded.

Where one role alone is restarted, the rollouts go on. RobustRL (arXiv 2512.22492) counts that time by the share of the machines
whose rollouts are at work: the partial ratio here. Whether they wait for new weights meanwhile is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


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
    partial_seconds: float = 0.0  # of restarts of one role, by the share of machines at work; not in training_seconds

    @property
    def ettr(self) -> float | None:
        """Return the share of its time that the job has trained; None where it has no time in the window."""
        return self.training_seconds / self.wall_seconds if self.wall_seconds > 0 else None

    @property
    def partial_ettr(self) -> float | None:
        """Return the same with the restarts of one role by the machines at work; None as above."""
        return (self.training_seconds + self.partial_seconds) / self.wall_seconds if self.wall_seconds > 0 else None


def measure(
    attempts: Sequence[Span],
    downtimes: Sequence[Span],
    since: float,
    now: float,
    partial: Sequence[tuple[Span, float]] = (),
) -> TrainingTime:
    """Return the ledger of the window from ``since`` to ``now``.

    ``partial``: restarts of one role, each with the share of the machines at work, 0 to 1; where they overlap the least counts.
    """
    if not attempts:
        return TrainingTime(0.0, 0.0)
    begin = max(since, min(attempt.since for attempt in attempts))
    end = min(now, max(_end(span, now) for span in (*attempts, *downtimes)))
    ran = list(_joined(attempts, begin, end))
    stood = [Span(max(a[0], b[0]), min(a[1], b[1])) for a in ran for b in _joined(downtimes, *a)]
    lost = list(_joined(stood, begin, end))
    return TrainingTime(max(0.0, end - begin), _length(ran) - _length(lost), sum(_at_work(lost, partial)))


def _at_work(lost: Iterable[tuple[float, float]], partial: Sequence[tuple[Span, float]]) -> Iterator[float]:
    """Yield the seconds of what was lost that restarts of one role give back, piece by piece between their ends."""
    for begin, end in lost:
        within = [(max(span.since, begin), min(_end(span, end), end), share) for span, share in partial]
        cuts = sorted({begin, end, *(at for first, last, _ in within if first < last for at in (first, last))})
        for first, last in pairwise(cuts):
            yield (last - first) * min((share for a, b, share in within if a <= first and last <= b), default=0.0)


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
