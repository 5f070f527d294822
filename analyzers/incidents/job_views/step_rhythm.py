"""The usual interval between a job's steps (median, p99) and its regular pauses: which silence is too long for this job now.

Step times are noisy, and healthy jobs pause: a checkpoint every 500 steps, an evaluation every 1,000, sometimes a garbage
collection. So the bound has three parts: 2 × p99 of the step time, pauses that recur at the same place (a step number modulo a
period), and pauses that recur at no known place, of which one alone changes nothing.

A fault must not teach: what ``standstills`` covers is left out of all three. An interval that an incident covered, and that no
verdict explained, counts only where such intervals recur at the places of a round period, which faults hit by chance in one of a
hundred cases.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from analyzers.incidents.job_views.pause_periods import NONE_LEFT_OUT, Pause, Recurrence, Thinned, recurrences
from analyzers.incidents.job_views.standstills import NEVER, SHOWN, Standstills
from analyzers.model.medians import median

MOST_ROWS = 512
MOST_PAUSES = 96
DAY_SECONDS = 86_400.0  # for which a pause is remembered
FEWEST = 8  # intervals before there is a rhythm
WARM_UP = 3  # first intervals: compiling, filling caches
SHORTEST_SECONDS = 8.0
EARLY_SECONDS = 120.0
EARLY_FACTOR = 4.0  # before there is a rhythm, times the longest interval
SOON_SECONDS, SOON_STEPS, SOON_INTERVALS = 30.0, 20, 3  # instead of EARLY_SECONDS: so many steps in so many intervals
LONGEST_SECONDS = 3_600.0  # of any bound: the longest pause that a verdict excuses without naming the rank
P99_FACTOR, PAUSE_FACTOR = 2.0, 1.5
PAUSE_MEDIANS = 5.0  # a longer interval, in medians, is a pause
PAUSE_SHARE = 0.02  # intervals that are more frequent are no pauses
PAUSE_SECONDS = 5.0  # shorter ones need no allowance
PERIOD_SLACK = 100
KEPT_SHARE = 0.6  # of its places at which a habit must have recurred
ROUND_NUMBERS = (10_000, 5_000, 2_500, 2_000, 1_024, 1_000, 512, 500, 256, 250, 200, 128, 100, 64, 50, 25, 20, 10)
CHANCE = 0.01  # that unexplained standstills fall on the places of a period
KEPT_ROWS = 64  # of the newest, over an engine's restart


class StepRow(NamedTuple):
    """One reported step. ``at`` is by the service's clock; NaN: not reported."""

    at: float
    step: int
    loss: float = math.nan
    gradient_norm: float = math.nan
    nan: int = 0  # as in Steps: 1 the loss, 2 the gradient norm, 3 both
    skipped: int = 0
    odd_since: int | None = None  # the first step of its batch from which on every loss is none
    rate: float = math.nan  # work a second: tokens, or else floating-point operations


@dataclass(frozen=True, slots=True)
class Habit:
    """Pauses that recur every ``period`` steps; ``place`` is any step before one of them."""

    period: int
    place: int
    seconds: float

    def meets(self, step: int, stride: int) -> bool:
        """Whether a pause after this step belongs to the habit; ``stride``: steps between two reports.

        A pause by the clock, every half an hour, recurs after nearly the same number of steps.
        """
        slack = stride - 1 + self.period // PERIOD_SLACK
        return (step - self.place + slack) % self.period <= 2 * slack


@dataclass(frozen=True, slots=True)
class _Figures:
    median_seconds: float
    p99_seconds: float
    stride: int  # steps between two reports
    intervals: int  # that they were computed from


@dataclass(frozen=True, slots=True)
class _Pausing:
    habits: tuple[Habit, ...]
    by_chance_seconds: float  # expected from pauses that no habit explains


