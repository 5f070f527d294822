"""A loss or a gradient norm that changed for good until the end of a log: all that was learned is lost, or nothing is learned.

Unlike a spike it may be less than five times the usual value. A job is stopped for it, so it is found only where the log shows
that no sound training does so. The loss of a language model is back at what a guess among all tokens costs, where its log
begins, and does not fall from there as it did at first: a new phase would. A norm grows beyond any usual one. Both are exactly
zero, and were no small number before: transformers leaves out what is no number. Megatron's optimizer skips each step.
What is less sure is said beside a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.numeric.step_rows import LOSS, NULL, Rows, evidence_of, finding, place, read_rows, where
from analyzers.model.finding import Evidence, Finding
from collectors.records import STEP_COLUMNS, Steps

FEWEST, LONG = 20, 100  # rows that show a value, and that show what is usual
BLOCK = 5  # rows of which a median counts: one batch is no level
A_GUESS = 7.0, 13.0  # the loss of a guess among 1,100 to 440,000 tokens
OF_FIRST, ABOVE_FIRST = 0.9, 1.25  # times the first level: as high
BEYOND = 2.0  # times the first level: higher than any before
LEARNED, FELL = 3.0, 0.9  # how much lower it was before
AS_HIGH, EVEN = 0.97, 0.05  # the last third of the rows since, against the first; how much one differs from the next
EXPLODED, SCATTERED, UNUSUAL = 100.0, 10.0, 1e4
PART = 0.3  # of the log: at least so long it was as usual, and at most so long it grew
UNITS, OF_USUAL = 100, 0.5  # a loss that is learned to zero is printed as few units before
MOST_SKIPPED = 64  # steps in a row: a loss scale that is halved each time is 1 long before


def lasting(records: Sequence[Steps], rows: Rows) -> Iterator[Finding]:
    """Yield the first of them that one log shows; rows are those of the whole log in its order."""
    for found in (_diverged(rows), _exploded(rows), _zero(rows, UNITS)):
        if found is not None:
            row, text = found
            yield finding("spike", evidence_of(records, row, text))
            return


def skipped(records: Sequence[Steps]) -> Iterator[Finding]:
    """Yield since which step the optimizer has skipped each one, by its own rows: a line between rows may be of a second one."""
    for record in records:
        if record.told_by == "megatron" and (since := _skipped_since(record)):
            text = f"the optimizer has skipped each step since {since}: nothing is learned"
            yield finding("spike", Evidence(text=text, source=record.source, rank=record.rank))
            return


def unsure(records: Sequence[Steps]) -> Iterator[str]:
    """Yield what may be such a change, and a setting or a new phase as well."""
    for record in records:
        if record.told_by != "megatron" and (since := _skipped_since(record)):
            yield f"an optimizer skipped each step since {since}"
            break
    rows = read_rows(max(records, key=lambda record: record.count), 0)
    if (risen := _risen(_known(rows, "loss"), BEYOND)) is not None:
        row, usual, newest, count = risen
        first = _first(_known(rows, "loss")["loss"])
        text = f"the loss rises from {usual:.4g} to {newest:.4g} {where(row)}, beyond the {first:.4g} with which the log begins"
        yield f"{text}, and stays so for {count:,} rows until the end"
    elif np.isfinite(rows["gradient_norm"]).any() and (zero := _zero(rows, 0)) is not None:
        yield zero[1]


def odd_once(records: Sequence[Steps]) -> str:
    """Say in how many steps a log's loss was no number, where it is one since; empty: in none."""
    rows = read_rows(max(records, key=lambda record: record.count), 0)
    odd = np.flatnonzero((rows["odd"] & (LOSS | NULL)) == LOSS)
    if not len(odd) or len(rows) - 1 - odd[-1] < FEWEST:
        return ""
    many = f"{len(odd):,} rows, first" if len(odd) > 1 else "a row,"
    return f"the loss was no number in {many} {where(rows[odd[0]])}, and is one since {place(rows[odd[-1] + 1])}"


def _skipped_since(record: Steps) -> str:
    """Return since which step each is skipped, and how many; empty: they are not, or too few."""
    numbers, skips = (record.columns.get(name, b"") for name in ("step", "skipped"))
    if len(numbers) != 8 * record.count or len(skips) != record.count:
        return ""
    step, was = np.frombuffer(numbers, STEP_COLUMNS["step"]), np.frombuffer(skips, STEP_COLUMNS["skipped"])
    if not np.any(was) or np.any(np.diff(step) > 1):
        return ""  # a row of several steps says that some were skipped
    taken = np.flatnonzero(was == 0)
    first = int(taken[-1]) + 1 if len(taken) else 0
    if len(was) - first < MOST_SKIPPED:
        return ""
    at = f"step {step[first]}" if step[first] >= 0 else f"report {first + 1} of the log"
    return f"{at}, {len(was) - first:,} in a row"


