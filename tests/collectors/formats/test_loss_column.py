"""Megatron-LM's lines of steps whose loss is no longer printed."""

from __future__ import annotations

import math

from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.loss_column import LossColumn
from collectors.formats.job_log.step_lines import Step, read_step

_STEP = (
    " iteration {n}/ 90 | learning rate: 1.0E-04 |{loss} loss scale: 1.0 | number of skipped iterations: {skipped} |"
)


def _checked(column: LossColumn, n: int, loss: str = "", skipped: int = 0, *, cut: int | None = None) -> Step:
    line = peel(n, _STEP.format(n=n, loss=loss, skipped=skipped)[:cut])
    step = read_step(line)
    assert step is not None
    return column.checked(step, line)


def test_a_loss_that_was_printed_and_is_no_more_is_none() -> None:
    """Its mean is not above zero any more, and NaN is not."""
    column = LossColumn()

    assert not _checked(column, 1, " lm loss: 2.1E+00 |").nan & 1
    assert _checked(column, 2).nan & 1


def test_a_log_that_never_printed_one_shows_nothing() -> None:
    """Lines that were cut before the loss, and skipped steps, show nothing either."""
    column = LossColumn()

    assert not _checked(column, 1).nan & 1
    _checked(column, 2, " lm loss: 2.1E+00 |")
    assert not _checked(column, 3, skipped=1).nan & 1
    assert not _checked(column, 4, cut=40).nan & 1


def test_a_number_stays_as_it_is() -> None:
    """The value is kept."""
    assert math.isclose(_checked(LossColumn(), 1, " lm loss: 2.1E+00 |").loss, 2.1)
