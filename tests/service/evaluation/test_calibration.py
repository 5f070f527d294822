"""Calibration against what is known: perfect, boastful and useless forecasts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from service.evaluation.calibration import Calibration, calibrate


def drawn(count: int, shift: float = 0.0) -> Calibration:
    """Calibrate forecasts that come true as stated, or less often by ``shift``."""
    draws = np.random.default_rng(7)
    stated = draws.uniform(0.3, 1.0, count)
    found = calibrate(stated.tolist(), (draws.random(count) < stated - shift).tolist())
    assert found is not None
    return found


def test_honest_forecasts_beat_the_base_rate() -> None:
    """Of 5,000 honest forecasts the error is small, and both losses are below those of the base rate."""
    found = drawn(5000)

    assert found.ece < 0.03
    assert found.ece_95[0] <= found.ece <= found.ece_95[1] + 0.01
    assert found.brier < found.brier_base
    assert found.log_loss < found.log_loss_base
    assert sum(one.n for one in found.bins) == 5000


def test_boasting_is_seen() -> None:
    """Forecasts that come true 0.2 less often than stated have that error, and their 0.9 is not 0.9."""
    found = drawn(5000, shift=0.2)

    assert found.ece == pytest.approx(0.2, abs=0.02)
    assert found.sure.high_95 < 0.9


def test_known_values() -> None:
    """Two forecasts of 0.8, one right: by hand."""
    found = calibrate([0.8, 0.8], [True, False])

    assert found is not None
    assert (found.brier, found.brier_base, found.ece) == (0.34, 0.25, 0.3)
    assert found.log_loss == pytest.approx(-(math.log(0.8) + math.log(0.2)) / 2, abs=1e-4)
    assert found.sure.n == 0


def test_a_certain_forecast_that_fails_costs_a_bounded_loss() -> None:
    """A probability of 1 that is wrong is as bad as one of 0.999."""
    found = calibrate([1.0], [False])

    assert found is not None
    assert found.log_loss == pytest.approx(-math.log(0.001), abs=1e-3)


def test_no_forecast_has_no_calibration() -> None:
    """Where no case names a culprit there is nothing to measure."""
    assert calibrate([], []) is None