class StepRhythm:
    """The newest steps of one reporter, and the longest pauses of a day."""

    __slots__ = ("_changes", "_figures", "_first", "_folded", "_forgot", "_pausing", "_standstills", "_thinned", "rows")

    def __init__(self, standstills: Standstills | None = None) -> None:
        """``standstills``: of the attempt, as far as they are known at any time."""
        self.rows: list[StepRow] = []  # by instant
        self._standstills = standstills or Standstills()
        self._changes = 0  # of the standstills, when the figures were computed
        self._folded: list[Pause] = []  # of rows that are gone
        self._forgot = False
        self._first: int | None = None  # step from which on pauses are known; None: from the first of the rows
        self._thinned = NONE_LEFT_OUT
        self._figures: _Figures | None = None
        self._pausing: _Pausing | None = None

    def add(self, row: StepRow) -> bool:
        """Add a step; return whether it is new. Order and duplicates make no difference."""
        rows = self.rows
        if not rows or row[:2] > rows[-1][:2]:
            rows.append(row)
        else:
            place = bisect_left(rows, row[:2], key=_key)
            if (place < len(rows) and _key(rows[place]) == row[:2]) or (place == 0 and self._forgot):
                return False
            rows.insert(place, row)
        if len(rows) > MOST_ROWS:
            self._fold()
        self._figures = self._pausing = None
        return True

    def forget(self, before_at: float) -> None:
        """Forget what was learned before an instant: since then it is another run."""
        self.rows = [row for row in self.rows if row.at >= before_at]
        self._folded = []
        self._forgot, self._first, self._thinned = False, None, NONE_LEFT_OUT
        self._figures = self._pausing = None

    def pauses(self) -> list[tuple[float, float]]:
        """Return when no step ended for longer than the steps of the day take: since when and until when."""
        return [(one.since, one.at) for one in self._known_pauses(self._known())]

    def count_after(self, at: float) -> int:
        """Return how many steps ended after an instant."""
        return len(self.rows) - bisect_right(self.rows, at, key=lambda row: row.at)

    def median_seconds(self) -> float | None:
        """Return the median time between two reports; None before there are enough."""
        figures = self._known()
        return None if figures is None else figures.median_seconds

    def p99_seconds(self) -> float | None:
        """Return the p99 of the intervals, pauses left out; None before there are enough."""
        figures = self._known()
        return None if figures is None else figures.p99_seconds

    def allowed_seconds(self, after_step: int | None = None) -> float:
        """Return how long silence may last after this step; without any step there is no bound."""
        figures = self._known()
        if figures is None:
            return self._allowed_early()
        pausing = self._paused(figures)
        step = self.rows[-1].step if after_step is None else after_step
        habits = (habit.seconds for habit in pausing.habits if habit.meets(step, figures.stride))
        paused = max(pausing.by_chance_seconds, max(habits, default=0.0))
        return min(
            max(SHORTEST_SECONDS, P99_FACTOR * figures.p99_seconds, PAUSE_FACTOR * paused),
            max(LONGEST_SECONDS, P99_FACTOR * figures.p99_seconds),
        )

    def document(self) -> dict[str, Any]:
        """Return what is learned, and from which intervals, as plain values; ``restore`` takes it."""
        figures = self._known()
        pausing = None if figures is None else self._paused(figures)
        return {
            "median_seconds": None if figures is None else figures.median_seconds,
            "p99_seconds": None if figures is None else figures.p99_seconds,
            "intervals": 0 if figures is None else figures.intervals,
            "allowed_seconds": self.allowed_seconds() if self.rows else None,
            "habits": [
                {"period": one.period, "within": one.within, "place": one.place % one.period, "seconds": one.seconds}
                for one in self._recurrences(figures)
            ],
            "by_chance_seconds": 0.0 if pausing is None else pausing.by_chance_seconds,
            "pauses": [list(one) for one in self._known_pauses(figures)],
            "first_step": self._first_step(), "thinned": list(self._thinned),
            "rows": [[row.at, row.step] for row in self.rows[-KEPT_ROWS:]],
        }  # fmt: skip

    def restore(self, document: dict[str, Any]) -> None:
        """Take over what was learned before a restart of the engine, which reads only the newest part of the log again."""
        for at, step in document.get("rows", ()):
            self.add(StepRow(float(at), int(step)))
        for at, step, seconds, early, *steps in document.get("pauses", ()):
            pause = Pause(float(at), int(step), float(seconds), bool(early), *map(int, steps))
            if pause not in self._folded:
                insort(self._folded, pause)
        self._first = document.get("first_step")
        self._thinned = Thinned(*document.get("thinned", ()))
        self._forgot = self._forgot or bool(self.rows)
        self._figures = self._pausing = None

    def _first_step(self) -> int | None:
        if self._first is not None or not self.rows:
            return self._first
        return self.rows[0 if self._forgot else min(WARM_UP, len(self.rows) - 1)].step

    def _recurrences(self, figures: _Figures | None) -> list[Recurrence]:
        """Return the periods of the job's own pauses that they determine."""
        first = self._first_step()
        own = [one for one in self._known_pauses(figures) if not self._standstills.during(one.since, one.at) & NEVER]
        if first is None or figures is None:
            return []
        return recurrences(own, first, self.rows[-1].step, self._left_out(self._gaps(), figures))

    def _left_out(self, gaps: Sequence[float], figures: _Figures) -> Thinned:
        """Return what is not among the pauses though it is longer than steps are: dropped, or too frequent among these gaps."""
        thinned, known = self._thinned, {one.step for one in self._pauses(gaps, figures)}
        for row, later, gap in zip(self.rows, self.rows[1:], gaps, strict=False):
            reports = max(1.0, (later.step - row.step) / figures.stride)
            if gap > max(PAUSE_SECONDS, PAUSE_FACTOR * figures.median_seconds * reports) and row.step not in known:
                thinned = thinned.and_one(row.step, gap)
        return thinned

    def _allowed_early(self) -> float:
        if not self.rows:
            return math.inf
        gaps = np.array(self._gaps())[self._teaching()]
        soon = len(gaps) >= SOON_INTERVALS and abs(self.rows[-1].step - self.rows[0].step) >= SOON_STEPS
        return max(SOON_SECONDS if soon else EARLY_SECONDS, EARLY_FACTOR * float(gaps.max(initial=0.0)))

    def _known(self) -> _Figures | None:
        if self._changes != self._standstills.changes:
            self._figures = self._pausing = None
            self._changes = self._standstills.changes
        if self._figures is None and len(self.rows) > FEWEST:
            self._figures = self._computed()
        return self._figures

    def _gaps(self) -> list[float]:
        return [later.at - row.at for row, later in zip(self.rows, self.rows[1:], strict=False)]

    def _teaching(self) -> NDArray[np.bool_]:
        """Return of each interval whether no standstill covers it, but for a pause of the job's own."""
        at = np.array([row.at for row in self.rows], np.float64)
        teaching = np.ones(max(len(at) - 1, 0), np.bool_)
        for one in self._standstills:
            if one.why != "pause":
                until = math.inf if one.until is None else one.until
                teaching &= (one.since >= at[1:]) | (until <= at[:-1])
        return teaching

    def _computed(self) -> _Figures | None:
        gaps = np.array(self._gaps())
        strides = np.abs(np.diff(np.array([row.step for row in self.rows], np.float64)))
        teaching = self._teaching()
        warm = 0 if self._forgot or len(gaps) < WARM_UP + FEWEST else WARM_UP
        ordinary = gaps[warm:][teaching[warm:]]
        if not len(ordinary):
            return None
        middle = median(ordinary)
        usual = ordinary[ordinary <= PAUSE_MEDIANS * middle]
        if len(ordinary) - len(usual) <= max(2, PAUSE_SHARE * len(ordinary)):
            ordinary = usual
        place = (len(ordinary) * 99 - 1) // 100
        p99 = float(np.partition(ordinary, place)[place])
        return _Figures(middle, p99, int(min(max(1.0, median(strides)), 1e9)), len(ordinary))

    def _paused(self, figures: _Figures) -> _Pausing:
        if self._pausing is None:
            self._pausing = self._computed_pausing(figures)
        return self._pausing

    def _computed_pausing(self, figures: _Figures) -> _Pausing:
        newest, stride = self.rows[-1].step, figures.stride
        own, doubted, shown, placed = list[Pause](), list[Pause](), list[Pause](), set[Pause]()
        for pause in self._known_pauses(figures):
            why = self._standstills.during(pause.since, pause.at)
            if not why & NEVER:
                (doubted if "unknown" in why else own).append(pause)
            if "place" in why:
                placed.add(pause)
            if why & SHOWN and self._standstills.during(pause.since, pause.since + pause.seconds / 2) & SHOWN:
                shown.append(pause)
        habits = (*_habits(own, newest, stride), *_round_habits(doubted, newest, stride))
        by_chance = sorted(
            pause.seconds
            for pause in own
            if not pause.early and pause not in placed and not any(habit.meets(pause.step, stride) for habit in habits)
        )
        # What opened an incident once opens one again: shorter stalls of the same fault must not hide it.
        least = min(
            (one.seconds for one in shown if not any(habit.meets(one.step, stride) for habit in habits)),
            default=math.inf,
        )
        return _Pausing(habits, min(by_chance[-2] if len(by_chance) > 1 else 0.0, least / PAUSE_FACTOR))

    def _known_pauses(self, figures: _Figures | None) -> list[Pause]:
        """Return the pauses of the day, covered or not, the oldest first."""
        new = [] if figures is None else self._pauses(self._gaps(), figures)
        return sorted({(one.at, one.step): one for one in (*new, *self._folded)}.values())

    def _pauses(self, gaps: Sequence[float], figures: _Figures | None) -> Iterator[Pause]:
        """Yield the intervals that are longer than the steps in them take: a reader that was away reports many at once."""
        first = 0 if self._forgot else WARM_UP
        p99, stride = (0.0, 1) if figures is None else (figures.p99_seconds, figures.stride)
        for index, gap in enumerate(gaps):
            reports = max(1.0, (self.rows[index + 1].step - self.rows[index].step) / stride)
            if index >= first and gap > max(PAUSE_SECONDS, PAUSE_FACTOR * p99 * reports):
                early = not self._forgot and index < WARM_UP + FEWEST
                before, row = self.rows[index], self.rows[index + 1]
                yield Pause(row.at, before.step, gap, early, max(row.step - before.step, 1))

    def _fold(self) -> None:
        """Drop the oldest quarter of the rows, but keep its pauses."""
        gone = MOST_ROWS // 4
        gaps, figures = self._gaps()[:gone], self._known()
        for pause in self._pauses(gaps, figures):
            insort(self._folded, pause)
        self._thinned = self._thinned if figures is None else self._left_out(gaps, figures)
        since = self.rows[-1].at - DAY_SECONDS
        kept = [pause for pause in self._folded if pause.at >= since]
        self._first = max([self._first_step() or 0, *(one.step + 1 for one in self._folded if one.at < since)])
        while len(kept) > MOST_PAUSES:
            # The shortest of the older half goes: many short pauses must not displace the few long ones.
            gone_one = min(kept[: MOST_PAUSES // 2], key=lambda pause: pause.seconds)
            kept.remove(gone_one)
            self._thinned = self._thinned.and_one(gone_one.step, gone_one.seconds)
        self._folded = kept
        del self.rows[:gone]
        self._forgot = True


def _key(row: StepRow) -> tuple[float, int]:
    return row[:2]


def _habits(pauses: Sequence[Pause], newest_step: int, stride: int) -> Iterator[Habit]:
    """Yield the habits that the pauses show: the distance of each to the last pause that was as long gives the period.

    A single pause is a habit with a round period, until the job passes the next such place without a pause.
    """
    seen: set[tuple[int, int]] = set()
    for number, pause in enumerate(pauses):
        alike = [other for other in pauses[:number] if 2 * other.seconds >= pause.seconds]
        # Where a long pause falls on the place of a short one, only earlier long ones give its period.
        period = pause.step - alike[-1].step if alike else _round(pause.step, stride)
        if period < max(2, 2 * stride) or (period, pause.step % period) in seen:
            continue
        seen.add((period, pause.step % period))
        habit = Habit(period, pause.step, pause.seconds)
        hits = [other for other in pauses if habit.meets(other.step, stride) and 2 * other.seconds >= pause.seconds]
        places = (newest_step - 1 - min(other.step for other in hits)) // period + 1
        if len({other.step for other in hits}) >= KEPT_SHARE * places:
            # A much longer one at this place has a habit of its own.
            longest = max(other.seconds for other in hits if other.seconds <= 2 * pause.seconds)
            yield Habit(period, pause.step, longest)


def _round(step: int, stride: int) -> int:
    """Return the roundest possible period of a pause, 0 where there is none.

    Counters begin at 0 or 1, a step may be reported after the pause, and a report holds ``stride`` steps.
    """
    first, last = max(step, 1), step + 1 + stride
    periods = (period for period in ROUND_NUMBERS if stride == 1 or period >= 4 * stride)
    return next((period for period in periods if last - last % period >= first), 0)


def _round_habits(pauses: Sequence[Pause], newest_step: int, stride: int) -> Iterator[Habit]:
    """Yield the habits of unexplained pauses: they recur at the multiples of a round number, which is too rare for chance."""
    for period in ROUND_NUMBERS:
        if period < 2 * stride or (near := stride + 1) * 2 >= period:
            continue  # a step may be reported after the pause, and a report holds ``stride`` steps
        hits = [one for one in pauses if (one.step + near) % period <= 2 * near - 1]
        if len({one.step for one in hits}) < 2:
            continue
        places = (newest_step + near) // period - (hits[0].step + near) // period
        if len(hits) >= KEPT_SHARE * max(places, 1) and (2 * near / period) ** len(hits) <= CHANCE:
            yield Habit(period, hits[-1].step, sorted(one.seconds for one in hits)[-2])
