"""Steps as people print them themselves: pairs of a name and a value, in any order and any unit."""

from __future__ import annotations

import math

import pytest

from collectors.formats.job_log.job_lines import peel
from collectors.formats.job_log.step_lines import read_step

OF_A_STEP = (
    "batch=40 loss=2.31 sec=0.25",
    "batch 7 of 100 loss 2.31 time 0.25s",
    "step 40 (0.25 s) loss 2.31",
    "step 40 loss 2.31 took 0.250s",
    "step=40 loss=2.31 step_time=0.25",
    "step=40 loss=2.31 step_time_ns=250000000",
    "step=40 loss=2.31 iter_ms=250",
    "step: 40, loss: 2.31, sec/step: 0.25",
    "step 40 loss 2.31 dt 250.00ms",
    "step 40 loss 2.31 time 250000000ns",
    "step 40 loss 2.31 fwd_time=0.1s bwd_time=0.14s step_time=0.25",
    'ts=2026-11-22T10:00:01Z level=info msg="train" step=40 loss=2.31 step_duration=250ms',
    "it 40/1000 loss 2.31 lr 1e-4 4.0 it/s",
)
WITHOUT_LOSS = (
    "step 40 (0.25 s)",
    "2026-11-22 10:00:01 INFO train: step 40/1000 took 0.250s",
    "Step 40 finished in 250 ms",
    "step=40 step_time=0.25 lr=1e-4",
    "it 40/1000 lr 1e-4 4.0 it/s",
    "batch 7 of 100 (0.25 s)",
)
NO_DURATION = (
    "step 40 loss 2.31 eval_time=0.25s",
    "step 40 loss 2.31 data_time=0.25",
    "step 40: loss 2.31 checkpoint time 12 s",
    "step 40 loss 2.31 forward took 0.1s",
    "step 40 loss 2.31 timestamp=1795341601.2",
    "step 40 loss 2.31 elapsed=360.0",
)
NO_STEP = (
    "saved checkpoint at step 40 took 12 s",
    "step 40: saving checkpoint took 12 s",
    "step 40: eval took 12 s",
    "Train time/batch: 40",
    "dispatch 40 took 3 s",
    "resuming from step 40 took 12 s",
    "warmup_steps=40 step_time=0.25",
    "step 40 of the installation (0.25 s)",
)


@pytest.mark.parametrize("text", [*OF_A_STEP, *WITHOUT_LOSS])
def test_a_step_has_its_duration_whatever_the_form(text: str) -> None:
    """Batches are counted anew with every epoch, and have no number."""
    found = read_step(peel(1, text))
    assert found is not None
    assert found.step == (-1 if "atch" in text else 40)
    assert found.seconds == pytest.approx(0.25)
    assert found.loss == pytest.approx(2.31 if text in OF_A_STEP else math.nan, nan_ok=True)


@pytest.mark.parametrize("text", NO_DURATION)
def test_what_something_else_took_is_no_duration_of_a_step(text: str) -> None:
    """Nor is what has elapsed since the start."""
    found = read_step(peel(1, text))
    assert found is not None
    assert math.isnan(found.seconds)


@pytest.mark.parametrize("text", NO_STEP)
def test_what_is_done_at_a_step_is_none(text: str) -> None:
    """A checkpoint takes long, and an evaluation changes no weight."""
    assert read_step(peel(1, text)) is None
