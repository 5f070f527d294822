"""How long a job's steps take against their own past: since when they take longer, by how much, and until when.

    steady ── a tenth longer for two minutes, beyond the noise of its own past ──► slower
      ▲                                                                              │
      └──── as before for a minute, or for six hours so: that is its pace now ───────┘

Steps are counted over spans of ten seconds or more, so that a log without stamps, which an agent reads every five seconds,
says as much as one with them. A pause is one long span, and medians do not see it. What grows little by little, as lengths
of sequences do, is no slowdown: it must begin at a moment. Where the log says how much is done in a second, that must have
fallen too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np

from analyzers.incidents.job_views.pace_changes import (
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
from analyzers.model.medians import median

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


class Point(NamedTuple):
    """The newest step of a span of ten seconds. ``rate``: work a second, as the log has it; NaN: it does not."""

    at: float
    step: int
    rate: float = math.nan


class StepPace:
    """The newest hour of one reporter's steps."""

    __slots__ = (
        "_began_at",
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
        self._began_at = math.inf
        self._trimmed = False  # the oldest points are gone
        self._newest = 0  # the place of the newest point
        self._seen = 0  # the newest that was looked at
        self._looked = 0  # the newest of a whole look
        self._usual = math.inf  # the median of seconds a step then

    def add(self, at: float, step: int, rate: float = math.nan) -> None:
        """Add a step. Order and duplicates make no difference."""
        place, point = int(at // SPAN_SECONDS), Point(at, step, rate)
        known = self._points.get(place)
        if known is None or point[:2] > known[:2]:
            self._points[place] = point
            self._newest = max(place, self._newest)
        if at < self._began_at and not self._trimmed:
            self._began_at = at
        if len(self._points) > MOST_POINTS:
            self._trimmed = True
            for oldest in sorted(self._points)[: MOST_POINTS // 4]:
                del self._points[oldest]

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

    def update(self, standstills: Iterable[Standstill]) -> None:
        """Look whether a slowdown has begun or ended, once for each new span."""
        newest = self._newest
        if newest <= self._seen or not self._points:
            return
        self._seen = newest
        waits = newest < self._looked + LOOK_SPANS and self._other_code is None
        if self.slowdown is None and waits and not self._seems_slower():
            return
        self._looked = newest
        spans = self._spans(standstills)
        self._usual = math.exp(median(spans.logs)) if len(spans) else math.inf
        if self.slowdown is not None:
            self._look_for_end(spans, self.slowdown)
        elif (found := begun(spans)) is not None and not self._is_own_habit(found):
            self.slowdown = found
        elif self._other_code is not None and usual_pace(spans) is not None:
            self.slowdown, self._other_code = slower_than(spans, *self._other_code), None

    def document(self) -> dict[str, Any]:
        """Return what is known, as plain values; ``restore`` takes it."""
        newest = [list(self._points[place]) for place in sorted(self._points)[-KEPT_POINTS:]]
        return {
            "points": [[at, step, None if math.isnan(rate) else rate] for at, step, rate in newest],
            "began_at": None if math.isinf(self._began_at) else self._began_at,
            "trimmed": self._trimmed,
            "slowdown": None if self.slowdown is None else msgspec.to_builtins(self.slowdown),
            "past": [msgspec.to_builtins(one) for one in self.past],
        }

    def restore(self, document: dict[str, Any]) -> None:
        """Take over what was known before a restart of the engine, which reads only the newest part of the log again."""
        for at, step, rate in document.get("points", ()):
            self.add(float(at), int(step), math.nan if rate is None else float(rate))
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
        seconds = [(other.at - one.at) / max(other.step - one.step, 1) for one, other in pairwise(points)]
        stepped_back = points[-1].step <= points[0].step
        return stepped_back or median(np.array(seconds)) > GLANCE_TIMES * self._usual

    def recovered_at(self) -> float | None:
        """Return since when steps seem as short as before, which is too new to end the slowdown; None: they do not."""
        if self.slowdown is None:
            return None
        bound = math.sqrt(self.slowdown.before_seconds * self.slowdown.seconds)
        points = [self._points[place] for place in sorted(self._points)]
        since, count = None, 0
        for one, other in reversed(list(pairwise(points))):
            if other.at - one.at > bound * (other.step - one.step):
                break
            since, count = one.at, count + 1
        return since if count >= RECOVERED_SPANS else None

    def _spans(self, standstills: Iterable[Standstill]) -> PaceSpans:
        """Return the spans, without warm-up, those that no agent read, and the newest one, which is not whole yet."""
        points = [self._points[place] for place in sorted(self._points)[:-1]]
        pairs = [(one, other) for one, other in pairwise(points) if other.step > one.step and other.at > one.at]
        begin, end = (np.array([pair[place].at for pair in pairs], np.float64) for place in (0, 1))
        step, after = (np.array([pair[place].step for pair in pairs], np.int64) for place in (0, 1))
        rates = np.array([other.rate for _, other in pairs], np.float64)
        kept = end > self._began_at + WARM_UP_SECONDS
        if not self._trimmed:
            kept[:WARM_UP_SPANS] = False
        for one in standstills:
            if one.why == "agent":
                kept &= (end <= one.since) | (begin >= (math.inf if one.until is None else one.until))
        for past in self.past:
            kept &= (end <= past.since) | (begin >= (past.until or past.since))
        begin, end, step, after, rates = begin[kept], end[kept], step[kept], after[kept], rates[kept]
        seconds = end - begin
        usual = median(seconds) if len(seconds) else 0.0
        logs = np.log(seconds / np.maximum(after - step, 1))
        return PaceSpans(begin, end, step, logs, rates, np.minimum(seconds, PAUSE_TIMES * usual))

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
        by_steps = _are_even(first.step, second.step, found.step, UNEVEN_SECONDS / found.before_seconds)
        return alike and not lasts_longer and (by_time or by_steps)


def _are_even(first: float, second: float, third: float, uneven: float) -> bool:
    """Whether three beginnings are as far apart, or the second distance is some of the first: others were not seen."""
    apart, again = second - first, third - second
    times = round(again / apart) if apart > 0 else 0
    return times >= 1 and abs(again - times * apart) <= uneven
