"""The steps of a log as rows in the log's order: their numbers may begin anew, and a row may be of several steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import isfinite, nan

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats, Ints, Mask
from analyzers.diagnosis.slow.running_means import clock_of
from analyzers.model.work_rate import is_of_steps
from collectors.records import COUNTED, STEP_COLUMNS, Steps

WARM_UP_STEPS = 5  # compiling, filling caches; of each count
SWAPPED = 5  # strides: rows that are written out of their order fall back by fewer, a count that begins anew by more
MOST_PARTS = 20  # of a log, whose printed seconds are compared with the clock
UNITS, EXACT = (60.0, 1.0, 0.1, 0.01, 0.001), 1e-5  # of stamps and of printed seconds
FEWEST_STAMPS = 40  # that stand for coarse printed seconds
FEW, SELDOM = 0.5, 10  # of the rows; one of so many
CONTRADICTED = np.log(1.5)  # printed seconds are so far off the clock
LEAST_OFF = 0.02  # a mean since the start is so much nearer to it
COARSE = 0.025  # part of a step: medians of single durations show no change of a tenth in coarser units
_BATCH = re.compile(r"^.*?#\d+:")  # a log is in many batches of a bundle


@dataclass(frozen=True)
class Run:
    """Whose steps a log has, and the first and the last of them.

    ``whose``: role and rank, or where there is no rank its log's name up to the first dot, but for numbers.
    """

    whose: tuple[object, ...]
    begun: float
    ended: float
    first: int
    last: int

    @classmethod
    def of(cls, record: Steps, at: Sequence[float], step: Sequence[int]) -> Run:
        """Return the run of a record's rows; its instants are NaN where they have none."""
        log = record.source.rpartition("/")[2].partition(".")[0]
        name = re.sub(r"\d+", "0", log) if record.rank is None else ""
        stamps = [one for one in at if isfinite(one)]
        return cls(
            (record.role, record.rank, name),
            min(stamps, default=nan),
            max(stamps, default=nan),
            int(step[0]),
            int(step[-1]),
        )

    def is_earlier(self, every: Iterable[Run]) -> bool:
        """Whether it had ended before another of the same began with such steps anew."""
        return any(one.whose == self.whose and self.ended < one.begun and one.first <= self.last for one in every)


class By(Enum):
    """How it is known what a step takes: printed, as differences of stamps, or as the rate of work, which has no unit."""

    PRINTED = "printed"
    STAMPS = "stamps"
    RATE = "rate"


@dataclass(frozen=True)
class Pace:
    """What a step takes, of each row. ``coarse``: the resolution, where it is no small part of a step; else 0.

    ``by_clock``: whether stamps show that the seconds are of one step; else they may be of all that a row is of.
    """

    by: By
    seconds: Floats
    coarse: float = 0.0
    by_clock: bool = True

    @property
    def off(self) -> float:
        """By how much a mean may be off: a stamp's error is made good by the next, printed seconds are rounded alike."""
        return self.coarse / 2 if self.by is By.PRINTED else 0.0


@dataclass(frozen=True)
class Series:
    """One reporter's rows with a pace: step, UTC seconds, work a second where it is reported.

    ``again``: how often the numbers began anew before a row. ``stride``: the steps that a row is of.
    """

    source: str
    step: Ints
    again: Ints
    at: Floats
    rate: Floats
    stride: Floats
    pace: Pace
    run: Run | None = None  # without rows: none

    @property
    def seconds(self) -> Floats:
        """What a step of each row takes."""
        return self.pace.seconds

    @property
    def by_rate(self) -> bool:
        """Whether no duration is known: the seconds are those of as much work."""
        return self.pace.by is By.RATE


@dataclass(frozen=True)
class _Rows:
    """The rows of one reporter, each step of a count once. ``begins``: a count begins with it."""

    step: Ints
    again: Ints
    begins: Mask
    at: Floats
    printed: Floats  # seconds
    rate: Floats
    stride: Floats
    usual: float  # stride

    @property
    def stamped(self) -> Ints:
        """The places of rows with a stamp; of rows that were read at once the last has it."""
        places = np.flatnonzero(np.isfinite(self.at))
        return places[np.diff(self.at[places], append=np.inf) > 0]

    def elapsed(self, places: Ints) -> Floats:
        """The seconds between each two of these rows, NaN where the numbers began anew between them."""
        return np.where(np.diff(self.again[places]) == 0, np.diff(self.at[places]), np.nan)


