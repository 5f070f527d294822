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
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.incidents.job_views.medians import median
from analyzers.incidents.job_views.standstills import Standstill

SPAN_SECONDS = 10.0
MOST_POINTS = 400  # an hour, where steps are reported all the time
KEPT_POINTS = 120  # over an engine's restart
WARM_UP_SECONDS, WARM_UP_SPANS = 60.0, 3  # compiling, filling caches
LEAST_PAST_SECONDS, LEAST_PAST_SPANS = 240.0, 12  # before anything is usual
LEAST_SECONDS, LEAST_SPANS = 120.0, 6  # that a slowdown lasts before it is one
LATEST_SECONDS = 1_800.0  # after which a change is found no more
RECENT_SECONDS = 120.0  # right before it: a rise that began earlier did not begin at a moment
BLOCK_SECONDS, BLOCK_SPANS = 60.0, 3  # of the past: how much it varies by itself
SLOWER_SHARE = 0.10
SLOWER, AS_BEFORE, BEYOND = math.log1p(SLOWER_SHARE), math.log(1.05), math.log(1.03)
TIMES_NOISE = 4.0
NEWEST_PARTS = ((60.0, 3), (30.0, 3))  # of a slowdown: seconds, spans; each must be slower
FEW = 0.3  # of the spans of any part may be as before
MOST_TURNS, LEAST_BETWEEN = 3, 2  # changes that are looked at, one after the other; spans between two
EDGE_SPANS, SHARP_SHARE, TIMES_EDGE_NOISE = 4, 0.6, 1.5
PAUSE_TIMES = 3.0  # a span counts as no longer than so many usual ones
GLANCE_POINTS, GLANCE_TIMES = 14, 1.04  # two minutes
LOOK_SPANS = 30  # a whole look at least so often: what is usual may have changed
AGAIN_SECONDS, AGAIN_SPANS = 60.0, 4  # as fast as before: over
ADOPTED_SECONDS = 6 * 3600.0
MOST_PAST = 16
DAY_SECONDS = 86_400.0
REGULAR = 0.1  # of the time between two slowdowns: what comes as regularly as this is the job's own
LONGER_THAN_USUAL = 1.5

Floats = NDArray[np.float64]


class Point(NamedTuple):
    """The newest step of a span of ten seconds. ``rate``: work a second, as the log has it; NaN: it does not."""

    at: float
    step: int
    rate: float = math.nan


class Slowdown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Steps that take longer than before. Instants by the service's clock."""

    since: float
    step: int  # after which it began
    before_seconds: float  # that a step took
    seconds: float  # that it took when this was found
    found_at: float
    until: float | None = None
    adopted: bool = False  # it is over because it has lasted for so long

    @property
    def share(self) -> float:
        """Return which part longer a step takes: 0.3 is 30 %."""
        return self.seconds / self.before_seconds - 1.0


@dataclass(frozen=True, slots=True)
class _Spans:
    """Spans between two points: where each began and ended, logarithms of seconds a step, and how much they count."""

    begin: Floats
    end: Floats
    step: NDArray[np.int64]  # at its begin
    logs: Floats
    rates: Floats
    weight: Floats  # seconds; a pause counts as little as any span

    def __len__(self) -> int:
        return len(self.begin)


