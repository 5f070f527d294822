"""The steps of a log as rows in the log's order: their numbers may begin anew, and a row may be of several steps."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from analyzers.diagnosis.slow.grouping import Floats, Ints
from analyzers.model.work_rate import is_of_steps
from collectors.records import COUNTED, STEP_COLUMNS, Steps

WARM_UP_STEPS = 5  # compiling, filling caches; of each count
SWAPPED = 5  # strides: rows that are written out of their order fall back by fewer, a count that begins anew by more
MOST_PARTS = 20  # of a log, whose printed seconds are compared with the clock
UNITS = (60.0, 1.0, 0.1, 0.01, 0.001)  # of stamps and of printed seconds
FEWEST_STAMPS = 40  # that stand for coarse printed seconds
COARSE = 0.025  # part of a step: medians of single durations show no change of a tenth in coarser units
_BATCH = re.compile(r"^.*?#\d+:")  # a log is in many batches of a bundle


@dataclass(frozen=True)
class Run:
    """Whose steps a log has, and the first and the last of them."""

    whose: tuple[object, ...]  # role and rank, or where there is no rank its log's name up to the first dot
    begun: float
    ended: float
    first: int
    last: int

    @classmethod
    def of(cls, record: Steps, at: Sequence[float], step: Sequence[int]) -> Run:
        """Return the run of a record's rows; its instants are NaN where they have none."""
        name = record.source.rpartition("/")[2].partition(".")[0] if record.rank is None else ""
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


@dataclass(frozen=True)
class Series:
    """One reporter's rows: step, UTC seconds, seconds of one step, work a second where it is reported.

    ``again``: how often the numbers began anew before a row. ``stride``: the steps that a row is of.
    ``by_clock``: whether stamps show that the seconds are of one step; else they may be of all that a row is of.
    ``by_rate``: no duration is known, and the seconds are those of as much work: they have no unit.
    ``coarse``: the resolution of the seconds, where it is no small part of a step; else 0. ``elapsed``: they are differences of
    stamps, so that an error of one is made good by the next, and is small over many rows; printed ones are all rounded alike.
    """

    source: str
    step: Ints
    again: Ints
    at: Floats
    seconds: Floats
    rate: Floats
    stride: Floats
    by_clock: bool
    run: Run | None = None  # without rows: none
    by_rate: bool = False
    coarse: float = 0.0
    elapsed: bool = False


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
    places, elapsed = _by_the_clock(again, at)
    total = np.cumsum(stride)
    of_row = _are_of_rows(seconds, stride, places, elapsed)
    by_clock = of_row is not None or not np.isfinite(seconds).any()
    seconds = seconds / stride if of_row else seconds
    clocked = np.full(len(step), np.nan)
    clocked[places[1:]] = elapsed / np.diff(total[places])
    coarse, by_stamps = _resolution(columns["seconds"][new][first], stride if of_row else 1.0, seconds), False
    if len(places) > FEWEST_STAMPS * bool(coarse) and (coarse or not np.isfinite(seconds).any()):
        coarse, by_stamps = _resolution(at[places], stride, clocked), True
        seconds = clocked
    seconds = np.where(np.isfinite(seconds), seconds, clocked)
    since_begun = np.arange(len(step)) - np.maximum.accumulate(np.where(begins, np.arange(len(step)), 0))
    rate = np.where(np.isfinite(tokens), tokens, np.where(np.isfinite(samples), samples, tflops))
    by_rate = not np.isfinite(seconds).any() and bool(np.isfinite(rate).any())
    if by_rate:
        seconds, rate = np.where(rate > 0, 1 / rate, np.nan), np.full(len(step), np.nan)
    known = np.isfinite(seconds) & (seconds > 0) & (since_begun >= WARM_UP_STEPS)
    if not is_of_steps(rate, columns["seconds"][new][first] if coarse else seconds):
        rate = np.full(len(step), np.nan)
    since_row = np.diff(total[known], prepend=total[known][:1] - usual)
    most = 3 * np.median(since_row) if len(since_row) else usual
    return Series(
        records[0].source, step[known], again[known], at[known], seconds[known], rate[known], np.minimum(since_row, most),
        by_clock, Run.of(records[0], at.tolist(), step.tolist()) if len(step) else None, by_rate,
        coarse, by_stamps,
    )  # fmt: skip


def _resolution(values: Floats, stride: Floats | float, seconds: Floats) -> float:
    """Return the unit that values are whole multiples of, a step's share of it, where it is COARSE to a step; else 0."""
    values, usual = values[np.isfinite(values)], np.nanmedian(seconds) if np.isfinite(seconds).any() else 0.0
    for unit in UNITS:
        if len(values) and np.all(np.abs(values / unit - np.round(values / unit)) < 0.01):
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


def _by_the_clock(again: Ints, at: Floats) -> tuple[Ints, Floats]:
    """Return the places of rows with a stamp, and the seconds between each two, NaN where the numbers began anew between them.

    Of rows that were read at once the last has the stamp.
    """
    places = np.flatnonzero(np.isfinite(at))
    places = places[np.diff(at[places], append=np.inf) > 0]
    return places, np.where(np.diff(again[places]) == 0, np.diff(at[places]), np.nan)


def _are_of_rows(seconds: Floats, stride: Floats, places: Ints, elapsed: Floats) -> bool | None:
    """Whether printed seconds are of all steps of a row, as the clock shows; None where it does not show it."""
    filled = np.where(np.isfinite(seconds), seconds, 0.0)
    printed = np.cumsum(filled), np.cumsum(filled * stride)
    unknown = np.diff(np.cumsum(~np.isfinite(seconds))[places])
    timed = np.flatnonzero(np.isfinite(elapsed) & (unknown == 0))
    if not len(timed):
        return None
    off = []
    for total in printed:
        sums = [
            (np.diff(total[places])[part].sum(), elapsed[part].sum())
            for part in np.array_split(timed, min(MOST_PARTS, len(timed)))
        ]
        off.append(
            float(np.median([abs(np.log(said / clock)) for said, clock in sums if said > 0 and clock > 0] or [np.nan]))
        )
    return None if np.isnan(off[0]) else off[0] < off[1]


def _column(record: Steps, name: str) -> Floats:
    code, data = STEP_COLUMNS[name], record.columns.get(name, b"")
    whole = len(data) == record.count * np.dtype(code).itemsize
    return (
        np.frombuffer(data, code).astype(np.float64)
        if whole
        else np.full(record.count, -1.0 if code == "<i8" else np.nan)
    )
