"""Where a job's steps became longer, found in the spans that its pace is made of, and what they took under other code."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from numpy.typing import NDArray

from analyzers.model.medians import MEDIAN_ERROR, median, spread

LEAST_PAST_SECONDS, LEAST_PAST_SPANS = 240.0, 12  # before anything is usual
LEAST_SECONDS, LEAST_SPANS = 120.0, 6  # that a slowdown lasts before it is one
LATEST_SECONDS = 1_800.0  # after which a change is found no more
RECENT_SECONDS = 120.0  # right before it: a rise that began earlier did not begin at a moment
BLOCK_SECONDS, BLOCK_SPANS = 60.0, 3  # of the past: how much it varies by itself
SLOWER_SHARE = 0.10
SLOWER, BEYOND = math.log1p(SLOWER_SHARE), math.log(1.03)
TIMES_NOISE = 4.0
NEWEST_PARTS = ((60.0, 3), (30.0, 3))  # of a slowdown: seconds, spans; each must be slower
FEW = 0.3  # of the spans of any part may be as before
MOST_TURNS, LEAST_BETWEEN = 3, 2  # changes that are looked at, one after the other; spans between two
LEAST_DATED, LONGEST_DATED = 6, 2.0  # steps that date a beginning; the longest of them, against one of since then
EDGE_SPANS, SHARP_SHARE, TIMES_EDGE_NOISE = 4, 0.6, 1.5

Floats = NDArray[np.float64]


class CodeSwitch(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of a job's code before and since an instant, as its owner declares them."""

    before: str
    since: str


@dataclass(frozen=True, slots=True)
class UsualPace:
    """What a step takes, the logarithm of what is longer beyond its own noise, and work a second; NaN: not known."""

    seconds: float
    bound: float
    rate: float


class Slowdown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Steps that take longer than before. Instants by the service's clock."""

    since: float
    step: int  # after which it began
    before_seconds: float  # that a step took
    seconds: float  # that it took when this was found
    found_at: float
    until: float | None = None
    adopted: bool = False  # it is over because it has lasted for so long
    code: CodeSwitch | None = None  # it began with other code
    counted: int = 0  # ``step``, where numbers begin anew counted on

    @property
    def share(self) -> float:
        """Return which part longer a step takes: 0.3 is 30 %."""
        return self.seconds / self.before_seconds - 1.0


@dataclass(frozen=True, slots=True)
class PaceSpans:
    """Spans between two points: where each began and ended, logarithms of seconds a step, and how much they count."""

    begin: Floats
    end: Floats
    step: Floats  # at its begin
    counted: Floats  # the same, where numbers begin anew counted on
    logs: Floats
    rates: Floats
    weight: Floats  # seconds; a pause counts as little as any span

    def __len__(self) -> int:
        return len(self.begin)


def begun(spans: PaceSpans) -> Slowdown | None:
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


def dated_by_steps(found: Slowdown, at: Floats, step: NDArray[np.int64], around_seconds: float) -> Slowdown:
    """Return a slowdown that begins after the step that reported steps show, and no more after a whole span's first.

    Of the steps so near its beginning: the one at which two lines, as steep as steps were long before and since, fit them best.
    """
    near = np.abs(at - found.since) <= around_seconds
    at, step = at[near], step[near]
    if found.code is not None or len(at) < LEAST_DATED or (np.diff(step) <= 0).any():
        return found
    done = (step - step[0]).astype(np.float64)
    each = np.minimum(np.diff(at), LONGEST_DATED * found.seconds * np.diff(done))  # a pause is no slope
    passed = np.concatenate(([0.0], np.cumsum(each)))
    slower = np.maximum(done[None, :] - done[:, None], 0.0) * (found.seconds - found.before_seconds)
    left = passed - done * found.before_seconds - slower
    place = int(np.argmin(left.var(axis=1)))
    return msgspec.structs.replace(found, since=float(at[place]), step=int(step[place]))


def newest_spans(weight: Floats, seconds: float, fewest: int) -> int:
    """Return how many of the newest spans last so long together, and are so many."""
    count = int(np.searchsorted(np.cumsum(weight[::-1]), seconds)) + 1
    return min(max(count, fewest), len(weight))


