"""Whether the loss or gradient norm of a reporter has become abnormal: NaN, or five times its usual value.

One odd step is noise, and a step that the optimizer skipped (fp16 overflow) is normal. A norm is of one batch's gradients, which
are clipped: a policy has a large one now and then, and two of them meet by chance. After ten good steps an anomaly is over.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analyzers.incidents.job_views.step_rhythm import StepRow
from analyzers.model.usual_values import usual_value

SPIKE_FACTOR = 5.0
NEWEST = 50  # steps that the usual value is of
WARM_UP_STEPS = 20
WITHIN = 3  # two odd steps within so many are an anomaly
NORMS, OF_NORMS = 3, 5  # of norms alone three, within so many
STALE_VALUES = 10  # the usual value is computed again after so many
GOOD_AGAIN = 10  # steps after which a spike is over


@dataclass(frozen=True, slots=True)
class LossAnomaly:
    """A run of odd steps that is not over."""

    name: str  # nan spike
    at: float
    step: int
    text: str


@dataclass(frozen=True, slots=True)
class _Odd:
    name: str
    row: StepRow
    text: str
    certain: bool = False
    of_norm: bool = False  # a finite one


class RecentValues:
    """The newest good values of one quantity."""

    __slots__ = ("_since", "_usual", "_values")

    def __init__(self) -> None:
        self._values: deque[float] = deque(maxlen=NEWEST)
        self._usual = 0.0
        self._since = 0  # values that came after it was computed

    def add(self, value: float) -> None:
        """Add a good value."""
        if math.isfinite(value):
            self._values.append(value)
            self._since += 1

    def exceeded_by(self, value: float) -> float | None:
        """Return the usual value where a value is more than five times as large."""
        if len(self._values) < WARM_UP_STEPS or not math.isfinite(value):
            return None
        if self._since >= STALE_VALUES:
            self._usual, self._since = usual_value(self._values), 0
        return self._usual if 0.0 < SPIKE_FACTOR * self._usual < value else None


def find_anomaly(rows: Sequence[StepRow]) -> LossAnomaly | None:
    """Return the run of odd steps that lasts at the end of these rows."""
    newest: deque[_Odd | None] = deque(maxlen=OF_NORMS)
    found: LossAnomaly | None = None
    good = 0
    for _, odd_one in _screened(rows):
        newest.append(odd_one)
        if odd_one is None:
            good += 1
            found = None if good >= GOOD_AGAIN else found
            continue
        good = 0
        if found is None and (first := _began(list(newest))) is not None:
            found = LossAnomaly(odd_one.name, first.row.at, first.row.step, odd_one.text)
    return found


def _began(newest: Sequence[_Odd | None]) -> _Odd | None:
    """Return the first of the odd ones among the newest steps, the last of which is odd; None where they may be noise."""
    every = [one for one in newest if one is not None]
    close = [one for one in newest[-WITHIN:] if one is not None]
    if len(every) >= NORMS:
        return every[0]
    alone = len(close) < 2 or all(one.of_norm for one in close)
    return close[0] if close[-1].certain or not alone else None


def odd_until(rows: Sequence[StepRow]) -> float:
    """Return the instant of the newest odd step; -inf where there is none."""
    return max((row.at for row, odd_one in _screened(rows) if odd_one is not None), default=-math.inf)


def _screened(rows: Sequence[StepRow]) -> Iterator[tuple[StepRow, _Odd | None]]:
    """Yield each step that the optimizer took, with what is odd about it."""
    losses, norms = RecentValues(), RecentValues()
    for row in rows:
        if row.skipped:
            continue
        if (odd_one := _odd(row, losses, norms)) is None:
            losses.add(row.loss)
            norms.add(row.gradient_norm)
        yield row, odd_one


class AnomalyScreen:
    """Whether any newer row may be odd, for a fraction of the cost of ``find_anomaly``."""

    __slots__ = ("_loss", "_norm", "_seen", "odd")

    def __init__(self) -> None:
        self.odd = False
        self._loss = self._norm = math.inf  # a larger value deserves a full check
        self._seen = 0

    def at(self, row: StepRow, rows: Sequence[StepRow]) -> None:
        """Check a row, the newest of these."""
        self._seen += 1
        if self._seen == WARM_UP_STEPS or self._seen % NEWEST == 0:
            self._loss = _worth_a_look([one.loss for one in rows[-NEWEST:]])
            self._norm = _worth_a_look([one.gradient_norm for one in rows[-NEWEST:]])
        infinite = math.isinf(row.loss) or math.isinf(row.gradient_norm)
        self.odd = self.odd or bool(row.nan) or infinite or row.loss > self._loss or row.gradient_norm > self._norm


def _worth_a_look(values: Sequence[float]) -> float:
    finite = sorted(value for value in values if math.isfinite(value))
    return finite[len(finite) // 2] * SPIKE_FACTOR / 2 if finite and finite[len(finite) // 2] > 0 else math.inf


def _odd(row: StepRow, losses: RecentValues, norms: RecentValues) -> _Odd | None:
    where = f"at step {row.step:,}"
    if row.nan & 1 or math.isinf(row.loss):
        if row.odd_since is not None:
            row = row._replace(step=row.odd_since)
            where = f"at step {row.step:,}"
        return _Odd("nan", row, f"the loss is {'NaN' if row.nan & 1 else row.loss} {where}", certain=True)
    if row.nan & 2 or math.isinf(row.gradient_norm):
        # transformers prints a loss of exactly 0 where each was NaN; an fp16 overflow that is skipped has a loss.
        lasts = bool(row.nan & 2) and row.loss == 0.0
        text = f"the gradient norm is {'NaN' if row.nan & 2 else row.gradient_norm} {where}"
        return _Odd("nan", row, text, certain=lasts)
    for name, value, usual in (("loss", row.loss, losses), ("gradient norm", row.gradient_norm, norms)):
        if (before := usual.exceeded_by(value)) is not None:
            bound = f"more than {SPIKE_FACTOR:g} times the usual value of {NEWEST} steps, {before:.4g}"
            return _Odd("spike", row, f"the {name} is {value:.4g} {where}, {bound}", of_norm=name != "loss")
    return None