def _levels(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the medians of blocks of rows; the newest rows have a whole block."""
    count = len(values) // BLOCK
    found: NDArray[np.float64] = np.median(values[len(values) - count * BLOCK :].reshape(count, BLOCK), axis=1)
    return found


def _known(rows: Rows, field: str) -> Rows:
    kept: Rows = rows[np.isfinite(rows[field])]
    return kept


def _first(values: NDArray[np.float64]) -> float:
    """Return the level at which a log begins: the highest of its first rows, for it may fall fast."""
    return float(_levels(values[:FEWEST]).max())


def _diverged(rows: Rows) -> tuple[np.void, str] | None:
    known = _known(rows, "loss")
    risen = _risen(known, OF_FIRST)
    if risen is None:
        return None
    row, usual, newest, count = risen
    first = _first(known["loss"])
    values = known["loss"][-count:]
    even = float(np.median(np.abs(np.diff(values)))) <= EVEN * newest
    arrived = float(np.median(values[: count // 3]))
    if not even or not A_GUESS[0] <= first <= A_GUESS[1] or not LEARNED * usual <= first >= arrived / ABOVE_FIRST:
        return None
    text = f"the loss rises from {usual:.4g} to {newest:.4g} {where(row)}, as high as when the log begins ({first:.4g})"
    return row, f"{text}, and does not fall again for {count:,} rows until the end"


def _risen(known: Rows, times: float) -> tuple[np.void, float, float, int] | None:
    """Return the row where a loss rose within few to so many times the first level, from what, to what, and for how many rows.

    It had long been lower. It does not fall in as many rows as it did when the log begins.
    """
    values = known["loss"]
    if len(values) < 3 * LONG or values.min() <= 0:
        return None
    levels = _levels(values)
    high = times * _first(values)
    middle = (high * float(levels.min())) ** 0.5
    since = int(np.flatnonzero(levels < high).max(initial=-1)) + 1
    low = np.flatnonzero(levels[:since] < middle)
    if not len(low) or len(levels) - since < max(LONG // BLOCK, int(low[0])):
        return None
    left, long = int(low[-1]) + 1, LONG // BLOCK
    before = levels[left - min(long, left) : left]
    if since - left > long or len(before) < long or before.max() >= middle:
        return None
    usual, third = float(np.median(before)), (len(levels) - since) // 3
    newest = float(np.median(levels[-third:]))
    if usual > FELL * float(np.median(values[:FEWEST])) or newest < AS_HIGH * np.median(levels[since : since + third]):
        return None
    begin = len(values) - (len(levels) - left + 1) * BLOCK
    at = begin + int(np.argmax(values[begin:] >= middle))
    return known[at], usual, newest, len(values) - at


def _exploded(rows: Rows) -> tuple[np.void, str] | None:
    known = _known(rows, "gradient_norm")
    values = known["gradient_norm"]
    if len(values) < LONG + FEWEST or (usual := float(np.median(values[:LONG]))) <= 0:
        return None
    at = int(np.flatnonzero(values <= SCATTERED * usual)[-1]) + 1
    newest, longest = float(values[-FEWEST:].min()), PART * len(values)
    if newest < max(UNUSUAL, EXPLODED * float(values[:at].max())) or at < max(LONG, longest):
        return None
    if int(np.argmax(values[at:] >= EXPLODED * usual)) > longest:
        return None
    text = f"the gradient norm is {float(values[at]):.4g} {where(known[at])}, {float(values[at]) / usual:.0f} times"
    return known[at], f"{text} its usual value ({usual:.3g}), and ends at {float(values[-1]):.3g}"


def _zero(rows: Rows, units: int) -> tuple[np.void, str] | None:
    """Return since where the loss is zero, and the norm since the same row; ``units``: as many printed ones it was before."""
    known = _known(rows, "loss")
    loss, norm = known["loss"], known["gradient_norm"]
    both = bool(np.isfinite(norm).any())
    something = np.flatnonzero((loss != 0) | (np.nan_to_num(norm) != 0))
    first = int(something[-1]) + 1 if len(something) else 0
    if len(loss) - first < FEWEST or first < FEWEST or (both and not abs(norm[first - 1]) > 0):
        return None
    before = loss[first - FEWEST : first]
    small = before.min() <= units * _unit(before) or np.median(before) < OF_USUAL * np.median(loss[:first])
    if units and (small or loss[:first].min() < 0):
        return None
    what = "loss and the gradient norm are" if both else "loss is"
    text = f"the {what} exactly 0 since {place(known[first])}"
    return known[first], f"{text}, {len(loss) - first:,} rows until the end"


def _unit(values: NDArray[np.float64]) -> float:
    """Return the last decimal place with which values are printed."""
    return next((10.0**-n for n in range(16) if np.allclose(np.round(values, n), values, rtol=1e-12, atol=0)), 0.0)
