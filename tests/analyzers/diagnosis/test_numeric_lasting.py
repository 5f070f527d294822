"""What a loss or a norm became and stayed until the end of a log, and what is no such thing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest

from analyzers.diagnosis.numeric.lasting import skipped, unsure
from analyzers.diagnosis.numeric.numeric import analyze
from analyzers.model.topology import infer
from analyzers.model.window import Window
from collectors.records import STEP_COLUMNS, Steps
from service.cli import run
from service.packaged_knowledge import load

Course = Callable[[int], float]
COUNT = 700


def learned(step: int) -> float:
    """A loss as it falls."""
    return 2.0 + 8.0 / (1 + step / 30)


def falling(begin: float, end: float, rows: float = 60.0) -> Course:
    """Return a loss that falls to another within some rows."""
    return lambda n: end + (begin - end) * float(np.exp(-n / rows))


def then(first: Course, second: Course, since: int = 400) -> Course:
    """Return what goes on as another."""
    return lambda n: first(n) if n < since else second(n - since)


def steps(loss: Course, norm: Course | None = None, sigma: float = 0.02, seed: int = 3) -> Steps:
    """Return a log of these, with four decimals of the loss."""
    draws = random.Random(seed)
    noise = [draws.gauss(1.0, sigma) for _ in range(COUNT)]
    columns = {name: np.full(COUNT, np.nan if kind == "<f8" else 0, kind) for name, kind in STEP_COLUMNS.items()}
    columns["step"] = np.arange(COUNT)
    columns["loss"] = np.array([round(loss(step) * noise[step], 4) for step in range(COUNT)])
    if norm is not None:
        columns["gradient_norm"] = np.array([norm(step) * draws.gauss(1.0, 0.1) for step in range(COUNT)])
    bytes_of = {name: np.asarray(column, STEP_COLUMNS[name]).tobytes() for name, column in columns.items()}
    return Steps(source="train.log", count=COUNT, columns=bytes_of, told_by="plain")


def said(record: Steps) -> Sequence[str]:
    """Return what is said of a log."""
    window = Window.build([record])
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
    (text,) = said(steps(loss, norm))
    assert text.startswith(wanted)


SOUND: dict[str, tuple[Course, Course | None]] = {
    "a new mix of data": (lambda n: learned(n) + 0.9 * (n >= 400), None),
    "a curriculum": (lambda n: learned(n) + max(n - 200, 0) / 250, None),
    "a spike that passes": (lambda n: 11.0 if 400 <= n < 450 else learned(n), None),
    "a loss that is learned to zero": (lambda n: 2.0 * 0.98**n, None),
    "a policy's loss": (lambda n: 0.02 * np.sin(n), lambda n: 0.1 + 0.05 * np.sin(n / 9)),
    "a value's loss that grows with the reward": (lambda n: 0.05 + n / 1000, None),
    "a norm that falls from its warm-up": (learned, lambda n: 60.0 / (1 + n)),
    "a norm that grows slowly": (learned, lambda n: 0.3 + n / 200),
    "a norm that is zero now and then": (learned, lambda n: 0.0 if n % 3 else 0.2),
    "a norm that begins at zero weights": (learned, lambda n: 0.003 if n < 25 else min(0.01 + (n - 25) / 110, 0.9)),
    "a norm that grows evenly": (learned, lambda n: 0.05 * float(np.exp(6 * n / COUNT))),
    "a norm that grows evenly beyond all": (learned, lambda n: 0.5 * float(np.exp(11 * n / COUNT))),
    "fine-tuning as the second phase": (then(falling(2.4, 0.8), falling(2.6, 2.2)), None),
    "a second term of the loss": (then(falling(1.5, 0.2), lambda _: 0.75), None),
    "a term that sets in slowly": (then(falling(1.2, 0.1), lambda n: 0.1 + 0.5 * min(n / 100, 1.0)), None),
    "a schedule that begins again": (then(falling(2.3, 0.1), lambda _: 0.35), None),
    "a loss of values that grow": (then(lambda _: 0.012, lambda _: 0.05), None),
    "another temperature": (then(falling(4.0, 0.6), lambda _: 2.4), None),
    "a discriminator at chance": (then(falling(1.38, 0.32), lambda _: 1.3), None),
    "sums of larger batches": (then(falling(300, 80), falling(420, 330)), None),
    "a vocabulary that is learned anew": (then(falling(10.9, 2.4), falling(10.9, 2.4)), None),
    "a vocabulary that is learned anew, slowly": (then(falling(10.9, 2.4), falling(10.9, 5.0, 400.0)), None),
    "small numbers printed as zero": (then(falling(0.7, 0.0002, 8.0), lambda _: 0.00003), None),
    "a loss that is small from the first": (then(lambda _: 0.0008, lambda _: 0.00002), None),
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.parametrize("sigma", [0.005, 0.1])
def test_what_sound_training_prints_is_none(name: str, sigma: float) -> None:
    """Whatever the noise."""
    loss, norm = SOUND[name]
    for seed in range(3):
        record = steps(loss, norm, sigma, seed)
        assert not said(record)
        assert not list(unsure([record]))


def test_what_may_be_a_phase_is_no_fault() -> None:
    """A loss beyond that of the beginning, and small numbers that become zero: both are said."""
    (text,) = unsure([record := steps(then(falling(2.95, 2.2), lambda _: 10.9, 300))])
    assert text.startswith("the loss rises from 2.2")
    assert "at step 300, beyond the 2.9" in text
    assert not said(record)
    (text,) = unsure([record := steps(then(lambda _: 0.002, lambda _: 0.0), then(lambda _: 0.2, lambda _: 0.0))])
    assert text == "the loss and the gradient norm are exactly 0 since step 400, 300 rows until the end"
    assert not said(record)


def test_it_is_said_beside_no_fault_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what is not known of it."""
    course = then(falling(2.95, 2.2), lambda _: 10.9, 300)
    log = "".join(f"step {n} loss {course(n) + 0.01 * (n % 3):.4f} time 0.25s\n" for n in range(COUNT))
    (tmp_path / "train.log").write_text(log, encoding="utf-8")
    assert run(["diagnose", str(tmp_path)]) == 0
    said_of_it = " ".join(capsys.readouterr().out.split())
    assert "No fault found: 1 log, 700 steps; the loss rises from 2.2" in said_of_it
    assert "whether a setting or a new phase explains it" in said_of_it


@pytest.mark.parametrize("told_by", ["megatron", "plain"])
def test_steps_that_are_skipped_are_of_the_optimizer_by_its_own_rows(told_by: str) -> None:
    """A line between plain rows may be of a second optimizer."""
    record = steps(learned)
    record = msgspec.structs.replace(
        record,
        told_by=told_by,
        columns={**record.columns, "skipped": (np.arange(COUNT) >= 500).astype("<i1").tobytes()},
    )
    assert len(list(skipped([record]))) == (told_by == "megatron")
    assert (
        list(unsure([record]))
        == ["an optimizer skipped each step since step 500, 200 in a row"][told_by == "megatron" :]
    )
