"""Whether a line that reports a step gives a loss: Megatron-LM prints it only where its mean is above zero, and NaN is not.

JSON has no NaN: many writers put null. A loss may be null where it is not logged at each step, too. So null is NaN only where
the loss was a number in several rows in a row, and then is null in every row.
"""

from __future__ import annotations

import math
from dataclasses import replace

from collectors.formats.job_log import log_marks
from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.step_lines import NULL, Step

MEGATRON, BEHIND_LOSS = "megatron", " loss scale:"
"""The losses stand right before the loss scale: a line that has the one and lacks the other was not cut there."""

JSON, FEWEST_NUMBERS, FEWEST_NULLS = "jsonl", 4, 4  # rows in a row
MAX_NULLS = 4096  # of a stream, as many as a series holds of steps


class LossColumn:
    """The streams whose steps had a loss so far. The column of one vanishes where the loss becomes NaN (``training_log``)."""

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._numbers: dict[tuple[str, int | None], int] = {}  # in a row, of each stream of JSON
        self._nulls: dict[tuple[str, int | None], list[Step]] = {}  # since then

    def checked(self, step: Step, line: Line) -> Step:
        """Return the step, with a loss that is none where the column has vanished; skipped steps print none either."""
        if step.layout == JSON:
            self._take_json(step, (line.stream, step.rank))
        if step.layout != MEGATRON or step.skipped:
            return step
        if math.isfinite(step.loss):
            self._shown.add(line.stream)
        elif line.stream in self._shown and "lm loss" not in line.text and BEHIND_LOSS in line.text:
            return replace(step, nan=step.nan | 1)
        return step

    def _take_json(self, step: Step, stream: tuple[str, int | None]) -> None:
        """Mark the steps whose loss is null to the end; those after which a number comes are marked no more."""
        nulls = self._nulls.get(stream, [])
        if not step.null:
            for one in nulls:
                one.nan &= ~(1 | NULL)
            if nulls or math.isfinite(step.loss):
                self._numbers[stream] = 1 if nulls else self._numbers.get(stream, 0) + 1
            self._nulls.pop(stream, None)
            return
        if self._numbers.get(stream, 0) < FEWEST_NUMBERS:
            self._numbers[stream] = 0
        elif len(nulls) < MAX_NULLS:
            nulls = self._nulls.setdefault(stream, [])
            nulls.append(step)
            for one in nulls if len(nulls) == FEWEST_NULLS else nulls[FEWEST_NULLS:][-1:]:
                one.nan |= 1 | NULL


def has_number(line: Line, step: Step | None) -> bool:
    """Whether a line gives a loss that is a number, by the step that it reports or by its words."""
    return bool(log_marks.loss_is_number(line.text)) if step is None else math.isfinite(step.loss)
