"""How long a job's steps take against their own past: since when they take longer, by how much, and until when.

    steady ── a tenth longer for two minutes, beyond the noise of its own past ──► slower
      ▲                                                                              │
      └──── as before for a minute, or for six hours so: that is its pace now ───────┘

Steps are counted over spans of ten seconds or more, so that a log without stamps, which an agent reads every five seconds,
says as much as one with them. A pause is one long span, and medians do not see it. What grows little by little, as lengths
of sequences do, is no slowdown: it must begin at a moment. Where the log says how much is done in a second, that must have
fallen too. Where a log numbers the steps of each epoch anew, the count goes on; from the last step of one epoch to the first
of the next is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from analyzers.incidents.job_views.pace_changes import (
    LEAST_PAST_SECONDS,
    LEAST_SECONDS,
    CodeSwitch,
    PaceSpans,
    Slowdown,
    UsualPace,
    begun,
    newest_spans,
    slower_than,
    usual_pace,
)
from analyzers.incidents.job_views.standstills import Standstill
from analyzers.incidents.job_views.step_rhythm import StepRow
from analyzers.model.medians import median
from analyzers.model.work_rate import is_of_steps

SPAN_SECONDS = 10.0
MOST_POINTS = 400  # an hour, where steps are reported all the time
KEPT_POINTS = 120  # over an engine's restart
WARM_UP_SECONDS, WARM_UP_SPANS = 60.0, 3  # compiling, filling caches
AS_BEFORE = math.log(1.05)
PAUSE_TIMES = 3.0  # a span counts as no longer than so many usual ones
GLANCE_POINTS, GLANCE_TIMES = 14, 1.04  # two minutes
LOOK_SPANS = 30  # a whole look at least so often: what is usual may have changed
AGAIN_SECONDS, AGAIN_SPANS = 60.0, 4  # as fast as before: over
ADOPTED_SECONDS = 6 * 3600.0
MOST_PAST = 16
DAY_SECONDS = 86_400.0
RECOVERED_SPANS = 2
UNEVEN_SECONDS = 20.0  # two spans: so exactly a beginning is found; what comes as evenly as this is the job's own
ALIKE_TIMES, ALIKE_SHARE = 1.25, 0.03  # the largest of such slowdowns against the smallest
LONGER_THAN_USUAL = 1.5
SWAPPED_STEPS = 2  # by which the lines of several writers may lag
TOO_FAST = 3.0  # times as fast as the count before: it is that count, which goes on


class Point(NamedTuple):
    """The newest step of a span of ten seconds. ``rate``: work a second, as the log has it; NaN: it does not.

    ``earlier``: steps by which numbers have fallen where they began anew; ``between``: the seconds that this took.
    """

    at: float
    step: int
    rate: float = math.nan
    earlier: int = 0
    between: float = 0.0

    def until(self, other: Point) -> tuple[float, int]:
        """Return the seconds and the steps up to another, without those between two counts."""
        seconds = other.at - self.at - (other.between - self.between)
        return seconds, other.step - self.step + other.earlier - self.earlier


class StepPace:
    """The newest hour of one reporter's steps."""

    __slots__ = (
        "_began_at",
        "_first",
        "_goes_on",
        "_left",
        "_looked",
        "_newest",
        "_other_code",
        "_points",
        "_seen",
        "_trimmed",
        "_usual",
        "forgotten_at",
        "past",
        "slowdown",
    )

    def __init__(self) -> None:
        self.slowdown: Slowdown | None = None  # that lasts
        self.past: list[Slowdown] = []  # of the newest day
        self.forgotten_at = 0.0  # it is another run's, or other code's, since
        self._other_code: tuple[UsualPace, CodeSwitch] | None = None  # until its first minutes are compared
        self._points: dict[int, Point] = {}
        self._first = Point(math.inf, 0)  # of the newest count
        self._left: tuple[Point, Point] | None = None  # the first and the last of the count before
        self._goes_on = math.inf  # a step from which on it may be that count
        self._began_at = math.inf
        self._trimmed = False  # the oldest points are gone
        self._newest = 0  # the place of the newest point
        self._seen = 0  # the newest that was looked at
        self._looked = 0  # the newest of a whole look
        self._usual = math.inf  # the median of seconds a step then

    def add(self, at: float, step: int, rate: float = math.nan) -> None:
        """Add a step. Duplicates make no difference, and order none except where numbers begin anew."""
        place, newest = int(at // SPAN_SECONDS), self._points.get(self._newest)
        if newest is None or at > newest.at:
            known = newest
            if newest is None or 2 * step <= newest.step or step >= self._goes_on:
                known = self._counted(Point(at, step), newest)
            self._newest = place
        elif (known := self._points.get(place)) is None:
            known = self._points[min(self._points, key=lambda one: abs(one - place))]
        elif at < known.at or (at == known.at and step <= known.step):
            known = None
        if known is not None:
            self._points[place] = Point(at, step, rate, known.earlier, known.between)
        if at < self._began_at and not self._trimmed:
            self._began_at = at
        if len(self._points) > MOST_POINTS:
            self._trimmed = True
            for oldest in sorted(self._points)[: MOST_POINTS // 4]:
                del self._points[oldest]

    def _counted(self, point: Point, newest: Point | None) -> Point:
        """Return a point with the place in all counts that the newest one has: another count may begin, or that before go on."""
        if newest is None:
            self._first, self._left, self._goes_on = point, None, math.inf
            return point
        fall = newest.step - point.step
        if fall > SWAPPED_STEPS and 2 * point.step <= newest.step:
            self._left, self._goes_on = (self._first, newest), newest.step - SWAPPED_STEPS
            self._first = point
            return point._replace(earlier=newest.earlier + fall, between=newest.between + point.at - newest.at)
        if self._left is not None and point.step >= self._goes_on:
            first, last = self._left
            least = (last.at - first.at) * (-fall - SWAPPED_STEPS) / TOO_FAST
            if (point.at - newest.at) * (last.step - first.step) < least:
                self._first, self._left, self._goes_on = first, None, math.inf
                return last
            if point.step > last.step:
                self._left, self._goes_on = None, math.inf
        return newest

    def forget(self, before_at: float) -> None:
        """Forget what was before an instant: since then it is another run, or other code."""
        self._points = {place: point for place, point in self._points.items() if point.at >= before_at}
        self._began_at = min((point.at for point in self._points.values()), default=math.inf)
        self._trimmed, self._looked = False, 0
        self.slowdown, self.past, self.forgotten_at = None, [], max(before_at, self.forgotten_at)

    def usual(self, standstills: Iterable[Standstill]) -> UsualPace | None:
        """Return what its steps take now; None: too little is known."""
        return usual_pace(self._spans(standstills))

    def compare_with(self, before: UsualPace, code: CodeSwitch) -> None:
        """Compare the first minutes with what steps took under other code."""
        self._other_code = before, code

    def update(self, standstills: Iterable[Standstill], rows: Sequence[StepRow] = ()) -> None:
        """Look whether a slowdown has begun or ended, once for each new span. ``rows``: the newest steps, by instant."""
        newest = self._newest
        if newest <= self._seen or not self._points:
            return
        self._seen = newest
        waits = newest < self._looked + LOOK_SPANS and self._other_code is None
        if self.slowdown is None and waits and not self._seems_slower():
            return
        self._looked = newest
        spans = self._spans(standstills)
        if not _has_own_rate(rows):
            spans.rates[:] = math.nan
        self._usual = math.exp(median(spans.logs)) if len(spans) else math.inf
        if self.slowdown is not None:
            self._look_for_end(spans, self.slowdown)
        elif (found := begun(spans)) is not None and not self._is_own_habit(found):
            self.slowdown = found
        elif self._other_code is not None and usual_pace(spans) is not None:
            self.slowdown, self._other_code = slower_than(spans, *self._other_code), None

    def document(self) -> dict[str, Any]:
        """Return what is known, as plain values; ``restore`` takes it."""
        newest = [self._points[place] for place in sorted(self._points)[-KEPT_POINTS:]]
        return {
            "points": [[at, step, None if math.isnan(rate) else rate, *counted] for at, step, rate, *counted in newest],
            "began_at": None if math.isinf(self._began_at) else self._began_at,
            "trimmed": self._trimmed,
            "has_past": self._has_past,
            "slowdown": None if self.slowdown is None else msgspec.to_builtins(self.slowdown),
            "past": [msgspec.to_builtins(one) for one in self.past],
        }

    @property
    def _has_past(self) -> bool:
        """Whether its steps are known for long enough for a slowdown to be seen."""
        newest = self._points.get(self._newest)
        known = newest.at - self._began_at if newest is not None else 0.0
        return self._trimmed or known >= WARM_UP_SECONDS + LEAST_PAST_SECONDS

    def restore(self, document: dict[str, Any]) -> None:
        """Take over what was known before a restart of the engine, which reads only the newest part of the log again."""
        for at, step, rate, *counted in document.get("points", ()):
            point = Point(float(at), int(step), math.nan if rate is None else float(rate), *counted)
            place = int(point.at // SPAN_SECONDS)
            self._points[place] = max(point, self._points.get(place, point), key=lambda one: one[:2])
            self._newest = max(place, self._newest)
        self._first = self._points.get(self._newest, self._first)
        self._began_at = min(self._began_at, float(document.get("began_at") or math.inf))
        self._trimmed = self._trimmed or bool(document.get("trimmed"))
        known = {one.since: one for one in self.past}
        known |= {one.since: one for one in msgspec.convert(document.get("past", []), list[Slowdown])}
        self.past = sorted(known.values(), key=lambda one: one.since)
        lasting = document.get("slowdown")
        if self.slowdown is None and lasting is not None:
            self.slowdown = msgspec.convert(lasting, Slowdown)

    def _seems_slower(self) -> bool:
        """Whether the newest two minutes are worth a whole look, for a fraction of its cost."""
        points = [self._points[place] for place in sorted(self._points)[-GLANCE_POINTS:]]
        passed = [(at - between, step + earlier) for at, step, _, earlier, between in points]
        seconds = [(until - at) / max(after - step, 1) for (at, step), (until, after) in pairwise(passed)]
        stepped_back = passed[-1][1] <= passed[0][1]
        return stepped_back or sorted(seconds)[len(seconds) // 2] > GLANCE_TIMES * self._usual

    def recovered_at(self) -> float | None:
        """Return since when steps seem as short as before, which is too new to end the slowdown; None: they do not."""
        if self.slowdown is None:
            return None
        bound = math.sqrt(self.slowdown.before_seconds * self.slowdown.seconds)
        points = [self._points[place] for place in sorted(self._points)]
        since, count = None, 0
        for one, other in reversed(list(pairwise(points))):
            seconds, steps = one.until(other)
            if seconds > bound * steps:
                break
            since, count = one.at, count + 1
        return since if count >= RECOVERED_SPANS else None

    def _spans(self, standstills: Iterable[Standstill]) -> PaceSpans:
        """Return the spans, without warm-up, those that no agent read, and the newest one, which is not whole yet."""
        points = [self._points[place] for place in sorted(self._points)[:-1]]
        at, step, rates, earlier, between = np.array(points, np.float64).reshape(-1, len(Point._fields)).T
        passed, counted = np.diff(at - between), np.diff(step + earlier)
        going = np.flatnonzero((passed > 0.0) & (counted > 0))
        begin, end, rates = at[going], at[going + 1], rates[going + 1]
        logs = np.log(passed[going] / counted[going])
        kept = end > self._began_at + WARM_UP_SECONDS
        if not self._trimmed:
            kept[:WARM_UP_SPANS] = False
        for one in standstills:
            if one.why == "agent":
                kept &= (end <= one.since) | (begin >= (math.inf if one.until is None else one.until))
        for past in self.past:
            kept &= (end <= past.since) | (begin >= (past.until or past.since))
        begin, end, logs, rates, going = begin[kept], end[kept], logs[kept], rates[kept], going[kept]
        usual = median(end - begin) if len(going) else 0.0
        weight = np.minimum(end - begin, PAUSE_TIMES * usual)
        return PaceSpans(begin, end, step[going], (step + earlier)[going], logs, rates, weight)

    def _look_for_end(self, spans: PaceSpans, lasting: Slowdown) -> None:
        since = spans.begin >= lasting.since
        logs, weight, begin = spans.logs[since], spans.weight[since], spans.begin[since]
        if not len(logs):
            return
        count = newest_spans(weight, AGAIN_SECONDS, AGAIN_SPANS)
        whole = len(logs) >= AGAIN_SPANS and float(weight[-count:].sum()) >= AGAIN_SECONDS
        bound = math.log(lasting.before_seconds) + AS_BEFORE
        parts = (logs[-count : -count // 2], logs[-count // 2 :])
        over = whole and all(median(part) <= bound for part in parts)
        adopted = not over and float(spans.end[-1]) - lasting.since > ADOPTED_SECONDS
        if over or adopted:
            until = float(begin[-count]) if over else float(spans.end[-1])
            ended = msgspec.structs.replace(lasting, until=until, adopted=adopted)
            self.past = [one for one in (*self.past, ended) if one.since > until - DAY_SECONDS][-MOST_PAST:]
            self.slowdown = None

    def _is_own_habit(self, found: Slowdown) -> bool:
        """Whether slowdowns like it came twice before, at even distances and of one size: a checkpoint that is written meanwhile.

        What comes by schedule comes as evenly as its beginning can be found, by the clock or by steps.
        """
        if len(self.past) < 2:
            return False
        first, second = self.past[-2:]
        sizes = [first.share, second.share, found.share]
        alike = max(sizes) <= ALIKE_TIMES * min(sizes) + ALIKE_SHARE
        longest = max((one.until or one.since) - one.since for one in (first, second))
        lasts_longer = found.found_at - found.since >= LONGER_THAN_USUAL * longest + LEAST_SECONDS
        by_time = _are_even(first.since, second.since, found.since, UNEVEN_SECONDS)
        by_steps = _are_even(first.counted, second.counted, found.counted, UNEVEN_SECONDS / found.before_seconds)
        return alike and not lasts_longer and (by_time or by_steps)


def _has_own_rate(rows: Sequence[StepRow]) -> bool:
    """Whether the rate of work of the lines, if they have one, may be that of the steps: a data loader has one, too."""
    if not rows or math.isnan(rows[-1].rate):
        return True
    at, step, rate = np.array([(row.at, row.step, row.rate) for row in rows], np.float64).T
    passed, counted = np.diff(at), np.diff(step)
    return is_of_steps(rate[1:], np.where((passed > 0) & (counted > 0), passed / np.maximum(counted, 1.0), np.nan))


def _are_even(first: float, second: float, third: float, uneven: float) -> bool:
    """Whether three beginnings are as far apart, or the second distance is some of the first: others were not seen."""
    apart, again = second - first, third - second
    times = round(again / apart) if apart > 0 else 0
    return times >= 1 and abs(again - times * apart) <= uneven