def series_of(records: Sequence[Steps]) -> Iterator[Series]:
    """Yield the rows of each reporter. Counted lines are no steps; those of roles wait for one another."""
    reporters: dict[tuple[object, ...], list[Steps]] = {}
    seen: dict[tuple[object, ...], int] = {}
    for record in records:
        if record.told_by.endswith(COUNTED) or record.role:
            continue
        of = (record.rank, record.node, record.told_by)
        number = seen[record.source, *of] = seen.get((record.source, *of), 0) + 1  # processes without a rank in one log
        reporters.setdefault((_BATCH.sub("", record.source), *of, number), []).append(record)
    for own in reporters.values():
        yield _series(own)


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def _series(records: list[Steps]) -> Series:
    rows = _rows(records)
    pace = _pace(rows)
    since_begun = np.arange(len(rows.step)) - np.maximum.accumulate(np.where(rows.begins, np.arange(len(rows.step)), 0))
    known = np.isfinite(pace.seconds) & (pace.seconds > 0) & (since_begun >= WARM_UP_STEPS)
    of_steps = pace.by is not By.RATE and is_of_steps(rows.rate, rows.printed if pace.coarse else pace.seconds)
    of_steps = of_steps and _by_mean(rows, 1 / rows.rate, By.RATE) is None
    rate = rows.rate if of_steps else np.full(len(rows.step), np.nan)
    total = np.cumsum(rows.stride)
    since_row = np.diff(total[known], prepend=total[known][:1] - rows.usual)
    most = 3 * np.median(since_row) if len(since_row) else rows.usual
    run = Run.of(records[0], rows.at.tolist(), rows.step.tolist()) if len(rows.step) else None
    return Series(
        records[0].source, rows.step[known], rows.again[known], rows.at[known], rate[known], np.minimum(since_row, most),
        replace(pace, seconds=pace.seconds[known]), run,
    )  # fmt: skip


def _rows(records: list[Steps]) -> _Rows:
    columns = {name: np.concatenate([_column(record, name) for record in records]) for name in STEP_COLUMNS}
    new = _new_rows(np.stack(list(columns.values()), axis=1), [record.count for record in records])
    new &= columns["step"] >= 0
    step = columns["step"][new].astype(np.int64)
    gone_on = np.diff(step)
    usual = float(np.median(gone_on[gone_on > 0])) if np.any(gone_on > 0) else 1.0
    again = np.cumsum(np.append(np.zeros(1), gone_on < -SWAPPED * usual)[: len(step)]).astype(np.int64)
    _, first = np.unique(np.stack([again, step], axis=1), axis=0, return_index=True)
    step, again = step[first], again[first]
    at, seconds, tokens, samples, tflops = (
        columns[name][new][first] for name in ("at", "seconds", "tokens_per_second", "samples_per_second", "tflops")
    )
    begins = np.append(True, np.diff(again) > 0)[: len(step)]
    stride = np.where(begins, usual, np.diff(step, prepend=step[:1])).astype(np.float64)
    rate = np.where(np.isfinite(tokens), tokens, np.where(np.isfinite(samples), samples, tflops))
    return _Rows(step, again, begins, at, seconds, rate, stride, usual)


def _pace(rows: _Rows) -> Pace:
    """Return what steps take by the best of what is known of them."""
    if _rises(rows):
        rows = replace(rows, at=rows.at if len(rows.stamped) else rows.printed, printed=np.full(len(rows.step), np.nan))
    printed, places = _printed(rows), rows.stamped
    if printed is None or (printed.coarse and len(places) > FEWEST_STAMPS):
        return _by_stamps(rows, places) or printed or _by_mean(rows, 1 / rows.rate, By.RATE) or _by_rate(rows)
    return (None if len(places) > FEWEST_STAMPS else _by_mean(rows, rows.printed, By.STAMPS)) or printed


def _rises(rows: _Rows) -> bool:
    """Whether printed seconds are those since the start: they never fall, and mostly rise."""
    more = np.diff(rows.printed)[np.diff(rows.again) == 0]
    more = more[np.isfinite(more)]
    return len(more) >= FEWEST_STAMPS and bool(np.all(more >= 0)) and bool(np.mean(more > 0) > FEW)


def _by_mean(rows: _Rows, seconds: Floats, by: By) -> Pace | None:
    """Return the pace by seconds, or those of as much work, that are means since the start of the run, or of the numbers."""
    for steps in (np.cumsum(rows.stride), rows.step.astype(np.float64)):
        if not rows.again.any() and (found := clock_of(seconds, steps)) is not None:
            at, unit = found
            rows = replace(rows, at=at)
            own = _clocked(rows, np.flatnonzero(np.isfinite(at)))
            coarse = unit / rows.usual
            return Pace(by, own, coarse if coarse > COARSE * np.nanmedian(own) else 0.0)
    return None


