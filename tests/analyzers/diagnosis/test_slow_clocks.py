"""What printed times of steps are of: one step, or all since the start; and whether the clock contradicts them."""

from __future__ import annotations

import numpy as np
import pytest

from analyzers.diagnosis.slow.step_logs import paused_once
from tests.analyzers.diagnosis.test_slow_steps import drawn, reported, said


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("what", ["a checkpoint", "longer sequences", "a little"])
def test_steps_after_a_slow_first_one_are_no_mean_since_the_start(stamped: bool, what: str) -> None:
    """Their printed times are their own, and their rate explains them."""
    took = np.array([30.0, 1.2] + [2.0 if what == "longer sequences" and n > 250 else 1.0 for n in range(3, 401)])
    took[300:] *= 1.04 if what == "a little" else 1.0
    took[150] += 2.0 * (what == "a checkpoint")
    printed = np.round(took * (1 + 0.0005 * np.sin(np.arange(400) ** 2)), 4)
    work = np.where((took > 1.9) & (what == "longer sequences"), 2.0, 1.0) * 8192
    at = 1.79e9 + np.cumsum(took) if stamped else np.full(400, np.nan)
    rows = reported(range(1, 401), printed.tolist(), at=at, tokens_per_second=np.round(work / printed, 1))
    assert not said(rows)
    assert not paused_once([rows])


@pytest.mark.parametrize("times", [1.5, 1.0])
@pytest.mark.parametrize("stamped", [True, False])
def test_a_printed_time_since_the_start_is_a_clock(stamped: bool, times: float) -> None:
    """It rises with every row."""
    ended = np.cumsum(drawn(800, lambda row: times if row >= 500 else 1.0, 0.02))
    at = 1.79e9 + np.round(ended, 3) if stamped else np.full(800, np.nan)
    text = said(reported(range(800), np.round(ended, 1).tolist(), at=at))
    assert (" % longer" in text) == (times > 1)


@pytest.mark.parametrize("share", [1.0, 0.45])
@pytest.mark.parametrize("times", [1.5, 1.0])
def test_printed_seconds_that_stamps_contradict_are_not_believed(share: float, times: float) -> None:
    """They are of a part of each step, be they printed by all rows or by the first ones."""
    took = drawn(800, lambda row: 5.0 * (times if row >= 500 else 1.0), 0.02)
    printed = [1.503 if row < share * 800 else np.nan for row in range(800)]
    assert ("50 % longer" in said(reported(range(800), printed, at=1.79e9 + np.cumsum(took)))) == (times > 1)


def test_printed_seconds_of_fast_steps_are_no_minutes() -> None:
    """Of 0.05 seconds four digits show enough."""
    took = np.round(drawn(4000, lambda row: 0.075 if row >= 700 else 0.05, 0.03), 4)
    assert "50 % longer" in said(reported(range(4000), took.tolist(), stamped=False))
