"""Gradient norms of a policy: many are 0, a few are large by themselves, and what its other steps always had is no spike."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from analyzers.incidents.job_views.loss_anomalies import find_anomaly
from analyzers.incidents.job_views.step_rhythm import StepRow

STEPS, SPIKED = 600, (300, 301, 304)


def answered(seed: int, spike: float = 0.0, spiked: Sequence[int] = ()) -> list[StepRow]:
    """Return the steps of a policy that answers ever more questions always right: those of a step have no gradient then."""
    noise, rows = Random(seed), list[StepRow]()
    for step in range(STEPS):
        norm = 0.0 if noise.random() < 0.9 * step / STEPS else noise.lognormvariate(-1.0, 0.4)
        norm = spike if step in spiked else norm
        rows.append(StepRow(at=3.0 * step, step=step, loss=0.0, gradient_norm=norm))
    return rows


def anomalies(rows: list[StepRow]) -> set[int]:
    """Return at which steps an anomaly began, looked at after every step."""
    found = (find_anomaly(rows[max(0, end - 200) : end]) for end in range(1, len(rows) + 1))
    return {one.step for one in found if one is not None}


@pytest.mark.parametrize("seed", range(3))
def test_norms_between_steps_without_a_gradient_are_no_spike(seed: int) -> None:
    """When half of the newest steps have none, the others are many times the median, and no more than ever."""
    assert anomalies(answered(seed)) == set()


@pytest.mark.parametrize("seed", range(3))
def test_norms_far_above_all_others_are_a_spike(seed: int) -> None:
    """Three within five steps, each ten times what the steps had that had a gradient; two of them meet by chance."""
    assert anomalies(answered(seed, 4.0, SPIKED)) == {SPIKED[0]}
    assert anomalies(answered(seed, 4.0, SPIKED[:2])) == set()


def test_a_norm_beside_a_loss_is_a_spike_at_the_second_step() -> None:
    """A loss says what the weights have become."""
    rows = [StepRow(at=3.0 * step, step=step, loss=2.0, gradient_norm=1.0) for step in range(60)]
    odd = [
        StepRow(at=180.0, step=60, loss=2.0, gradient_norm=9.0),
        StepRow(at=183.0, step=61, loss=30.0, gradient_norm=1.0),
    ]
    assert anomalies([*rows, *odd]) == {60}
    assert anomalies([*rows, odd[0], rows[-1], odd[0]._replace(step=62)]) == set()