def _printed(rows: _Rows) -> Pace | None:
    """Return the pace by printed seconds; those of a row without are by stamps. None: the clock contradicts them."""
    if not len(rows.printed) or np.isfinite(rows.printed).mean() < FEW:
        return None
    filled, count = np.where(np.isfinite(rows.printed), rows.printed, 0.0), np.cumsum(rows.stride)
    own = [_off(rows, np.cumsum(filled * times)) for times in (1.0, rows.stride)]  # of all steps of a row, and of one
    means = [float(np.mean(_off(rows, rows.printed * of))) for of in (count, rows.step)]  # since the start
    off = [float(np.median(one)) for one in own]
    if len(rows.stamped) > FEWEST_STAMPS and (
        min(off) > CONTRADICTED or min(means) + LEAST_OFF < min(float(np.mean(one)) for one in own)
    ):
        return None
    of_row = None if np.isnan(off[0]) else off[0] < off[1]
    seconds = rows.printed / rows.stride if of_row else rows.printed
    coarse = _resolution(rows.printed, rows.stride if of_row else 1.0, seconds)
    seconds = np.where(np.isfinite(seconds), seconds, _clocked(rows, rows.stamped))
    return Pace(By.PRINTED, seconds, coarse, of_row is not None)


def _by_stamps(rows: _Rows, places: Ints) -> Pace | None:
    """Return the pace by the stamps of rows."""
    seconds = _clocked(rows, places)
    if not np.isfinite(seconds).any():
        return None
    known = np.isfinite(rows.printed)  # since an evaluation ended, which the stamp of the row before does not show
    alone = known & (np.convolve(known, np.ones(min(SELDOM, len(known))), "same") <= 1)
    seconds = np.where(alone, rows.printed / rows.stride, seconds)
    own = rows.at[places] - rows.at[places[0]]  # stamps of whole seconds may all have one fraction
    return Pace(By.STAMPS, seconds, _resolution(own, rows.stride, seconds))


def _by_rate(rows: _Rows) -> Pace:
    """Return what as much work takes; without any rate nothing is known."""
    return Pace(By.RATE, np.where(rows.rate > 0, 1 / rows.rate, np.nan))


def _clocked(rows: _Rows, places: Ints) -> Floats:
    """Return the seconds of a step by the differences of stamps."""
    seconds = np.full(len(rows.step), np.nan)
    seconds[places[1:]] = rows.elapsed(places) / np.diff(np.cumsum(rows.stride)[places])
    return seconds


def _resolution(values: Floats, stride: Floats | float, seconds: Floats) -> float:
    """Return the unit that values are whole multiples of, a step's share of it, where it is COARSE to a step; else 0."""
    values, usual = values[np.isfinite(values)], np.nanmedian(seconds) if np.isfinite(seconds).any() else 0.0
    for unit in UNITS:
        if len(values) and np.all(np.abs(values - unit * np.round(values / unit)) < EXACT):
            own = unit / float(np.median(stride))
            return own if own > COARSE * usual else 0.0
    return 0.0


def _new_rows(rows: Floats, counts: list[int]) -> Ints:
    """Mark rows that no earlier record has: one may begin with those that the one before it ended with."""
    part = np.repeat(np.arange(len(counts)), counts)
    _, first, which = np.unique(rows.view(f"V{rows.shape[1] * 8}").ravel(), return_index=True, return_inverse=True)
    known = part[first][which.ravel()] < part
    ends = np.cumsum(counts)[:-1]
    return ~np.concatenate([np.logical_and.accumulate(own) for own in np.split(known, ends)])


def _off(rows: _Rows, total: Floats) -> Floats:
    """Return how far off the clock a sum of seconds is in parts of a log: logarithms, NaN where nothing shows it."""
    places = rows.stamped
    elapsed, said = rows.elapsed(places), np.diff(total[places])
    unknown = np.diff(np.cumsum(~np.isfinite(rows.printed))[places])
    timed = np.flatnonzero(np.isfinite(elapsed) & (unknown == 0))
    parts = np.array_split(timed, min(MOST_PARTS, len(timed))) if len(timed) else []
    sums = [(said[part].sum(), elapsed[part].sum()) for part in parts]
    return np.array([abs(np.log(one / clock)) for one, clock in sums if one > 0 and clock > 0] or [np.nan])


def _column(record: Steps, name: str) -> Floats:
    code, data = STEP_COLUMNS[name], record.columns.get(name, b"")
    whole = len(data) == record.count * np.dtype(code).itemsize
    return (
        np.frombuffer(data, code).astype(np.float64)
        if whole
        else np.full(record.count, -1.0 if code == "<i8" else np.nan)
    )
