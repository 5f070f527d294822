"""Lines of steps whose loss is no longer given: Megatron-LM's, and JSON's null."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.loss_column import LossColumn
from collectors.formats.job_log.step_lines import NULL, Step, read_step

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


def _json(losses: Sequence[str], more: str = "") -> list[Step]:
    column, found = LossColumn(), []
    for number, loss in enumerate(losses):
        line = peel(number, f'{{"step": {number}, "loss": {loss}{more}}}')
        step = read_step(line)
        assert step is not None
        found.append(column.checked(step, line))
    return found


@pytest.mark.parametrize("more", ["", ', "lr": 0.1', ', "grad_norm": 1.5'])
def test_a_loss_that_stays_null_is_none(more: str) -> None:
    """JSON has no NaN: from the first null on, once several followed."""
    steps = _json(["2.5"] * 6 + ["null"] * 5, more)

    assert [bool(step.nan & 1) for step in steps] == [False] * 6 + [True] * 5
    assert all(step.nan & NULL for step in steps[6:])


@pytest.mark.parametrize(
    "losses",
    [
        ["2.5"] * 6 + ["null"],
        ["2.5"] * 6 + ["null"] * 6 + ["2.4"],
        (["2.5"] + ["null"] * 9) * 3,
        ["2.5"] + ["null"] * 9,
        ["null"] * 9,
        ["2.5", "null"] * 9,
    ],
    ids=["one", "a number again", "logged at every tenth", "logged once so far", "never", "every second"],
)
def test_a_null_now_and_then_is_a_value_that_is_not_logged(losses: Sequence[str]) -> None:
    """Nor is one that a number follows."""
    assert not any(step.nan for step in _json(losses))


def test_a_row_of_an_evaluation_has_no_loss_to_lose() -> None:
    """Its null is no step of training."""
    assert read_step(peel(1, '{"step": 5, "loss": null, "eval_loss": 2.5}')) is None
