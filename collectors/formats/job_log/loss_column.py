"""Whether a line that reports a step gives a loss: Megatron-LM prints it only where its mean is above zero, and NaN is not."""

from __future__ import annotations

import math
from dataclasses import replace

from collectors.formats.job_log import log_marks
from collectors.formats.job_log.job_lines import Line
from collectors.formats.job_log.step_lines import Step

MEGATRON, BEHIND_LOSS = "megatron", " loss scale:"
"""The losses stand right before the loss scale: a line that has the one and lacks the other was not cut there."""


class LossColumn:
    """The streams whose steps had a loss so far. The column of one vanishes where the loss becomes NaN (``training_log``)."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def checked(self, step: Step, line: Line) -> Step:
        """Return the step, with a loss that is none where the column has vanished; skipped steps print none either."""
        if step.layout != MEGATRON or step.skipped:
            return step
        if math.isfinite(step.loss):
            self._shown.add(line.stream)
        elif line.stream in self._shown and "lm loss" not in line.text and BEHIND_LOSS in line.text:
            return replace(step, nan=step.nan | 1)
        return step


def has_number(line: Line, step: Step | None) -> bool:
    """Whether a line gives a loss that is a number, by the step that it reports or by its words."""
    return bool(log_marks.loss_is_number(line.text)) if step is None else math.isfinite(step.loss)
