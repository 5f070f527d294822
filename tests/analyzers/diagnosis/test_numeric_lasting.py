"""What a loss or a norm became and stayed until the end of a log, and what is no such thing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from analyzers.diagnosis.numeric.numeric import analyze
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import STEP_COLUMNS, Steps
from service.packaged_knowledge import load

Course = Callable[[int], float]
COUNT = 700


def learned(step: int) -> float:
    """A loss as it falls."""
    return 2.0 + 8.0 / (1 + step / 30)


def said(loss: Course, norm: Course | None = None, sigma: float = 0.02, seed: int = 3) -> Sequence[str]:
    """Return what is said of a log of these."""
    draws = random.Random(seed)
    noise = [draws.gauss(1.0, sigma) for _ in range(COUNT)]
    columns = {name: np.full(COUNT, np.nan if kind == "<f8" else 0, kind) for name, kind in STEP_COLUMNS.items()}
    columns["step"] = np.arange(COUNT)
    columns["loss"] = np.array([loss(step) * noise[step] for step in range(COUNT)])
    if norm is not None:
        columns["gradient_norm"] = np.array([norm(step) * draws.gauss(1.0, 0.1) for step in range(COUNT)])
    bytes_of = {name: np.asarray(column, STEP_COLUMNS[name]).tobytes() for name, column in columns.items()}
    window = Window.build([Steps(source="train.log", count=COUNT, columns=bytes_of, told_by="plain")])
    return [one.evidence[0].text for one in analyze(window, infer(window), load())]


FOUND: dict[str, tuple[Course, Course | None, str]] = {
    "back at the beginning": (lambda n: 10.9 if n >= 300 else learned(n), None, "the loss rises from"),
    "little by little": (
        lambda n: min(10.8, 2.3 + (n - 300) / 8) if n >= 300 else learned(n), None, "the loss rises from"
    ),
    "a norm without end": (
        learned, lambda n: 0.8 * 1.05 ** max(n - 300, 0), "the gradient norm is"
    ),
    "nothing": (
        lambda n: 0.0 if n >= 600 else learned(n), lambda n: 0.0 if n >= 600 else 0.8,
        "the loss and the gradient norm are exactly 0 since step 600",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_what_lasts_until_the_end_is_found(name: str) -> None:
    """No device is named."""
    loss, norm, wanted = FOUND[name]
    (text,) = said(loss, norm)
    assert text.startswith(wanted)


SOUND: dict[str, tuple[Course, Course | None]] = {
    "a new mix of data": (lambda n: learned(n) + 0.9 * (n >= 400), None),
    "a curriculum": (lambda n: learned(n) + max(n - 200, 0) / 250, None),
    "a spike that passes": (lambda n: 11.0 if 400 <= n < 450 else learned(n), None),
    "a loss that is learned to zero": (lambda n: round(2.0 * 0.98**n, 4), None),
    "a policy's loss": (lambda n: 0.02 * np.sin(n), lambda n: 0.1 + 0.05 * np.sin(n / 9)),
    "a value's loss that grows with the reward": (lambda n: 0.05 + n / 1000, None),
    "a norm that falls from its warm-up": (learned, lambda n: 60.0 / (1 + n)),
    "a norm that grows slowly": (learned, lambda n: 0.3 + n / 200),
    "a norm that is zero now and then": (learned, lambda n: 0.0 if n % 3 else 0.2),
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("sigma", [0.005, 0.1])
def test_what_sound_training_prints_is_none(name: str, sigma: float) -> None:
    """Whatever the noise."""
    loss, norm = SOUND[name]
    for seed in range(3):
        assert not said(loss, norm, sigma, seed)
