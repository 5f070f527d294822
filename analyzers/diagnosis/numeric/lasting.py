"""A loss or a gradient norm that changed for good until the end of a log: all that was learned is lost, or nothing is learned.

Unlike a spike it may be less than five times the usual value. A loss that diverges is as high as when training began, a norm that
explodes grows without end, both are exactly zero where transformers leaves out what is no number, and an optimizer that skips
each step learns nothing. A harder mix of data raises a loss by less, and a policy's loss, about zero, has no scale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from analyzers.diagnosis.numeric.step_rows import Rows, evidence_of, finding, where
from analyzers.model.finding import Evidence, Finding
from collectors.records import STEP_COLUMNS, Steps

FEWEST = 20  # rows before it and since
BLOCK = 5  # rows of which a median counts: one batch is no level
AGAIN, ANYWHERE = 2.0, 3.0  # times the lowest level: back at the first one, or wherever the log begins
OF_FIRST = 0.9
TIMES_NOISE = 8.0
WITHIN = 0.3  # of the log: what takes longer is a curriculum, or a reward that grows
EXPLODED, SCATTERED = 100.0, 10.0
OF_USUAL = 0.1  # a loss that was learned to zero becomes small before
MOST_SKIPPED = 64  # steps in a row: a loss scale that is halved each time is 1 long before


def lasting(records: Sequence[Steps], rows: Rows) -> Iterator[Finding]:
    """Yield the first of them that one log shows; rows are those of the whole log in its order."""
    for found in (_diverged(rows), _exploded(rows), _zero(rows)):
        if found is not None:
            row, text = found
            yield finding("spike", evidence_of(records, row, text))
            return


def skipped(records: Sequence[Steps]) -> Iterator[Finding]:
    """Yield since which step the optimizer has skipped each one."""
    for record in records:
        columns = [record.columns.get(name, b"") for name in ("step", "skipped")]
        step, was = (
            np.frombuffer(data, STEP_COLUMNS[name]) for data, name in zip(columns, ("step", "skipped"), strict=True)
        )
        if not len(step) == len(was) == record.count or not np.any(was) or np.any(np.diff(step) > 1):
            continue  # a row of several steps says that some were skipped
        taken = np.flatnonzero(was == 0)
        first = int(taken[-1]) + 1 if len(taken) else 0
        if len(was) - first >= MOST_SKIPPED:
            at = f"step {step[first]}" if step[first] >= 0 else f"report {first + 1} of the log"
            text = f"the optimizer has skipped each step since {at}, {len(was) - first:,} in a row: nothing is learned"
            yield finding("spike", Evidence(text=text, source=record.source, rank=record.rank))
            return


def _levels(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the medians of blocks of rows; the newest rows have a whole block."""
    count = len(values) // BLOCK
    found: NDArray[np.float64] = np.median(values[len(values) - count * BLOCK :].reshape(count, BLOCK), axis=1)
    return found


def _known(rows: Rows, field: str) -> Rows:
    kept: Rows = rows[np.isfinite(rows[field])]
    return kept


def _diverged(rows: Rows) -> tuple[np.void, str] | None:
    known = _known(rows, "loss")
    values = known["loss"]
    if len(values) < 3 * FEWEST or values.min() <= 0:
        return None
    levels = _levels(values)
    newest = float(levels[-FEWEST // BLOCK :].min())
    lowest = int(np.argmin(levels))
    low = float(levels[lowest])
    is_first = newest >= OF_FIRST * float(levels[: FEWEST // BLOCK].max())
    if newest < (AGAIN if is_first else ANYWHERE) * low:
        return None
    begin = len(values) - len(levels) * BLOCK
    below = np.flatnonzero(levels < (low * newest) ** 0.5)
    since = begin + (int(below[-1]) + 1) * BLOCK
    before = values[max(since - 10 * FEWEST, 0) : since - BLOCK]
    if len(before) < FEWEST or len(values) - since < FEWEST:
        return None
    noise = float(np.median(np.abs(np.diff(before))))
    near = np.flatnonzero(levels[lowest:] <= low + 0.2 * (newest - low))
    far = np.flatnonzero(levels[lowest:] >= low + 0.8 * (newest - low))
    took = (int(far[far > near[-1]][0]) - int(near[-1])) * BLOCK if (far > near[-1]).any() else len(values)
    if newest - low < TIMES_NOISE * noise or took > max(10 * FEWEST, WITHIN * len(values)):
        return None
    usual = float(np.median(before))
    high = since + int(np.argmax(values[since:] >= (usual * newest) ** 0.5))
    back = ", as high as when the log begins" if is_first else ""
    text = (
        f"the loss rises from {usual:.4g} to {newest:.4g}{back}: it is {float(values[high]):.4g} {where(known[high])}"
    )
    return known[high], f"{text}, and stays so for {len(values) - high:,} rows until the end"


def _exploded(rows: Rows) -> tuple[np.void, str] | None:
    known = _known(rows, "gradient_norm")
    values = known["gradient_norm"]
    if len(values) < 2 * FEWEST:
        return None
    for first in range(FEWEST, len(values) - FEWEST + 1, FEWEST):
        before = values[:first]
        usual = float(np.median(before))
        if usual > 0 and float(before.max()) <= SCATTERED * usual and values[-FEWEST:].min() >= EXPLODED * usual:
            high = values > SCATTERED * float(before.max())
            at = int(np.flatnonzero(~high)[-1]) + 1
            text = f"the gradient norm is {float(values[at]):.4g} {where(known[at])}, {float(values[at]) / usual:.0f} times"
            return known[at], f"{text} its usual value ({usual:.3g}), and ends at {float(values[-1]):.3g}"
    return None


def _zero(rows: Rows) -> tuple[np.void, str] | None:
    known = _known(rows, "loss")
    loss, norm = known["loss"], known["gradient_norm"]
    both = bool(np.isfinite(norm).any())
    something = np.flatnonzero((loss != 0) | (np.nan_to_num(norm) != 0))
    first = int(something[-1]) + 1 if len(something) else 0
    before = loss[:first][loss[:first] != 0]
    if len(loss) - first < FEWEST or len(before) < FEWEST:
        return None
    own = np.abs(before)
    if np.median(own[-FEWEST // 2 :]) < OF_USUAL * np.median(own) or (not both and before.min() < 0):
        return None
    what = "loss and the gradient norm are" if both else "loss is"
    text = f"the {what} exactly 0 since {where(known[first]).removeprefix('at ').removeprefix('in ')}"
    return known[first], f"{text}, {len(loss) - first:,} rows until the end: nothing is learned any more"