class StepPace:
    """The newest hour of one reporter's steps."""

    __slots__ = (
        "_began_at",
        "_looked",
        "_newest",
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

    def update(self, standstills: Iterable[Standstill]) -> None:
        """Look whether a slowdown has begun or ended, once for each new span."""
        newest = self._newest
        if newest <= self._seen or not self._points:
            return
        self._seen = newest
        if self.slowdown is None and newest < self._looked + LOOK_SPANS and not self._seems_slower():
            return
        self._looked = newest
        spans = self._spans(standstills)
        self._usual = math.exp(median(spans.logs)) if len(spans) else math.inf
        if self.slowdown is not None:
            self._look_for_end(spans, self.slowdown)
        elif (found := self._begun(spans)) is not None and not self._is_own_habit(found):
            self.slowdown = found

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
        newest = [self._points[place] for place in sorted(self._points)[-GLANCE_POINTS:]]
        steps = newest[-1].step - newest[0].step
        return steps <= 0 or newest[-1].at - newest[0].at > GLANCE_TIMES * self._usual * steps

    def _spans(self, standstills: Iterable[Standstill]) -> _Spans:
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
        return _Spans(begin, end, step, logs, rates, np.minimum(seconds, PAUSE_TIMES * usual))

    def _begun(self, spans: _Spans) -> Slowdown | None:
        """Return the slowdown that has begun in the newest half hour and lasts, None where there is none.

        A rise that is none by itself, as where other work begins beside the job, hides no later one, and is not its beginning.
        """
        at = _turn(spans)
        for _ in range(MOST_TURNS):
            if at is None:
                break
            following = _turn(spans, at)
            found = _slower_since(spans, at, following)
            if found is not None or following is None:
                return found
            spans, at = _raised(spans, at, following), following
        return None

    def _look_for_end(self, spans: _Spans, lasting: Slowdown) -> None:
        since = spans.begin >= lasting.since
        logs, weight, begin = spans.logs[since], spans.weight[since], spans.begin[since]
        if not len(logs):
            return
        count = _newest(weight, AGAIN_SECONDS, AGAIN_SPANS)
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
        """Whether slowdowns like it came twice before, at even distances: a checkpoint that is written meanwhile."""
        if len(self.past) < 2:
            return False
        first, second = self.past[-2:]
        apart, again = second.since - first.since, found.since - second.since
        times = again / apart if apart > 0 else 0.0
        regular = times > 1 - REGULAR and abs(times - round(times)) <= REGULAR
        alike = found.share <= max(first.share, second.share) * 1.25 + 0.05
        longest = max((one.until or one.since) - one.since for one in (first, second))
        return regular and alike and found.found_at - found.since < LONGER_THAN_USUAL * longest + LEAST_SECONDS


def _newest(weight: Floats, seconds: float, fewest: int) -> int:
    """Return how many of the newest spans last so long together, and are so many."""
    count = int(np.searchsorted(np.cumsum(weight[::-1]), seconds)) + 1
    return min(max(count, fewest), len(weight))


def _slower_since(spans: _Spans, at: int, following: int | None) -> Slowdown | None:
    """Return the slowdown that begins with a span; ``following``: where steps changed again. None where it is none."""
    recent = spans.logs[at - _newest(spans.weight[:at], RECENT_SECONDS, LEAST_SPANS) : at]
    usual = max(median(spans.logs[:at]), median(recent))
    needed = max(SLOWER, *_own_noise(spans.logs[:at], spans.weight[:at], usual, float(spans.weight[at:].sum())))
    if following is not None and median(spans.logs[at:following]) < usual + needed:
        return None
    longer = np.flatnonzero(spans.logs[at:] >= usual + needed / 2)
    at += int(longer[0]) if len(longer) else 0
    after, weight = spans.logs[at:], spans.weight[at:]
    if len(after) < LEAST_SPANS or float(weight.sum()) < LEAST_SECONDS:
        return None
    rise = median(after) - usual
    level = usual + max(needed * 0.7, rise / 2)  # a span that is half over is no slow one
    if rise < needed or not _lasts(after, weight, level) or not _is_sharp(spans.logs, at, rise):
        return None
    if _has_more_work(spans, at, rise):
        return None
    return Slowdown(
        since=float(spans.begin[at]), step=int(spans.step[at]), before_seconds=math.exp(usual),
        seconds=math.exp(usual + rise), found_at=float(spans.end[-1]),
    )  # fmt: skip


def _raised(spans: _Spans, at: int, until: int) -> _Spans:
    """Return spans of which those before a rise are as long as those since, until the next: what they vary is known of both."""
    logs = spans.logs.copy()
    logs[:at] += max(median(logs[at:until]) - median(logs[:at]), 0.0)
    return replace(spans, logs=logs)


def _turn(spans: _Spans, after: int = 0) -> int | None:
    """Return the span with which the newest rise most likely begins; None where too little is known before or after.

    ``after``: a span with which steps changed before: a further change since then is looked for.

    By the cumulative sum of logarithms that are cut off beyond their spread: one pause weighs no more than one slow span.
    """
    count, total = len(spans), float(spans.weight.sum())
    passed = np.cumsum(spans.weight)
    left = total - passed + spans.weight  # from each span on
    first = max(int(np.searchsorted(passed, LEAST_PAST_SECONDS)) + 1, LEAST_PAST_SPANS)
    first = max(first, int(np.searchsorted(-left, -LATEST_SECONDS)), after + LEAST_BETWEEN if after else 0)
    last: int = min(int(np.searchsorted(-left, -LEAST_SECONDS, side="right")) - 1, count - LEAST_SPANS)
    if first > last:
        return None
    logs = spans.logs[after:]
    middle = median(logs)
    bound = max(4.0 * _spread(logs), 0.02)
    cut = np.clip(logs, middle - bound, middle + bound)
    sums = np.concatenate(([0.0], np.cumsum(cut)))
    places = np.arange(first - after, last - after + 1)
    means = (sums[-1] - sums[places]) / (len(logs) - places) - sums[places] / places
    return after + int(places[np.argmax(means * np.sqrt(places * (len(logs) - places)))])


def _own_noise(logs: Floats, weight: Floats, usual: float, lasted: float) -> tuple[float, float]:
    """Return what a rise must exceed by the job's own past: its noise from block to block, and its slowest block.

    A block is a minute, or a fifth of what the rise has lasted: what a minute of other work does hides no slow half hour.
    """
    block = max(BLOCK_SECONDS, min(lasted / 5, float(weight.sum()) / 4))
    levels, first, length = list[float](), 0, 0.0
    for place, seconds in enumerate(weight.tolist(), 1):
        length += seconds
        if length >= block and place - first >= BLOCK_SPANS:
            levels.append(median(logs[first:place]))
            first, length = place, 0.0
    if not levels:
        return math.inf, math.inf
    by_blocks = _spread(np.array(levels))
    by_spans = 1.2533 * _spread(logs) / math.sqrt(max(len(logs) / len(levels), 1.0))
    return TIMES_NOISE * max(by_blocks, by_spans), max(levels) - usual + BEYOND


def _lasts(after: Floats, weight: Floats, level: float) -> bool:
    """Whether steps have taken so long from first to last, and not only in the spans that a pause falls into."""
    half = len(after) // 2
    newest = (after[-_newest(weight, seconds, fewest) :] for seconds, fewest in NEWEST_PARTS)
    parts = (after[:half], after[half:], *newest)
    return min(float(np.quantile(part, FEW)) for part in parts) >= level


def _is_sharp(logs: Floats, at: int, rise: float) -> bool:
    """Whether most of a rise lies between two neighbouring spans: what grows little by little does not begin at a moment."""
    edge = median(logs[at : at + EDGE_SPANS]) - median(logs[at - EDGE_SPANS : at])
    noise = 1.2533 * _spread(logs[:at]) * math.sqrt(2.0 / EDGE_SPANS)
    return edge >= SHARP_SHARE * rise - TIMES_EDGE_NOISE * noise


def _has_more_work(spans: _Spans, at: int, rise: float) -> bool:
    """Whether the log has a rate of work, and that has fallen by far less than the steps have become longer."""
    before, after = (part[np.isfinite(part) & (part > 0)] for part in (spans.rates[:at], spans.rates[at:]))
    if 2 * len(before) < at or 2 * len(after) < len(spans) - at:
        return False
    return math.log(median(before) / median(after)) < rise / 2


def _spread(values: Floats) -> float:
    return 1.4826 * median(np.abs(values - median(values)))
