"""Steps of a log alone: since which step they take longer, and by how much. They name no rank: ranks train in step.

A running job's pace is judged as it goes (``analyzers/incidents``); this is for a log that is read afterwards. Medians of
blocks of steps are compared, so that a checkpoint every so often changes nothing, and where they show nothing means of larger
blocks. What grows little by little, as lengths of sequences do, is no slowdown, and neither is a phase that comes again: it
must begin at a moment, last to the end of the log, and less work must be done a second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from analyzers.diagnosis.slow.claim import WORTH, finding
from analyzers.diagnosis.slow.grouping import Floats
from analyzers.diagnosis.slow.levels import turn
from analyzers.diagnosis.slow.logged_steps import WARM_UP_STEPS, Series, series_of
from analyzers.diagnosis.slow.pace_levels import LEAST, LEAST_BLOCKS, level_starts, slower_since
from analyzers.model.finding import Evidence, Finding
from analyzers.model.medians import DEVIATION_BY_MEDIAN
from collectors.records import Steps

FEWEST_STEPS = 40
MOST_BLOCKS, FEWEST_IN_BLOCK = 100, 5
MOST_OF_MEANS, FEWEST_OF_MEAN = 24, 25  # larger blocks, of which each has several of the steps that became longer
PAUSE_SECONDS, PAUSE_TIMES = 30.0, 20.0  # of a step alone, and so many times the usual one
LEAST_SECONDS = 120.0  # that it lasts
NO_PACE = "no line that was read gives the number of a step and how long it took, or when it ended"
MISSING = (
    "who is not decided: where ranks train in step, all their steps become longer alike. What changed at that step (the code, "
    "the lengths of sequences, the storage, the network) would show it, and so would a trace of torch.profiler of each rank "
    "(docs/formats.md)"
)


@dataclass(frozen=True)
class _Levels:
    """Of each level its blocks, their rows, and how much longer steps are than in the first: logarithms."""

    blocks: tuple[slice, ...]
    rows: tuple[slice, ...]
    level: Floats


@dataclass(frozen=True)
class _Change:
    """A series that became slower. ``since``: the first slower level; ``costs``: how many times as long steps take."""

    of: _Levels
    since: int
    costs: float


def slower_steps(records: Sequence[Steps]) -> Iterator[Finding]:
    """Yield that steps take longer since one of them; nothing where they do not, or where too few show it."""
    if (longest := _longest(records)) is None:
        return
    found = _by_medians(longest) or _by_means(longest)
    if found is None:
        return
    text, place, costs = found
    at = float(longest.at[place])
    shown = Evidence(text=text, source=longest.source, at=at if np.isfinite(at) else None)
    yield finding("slower", "slow", "unknown", evidence=(shown,), onset=shown.at, missing=(MISSING,), costs=costs)


def slower_once(records: Sequence[Steps]) -> str:
    """Say from which step to which steps took longer, where that came once and is over; empty: nothing of the kind is seen."""
    series = _longest(records)
    if series is None:
        return ""
    size, logs = _usual_of_blocks(series)
    if len(logs) < 2 * LEAST_BLOCKS:
        return ""
    levels = _levels(series, logs, size, _noise(logs))
    level = levels.level.tolist()
    outer = max(level[0], level[-1]) + LEAST
    raised = [index for index, one in enumerate(level) if one >= outer]
    others = [one for one in level if one < outer]
    if not raised or raised[-1] - raised[0] >= len(raised) or max(others) - min(others) >= LEAST:
        return ""
    rows = slice(levels.rows[raised[0]].start, levels.rows[raised[-1]].stop)
    if _is_short(series, rows):
        return ""
    before, took = (_usual(series, part) for part in (slice(0, rows.start), rows))
    first = _first_beyond(series, rows.start, size, before, took)
    last = _first_beyond(series, rows.stop, size, took, before) - 1
    span = f"from {_where(series, first)} to {_where(series, last)}"
    if series.by_rate:
        return f"the rate of work was {100 * (1 - before / took):.0f} % lower {span}; since then it is as before"
    longer = _longer(series, before, took)
    return f"a step took {took:.3g} s {span}, {longer}; since then it takes as long as before"


def paused_once(records: Sequence[Steps]) -> str:
    """Say which step alone took very long, or followed after a long time without one; empty: none, or several did."""
    series = _longest(records)
    if series is None or series.by_rate:
        return ""
    usual = float(np.median(series.seconds))
    between = usual * np.diff(series.step, prepend=0)  # the steps between two rows
    more = np.diff(series.at, prepend=np.nan) - between
    more[1:][np.diff(series.again) > 0] = np.nan
    took = np.maximum(series.seconds * series.stride, np.nan_to_num(more + usual * series.stride))
    longest = int(np.argmax(took))
    enough = float(took[longest]) >= max(PAUSE_SECONDS, PAUSE_TIMES * usual * float(np.median(series.stride)))
    if not enough or np.count_nonzero(took >= took[longest] / 3) > 1:
        return ""
    return f"a pause of {took[longest]:.0f} s at {_where(series, longest)}, once; the other steps take {usual:.3g} s"


def unjudged(records: Sequence[Steps]) -> str:
    """Say why it is not judged whether steps became longer; empty: it is."""
    series = list(series_of(records))
    known = max((len(one.step) for one in series), default=0)
    if known >= FEWEST_STEPS:
        long = [one for one in series if len(one.step) >= FEWEST_STEPS]
        enough = any(len(_usual_of_blocks(one)[1]) >= 2 * LEAST_BLOCKS for one in long)
        return "" if enough else "stamps and printed durations are too coarse for so few steps"
    if records and all(one.role for one in records):
        return "steps of roles wait for one another, and are not compared with those before"
    if not known:
        return NO_PACE
    return f"{known:,} rows of steps have a duration after the first {WARM_UP_STEPS}, and {FEWEST_STEPS} are needed"


def _longest(records: Sequence[Steps]) -> Series | None:
    """Return the longest series of the newest run, where it is long enough."""
    enough = [one for one in series_of(records) if len(one.step) >= FEWEST_STEPS]
    runs = [one.run for one in enough if one.run is not None]
    newest = (one for one in enough if one.run is None or not one.run.is_earlier(runs))
    return max(newest, key=lambda one: (len(one.step), one.source), default=None)


def _noise(logs: Floats) -> float:
    """Return the noise of a block by the differences between neighbours."""
    return DEVIATION_BY_MEDIAN * float(np.median(np.abs(np.diff(logs)))) / 2**0.5


def _by_medians(series: Series) -> tuple[str, int, float] | None:
    """Return what is said of longer steps, the place of the first, and how many times as long they are; None: they are not."""
    size, logs = _usual_of_blocks(series)
    found = _change(series, logs, size, _noise(logs)) if len(logs) >= 2 * LEAST_BLOCKS else None
    if found is None:
        return None
    level = [
        _usual(series, rows) if series.pace.coarse else float(np.exp(np.median(logs[part])))
        for part, rows in zip(found.of.blocks, found.of.rows, strict=True)
    ]
    before, since, newest = level[found.since - 1], level[found.since], level[-1]
    first = _first_beyond(series, found.of.rows[found.since].start, size, before, since)
    where = _where(series, first)
    if series.by_rate:
        return _of_rate(before, newest, where, "in the median"), first, found.costs
    if found.since == len(level) - 1:
        longer = _longer(series, before, newest)
        return f"a step takes {newest:.3g} s since {where}, {longer}", first, found.costs
    last = _where(series, _first_beyond(series, found.of.rows[-1].start, size, level[-2], newest))
    text = f"a step takes {since:.3g} s since {where}, {newest:.3g} s since {last}; {before:.3g} s before"
    return text, first, found.costs


def _by_means(series: Series) -> tuple[str, int, float] | None:
    """Return the same where only some of the steps became longer. The longest of a block does not count: it may be a pause."""
    size = max(FEWEST_OF_MEAN, -(-len(series.seconds) // MOST_OF_MEANS))
    blocks = _blocks(series.seconds, size)
    logs = np.log((blocks.sum(axis=1) - blocks.max(axis=1)) / (size - 1))
    noise = float(np.std(np.diff(logs))) / 2**0.5 if len(logs) > 1 else 0.0
    found = _change(series, logs, size, noise, means=True)
    if found is None or series.pace.off:
        return None
    parts = found.since - 1, -1
    before, newest = (float(np.median(blocks[found.of.blocks[part]].mean(axis=1))) for part in parts)
    usual = [_usual(series, found.of.rows[part]) for part in parts]
    if abs(np.log(usual[1] / usual[0])) > LEAST / 2:
        return None
    place = found.of.rows[found.since].start
    begin = max(place - size, 0)
    near = series.seconds[begin : place + size]
    first = begin + int(turn(np.minimum(near, np.sort(near)[-LEAST_BLOCKS])[None])[0])
    if series.by_rate:
        return _of_rate(before, newest, _where(series, first), "on average"), first, newest / before
    text = (
        f"on average a step takes {newest:.3g} s since {_where(series, first)}, {100 * (newest / before - 1):.0f} % longer than "
        f"before ({before:.3g} s), while the median is as before: some steps became longer"
    )
    return text, first, newest / before


def _of_rate(before: float, newest: float, where: str, how: str) -> str:
    """Return what is said where a rate of work is known and no duration."""
    lower, longer = (f"{100 * part:.0f} %" for part in (1 - before / newest, newest / before - 1))
    return f"the rate of work is {lower} lower since {where}: {how} as much work takes {longer} longer than before"


def _is_short(series: Series, rows: slice) -> bool:
    """Whether rows took too little time to count; where no duration is known, their number decides alone."""
    return not series.by_rate and float((series.seconds * series.stride)[rows].sum()) < LEAST_SECONDS


def _longer(series: Series, before: float, took: float) -> str:
    """Return by how much steps took longer, as far as the resolution of printed seconds shows it."""
    half = series.pace.off
    longer = f"{'at least ' if half else ''}{100 * ((took - half) / (before + half) - 1):.0f} %"
    return f"{longer} longer than before ({before:.3g} s)"


def _usual_of_blocks(series: Series) -> tuple[int, Floats]:
    """Return how many rows a block has, and of each the logarithm of what a step usually takes."""
    size = max(FEWEST_IN_BLOCK, -(-len(series.seconds) // MOST_BLOCKS))
    if not series.pace.coarse:
        return size, np.log(np.median(_blocks(series.seconds, size), axis=1))
    a_row = float(np.median(series.seconds * series.stride))
    size = max(size, int(np.ceil(2 * series.pace.coarse / (LEAST * a_row))))  # rows over which a unit is half of LEAST
    places = range(0, len(series.seconds) - size + 1, size)
    return size, np.log([_usual(series, slice(place, place + size)) for place in places])


def _usual(series: Series, rows: slice) -> float:
    """Return what a step of these rows usually takes: the median, and where seconds are coarse the mean but for pauses."""
    seconds, stride = series.seconds[rows], series.stride[rows]
    median = float(np.median(seconds))
    if not series.pace.coarse:
        return median
    own = seconds <= 2 * (median + series.pace.coarse)
    return float((seconds * stride)[own].sum() / stride[own].sum())


def _blocks(seconds: Floats, size: int) -> Floats:
    count = len(seconds) // size
    return seconds[: count * size].reshape(count, size)


def _levels(series: Series, logs: Floats, size: int, noise: float, *, means: bool = False) -> _Levels:
    """Return the levels of blocks of so many rows; longer steps that do as much work a second are no longer ones."""
    starts = [*level_starts(logs, noise), len(logs)]
    blocks = tuple(slice(*pair) for pair in pairwise(starts))
    rows = tuple(slice(part.start * size, part.stop * size) for part in blocks)
    median = [float(np.median(logs[part])) for part in blocks]
    grown = [
        0.0,
        *(
            _grown(series, *of, size=_shown(a, b, series.pace.off), means=means)
            for of, (a, b) in zip(pairwise(rows), pairwise(median), strict=True)
        ),
    ]
    return _Levels(blocks, rows, np.cumsum(grown))


def _shown(before: float, after: float, half: float) -> float:
    """Return the least difference of two logarithms whose values may be off by half a unit each."""
    size = after - before
    return float(np.sign(size)) * max(abs(size) - half * float(np.exp(-before) + np.exp(-after)), 0.0)


def _change(series: Series, logs: Floats, size: int, noise: float, *, means: bool = False) -> _Change | None:
    """Return the levels of blocks of so many rows, and since which the series is slower; None where it is not."""
    found = _levels(series, logs, size, noise, means=means)
    since = slower_since(found.level.tolist())
    if since is None or _is_short(series, slice(found.rows[since].start, None)):
        return None
    costs = float(np.exp(found.level[-1] - found.level[since - 1]))
    return _Change(found, since, costs)


def _grown(series: Series, before: slice, after: slice, *, size: float, means: bool) -> float:
    """Return by how much steps became longer; 0 where longer ones do as much a second, or are more steps of one row."""
    rates = [part[np.isfinite(part) & (part > 0)] for part in (series.rate[before], series.rate[after])]
    if min(map(len, rates)) >= FEWEST_IN_BLOCK:
        # The mean rate of rows with as much work each is the harmonic one.
        usual = [float(1 / np.mean(1 / part) if means else np.median(part)) for part in rates]
        faster = float(np.log(usual[1] / usual[0])) * np.sign(size)
        if faster > -np.log(1 + (WORTH - 1) / 2):
            return 0.0
    rows = (
        0.0
        if series.pace.by_clock
        else float(np.log(np.median(series.stride[after]) / np.median(series.stride[before])))
    )
    return 0.0 if abs(size) >= LEAST > (size - rows) * np.sign(size) else size


def _where(series: Series, place: int) -> str:
    """Return ``step 40``, and which count of the log's has it."""
    again = int(series.again[place])
    times = {1: "once", 2: "twice"}.get(again, f"{again:,} times")
    return f"step {int(series.step[place]):,}" + (f" after its numbers began anew {times}" if again else "")


def _first_beyond(series: Series, place: int, size: int, before: float, after: float) -> int:
    """Return where a level begins, about a place: the end of the last run of two rows that are as before."""
    seconds = series.seconds
    if series.pace.coarse:  # single rows show nothing
        begin = max(place - size, 0)
        return begin + int(turn((seconds[begin : place + size] * (1 if after > before else -1))[None])[0])
    bound = (before * after) ** 0.5
    still = seconds < bound if after > before else seconds > bound
    for index in range(min(place + size, len(seconds) - 1), max(place - size, 0), -1):
        if still[index] and still[index - 1]:
            return index + 1
    return place