def _slower_since(spans: PaceSpans, at: int, following: int | None) -> Slowdown | None:
    """Return the slowdown that begins with a span; ``following``: where steps changed again. None where it is none."""
    recent = spans.logs[at - newest_spans(spans.weight[:at], RECENT_SECONDS, LEAST_SPANS) : at]
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
        seconds=math.exp(usual + rise), found_at=float(spans.end[-1]), counted=int(spans.counted[at]),
    )  # fmt: skip


def _raised(spans: PaceSpans, at: int, until: int) -> PaceSpans:
    """Return spans of which those before a rise are as long as those since, until the next: what they vary is known of both."""
    logs = spans.logs.copy()
    logs[:at] += max(median(logs[at:until]) - median(logs[:at]), 0.0)
    return replace(spans, logs=logs)


def _turn(spans: PaceSpans, after: int = 0) -> int | None:
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
    bound = max(4.0 * spread(logs), 0.02)
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
    by_blocks = spread(np.array(levels))
    by_spans = MEDIAN_ERROR * spread(logs) / math.sqrt(max(len(logs) / len(levels), 1.0))
    return TIMES_NOISE * max(by_blocks, by_spans), max(levels) - usual + BEYOND


def _lasts(after: Floats, weight: Floats, level: float) -> bool:
    """Whether steps have taken so long from first to last, and not only in the spans that a pause falls into."""
    half = len(after) // 2
    newest = (after[-newest_spans(weight, seconds, fewest) :] for seconds, fewest in NEWEST_PARTS)
    parts = (after[:half], after[half:], *newest)
    return min(float(np.quantile(part, FEW)) for part in parts) >= level


def _is_sharp(logs: Floats, at: int, rise: float) -> bool:
    """Whether most of a rise lies between two neighbouring spans: what grows little by little does not begin at a moment."""
    edge = median(logs[at : at + EDGE_SPANS]) - median(logs[at - EDGE_SPANS : at])
    noise = MEDIAN_ERROR * spread(logs[:at]) * math.sqrt(2.0 / EDGE_SPANS)
    return edge >= SHARP_SHARE * rise - TIMES_EDGE_NOISE * noise


def _has_more_work(spans: PaceSpans, at: int, rise: float) -> bool:
    """Whether the log has a rate of work, and that has fallen by far less than the steps have become longer."""
    before, after = (part[np.isfinite(part) & (part > 0)] for part in (spans.rates[:at], spans.rates[at:]))
    if 2 * len(before) < at or 2 * len(after) < len(spans) - at:
        return False
    return math.log(median(before) / median(after)) < rise / 2


def usual_pace(spans: PaceSpans) -> UsualPace | None:
    """Return what steps take by the newest spans, as far as they show anything usual."""
    count = newest_spans(spans.weight, LEAST_PAST_SECONDS, LEAST_PAST_SPANS) if len(spans) else 0
    if count < LEAST_PAST_SPANS or float(spans.weight.sum()) < LEAST_PAST_SECONDS:
        return None
    usual = median(spans.logs[-count:])
    bound = max(SLOWER, *_own_noise(spans.logs, spans.weight, usual, LEAST_PAST_SECONDS))
    rates = spans.rates[-count:][np.isfinite(spans.rates[-count:])]
    return UsualPace(math.exp(usual), bound, median(rates) if 2 * len(rates) >= count else math.nan)


def slower_than(spans: PaceSpans, before: UsualPace, code: CodeSwitch) -> Slowdown | None:
    """Return that steps take longer from the first on than they did before other code; enough spans are there."""
    usual = math.log(before.seconds)
    rise = median(spans.logs) - usual
    if rise < before.bound or not _lasts(spans.logs, spans.weight, usual + max(0.7 * before.bound, rise / 2)):
        return None
    rates = spans.rates[np.isfinite(spans.rates) & (spans.rates > 0)]
    if 2 * len(rates) >= len(spans) and before.rate > 0 and math.log(before.rate / median(rates)) < rise / 2:
        return None  # more is done in a step
    return Slowdown(
        since=float(spans.begin[0]), step=int(spans.step[0]), before_seconds=before.seconds, seconds=math.exp(usual + rise),
        found_at=float(spans.end[-1]), code=code, counted=int(spans.counted[0]),
    )  # fmt: skip
