"""Steps of a log alone: since which step they take longer, and by how much. They name no rank: ranks train in step.

A running job's pace is judged as it goes (``analyzers/incidents``); this is for a log that is read afterwards. Medians of
blocks of steps are compared, so that a checkpoint every so often changes nothing. What grows little by little, as lengths of
sequences do, is no slowdown: it must begin at a moment, last to the end of the log, and less work must be done a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analyzers.diagnosis.slow.claim import WORTH, finding
from analyzers.diagnosis.slow.grouping import Floats, Ints
from analyzers.diagnosis.slow.levels import rise, turn
from analyzers.model.finding import Evidence, Finding
from collectors.records import COUNTED, STEP_COLUMNS, Steps

WARM_UP_STEPS = 5  # compiling, filling caches
FEWEST_STEPS = 40
MOST_BLOCKS, FEWEST_IN_BLOCK = 100, 5
LEAST_BLOCKS = 4  # before and after a change
LEAST_SECONDS = 120.0  # that it lasts
TIMES_NOISE = 4.0
AT_ONCE = 0.6  # of the rise, which the blocks right before and after it must show
_BATCH = re.compile(r"^.*?#\d+:")  # a log is in many batches of a bundle
MISSING = (
    "who is not decided: where ranks train in step, all their steps become longer alike. What changed at that step (the code, "
    "the lengths of sequences, the storage, the network) would show it, and so would a trace of torch.profiler of each rank "
    "(docs/formats.md)"
)


@dataclass(frozen=True)
class _Series:
    """One reporter's steps: numbers, seconds of each, work a second where it is reported."""

    source: str
    step: Ints
    at: Floats
    seconds: Floats
    rate: Floats


def slower_steps(records: Sequence[Steps]) -> Iterator[Finding]:
    """Yield that steps take longer since one of them; nothing where they do not, or where too few show it."""
    series = [_series(source, own) for source, own in _by_reporter(records).items()]
    longest = max(series, key=lambda one: (len(one.step), one.source), default=None)
    if longest is None or len(longest.step) < FEWEST_STEPS:
        return
    found = _change(longest)
    if found is None:
        return
    place, before, after = found
    text = (
        f"a step takes {after:.3g} s since step {int(longest.step[place]):,}, {100 * (after / before - 1):.0f} % longer than "
        f"before ({before:.3g} s)"
    )
    at = float(longest.at[place])
    shown = Evidence(text=text, source=longest.source, at=at if np.isfinite(at) else None)
    yield finding(
        "slower", "slow", "unknown", evidence=(shown,), onset=shown.at, missing=(MISSING,), costs=after / before
    )


def _by_reporter(records: Sequence[Steps]) -> dict[str, list[Steps]]:
    """Return the records of each rank of each source. Counted lines are no steps; those of roles wait for one another."""
    found: dict[str, list[Steps]] = {}
    for record in records:
        if not record.told_by.endswith(COUNTED) and not record.role:
            found.setdefault(f"{_BATCH.sub('', record.source)} {record.rank}", []).append(record)
    return found


def _series(_name: str, records: list[Steps]) -> _Series:
    columns = {name: np.concatenate([_column(record, name) for record in records]) for name in STEP_COLUMNS}
    step, first = np.unique(columns["step"].astype(np.int64), return_index=True)
    at, seconds = columns["at"][first], columns["seconds"][first]
    rate = np.where(np.isfinite(columns["tokens_per_second"]), columns["tokens_per_second"], columns["tflops"])[first]
    seconds = np.where(np.isfinite(seconds), seconds, _between(step, at))
    with np.errstate(invalid="ignore"):
        known = np.isfinite(seconds) & (seconds > 0) & (step >= 0)
    known[:WARM_UP_STEPS] = False
    return _Series(records[0].source, step[known], at[known], seconds[known], rate[known])


def _between(step: Ints, at: Floats) -> Floats:
    """Return the seconds a step since the row before, by the clock; of rows that were read at once the last has them."""
    found = np.full(len(at), np.nan)
    timed = np.flatnonzero(np.isfinite(at))
    timed = timed[np.diff(at[timed], append=np.inf) > 0]
    found[timed[1:]] = np.diff(at[timed]) / np.diff(step[timed])
    return found


def _column(record: Steps, name: str) -> Floats:
    code, data = STEP_COLUMNS[name], record.columns.get(name, b"")
    whole = len(data) == record.count * np.dtype(code).itemsize
    return (
        np.frombuffer(data, code).astype(np.float64)
        if whole
        else np.full(record.count, -1.0 if code == "<i8" else np.nan)
    )


def _change(series: _Series) -> tuple[int, float, float] | None:
    """Return the place of the first longer step, and the usual seconds before and since; None where there is no change."""
    size = max(FEWEST_IN_BLOCK, -(-len(series.seconds) // MOST_BLOCKS))
    count = len(series.seconds) // size
    if count < 2 * LEAST_BLOCKS:
        return None
    blocks = np.median(series.seconds[: count * size].reshape(count, size), axis=1)
    logs = np.log(blocks)
    at = int(turn(logs[None])[0])
    if min(at, count - at) < LEAST_BLOCKS or _lasts(series, at * size) < LEAST_SECONDS:
        return None
    step_up, noise = rise(logs, at)
    edge = float(
        np.median(logs[at + 1 : at + 1 + LEAST_BLOCKS]) - np.median(logs[max(at - 1 - LEAST_BLOCKS, 0) : at - 1])
    )
    newest = float(np.median(logs[-LEAST_BLOCKS:]) - np.median(logs[:at]))
    least = np.log(WORTH)
    if step_up <= max(least, TIMES_NOISE * noise) or edge < AT_ONCE * step_up or newest < least:
        return None
    if _as_much_work(series.rate[: at * size], series.rate[at * size :]):
        return None
    before, after = float(np.exp(np.median(logs[:at]))), float(np.exp(np.median(logs[at:])))
    first = _first_long(series.seconds, at * size, size, (before * after) ** 0.5)
    return first, before, after


def _lasts(series: _Series, place: int) -> float:
    """Return for how many seconds the steps from a row on went on: a row may be of several steps."""
    steps = np.diff(series.step, prepend=series.step[:1])
    return float((series.seconds * np.minimum(steps, 3 * np.median(steps)))[place:].sum())


def _first_long(seconds: Floats, place: int, size: int, bound: float) -> int:
    """Return where the longer steps begin, about a place: the end of the last run of two that are as before."""
    for index in range(min(place + size, len(seconds) - 1), max(place - size, 0), -1):
        if seconds[index] < bound and seconds[index - 1] < bound:
            return index + 1
    return place


def _as_much_work(before: Floats, after: Floats) -> bool:
    """Whether as much is done in a second as before: longer steps do more then, as with a larger batch."""
    known = [part[np.isfinite(part) & (part > 0)] for part in (before, after)]
    if min(len(part) for part in known) < FEWEST_IN_BLOCK:
        return False
    return bool(np.median(known[1]) > np.median(known[0]) / (1 + (WORTH - 1) / 2))
