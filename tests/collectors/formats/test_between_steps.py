"""Lines between steps: DeepSpeed says that a step was skipped, and an evaluation takes time that is no step's."""

from __future__ import annotations

from array import array
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.files.reading import read_paths
from collectors.records import Steps
from service.cli import run

SAYS = "[2026-11-22 10:11:40,123] [INFO] [loss_scaler.py:190:update_scale] [deepspeed] OVERFLOW! Rank 0 Skipping step. "


def log(skipped: range, scale: str, count: int = 300) -> str:
    """Return a log of steps, of which some are skipped."""
    of = f"{SAYS}Attempted loss scale: {scale}, reducing to {scale}\n"
    return "".join(f"{of * (n in skipped)}step {n} loss {2 + 1 / (n + 1):.4f} time 1.{n % 7}0s\n" for n in range(count))


def diagnosed(log: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what is said of a log, on one line."""
    (folder / "train.log").write_text(log, encoding="utf-8")
    run(["diagnose", str(folder)])
    return " ".join(capsys.readouterr().out.split())


def test_a_step_below_such_a_line_is_skipped(tmp_path: Path) -> None:
    """The others are not."""
    (tmp_path / "train.log").write_text(log(range(40, 44), "32768"), encoding="utf-8")
    (found,) = [one for one in read_paths([tmp_path]) if isinstance(one, Steps)]
    assert [n for n, was in enumerate(array("b", found.columns["skipped"])) if was] == [40, 41, 42, 43]


@pytest.mark.parametrize(
    ("skipped", "scale", "is_found"),
    [(range(220, 300), "32768", False), (range(280, 300), "1", True), (range(280, 300), "32768", False),
     (range(100, 300, 2), "1024", False), (range(20), "65536", False)],
)  # fmt: skip
def test_a_job_that_skips_every_step_is_not_without_fault(
    skipped: range, scale: str, is_found: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A loss scale that is sought is no fault, one that can fall no further is; skips without end may be a second optimizer's."""
    said = diagnosed(log(skipped, scale), tmp_path, capsys)
    assert ("No fault found" not in said) == is_found
    assert ("an optimizer skipped each step since step 220, 80 in a row" in said) == (len(skipped) == 80)
    assert "Evict node" not in said


@pytest.mark.parametrize("is_slow", [True, False])
def test_evaluations_that_begin_late_are_no_longer_steps(
    is_slow: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their lines show when they end; steps that became longer beside them are found."""
    at, lines = datetime(2026, 11, 22, 10, tzinfo=UTC), list[str]()
    for step in range(1, 3001):
        at += timedelta(seconds=1.4 if is_slow and step > 2000 else 1.0 + 0.001 * (step % 7))
        lines.append(f"{at:%Y-%m-%d %H:%M:%S} INFO step {step} loss 2.{step % 90 + 10}")
        if step >= 1500 and step % 20 == 0:
            lines.append(f"{at:%Y-%m-%d %H:%M:%S} INFO Running validation")
            at += timedelta(seconds=60)
            lines.append(f"{at:%Y-%m-%d %H:%M:%S} INFO validation loss 2.41 at step {step}")
    said = diagnosed("\n".join(lines) + "\n", tmp_path, capsys)
    assert ("1.39 s since step 2,0" in said) if is_slow else said.startswith("No fault found")


@pytest.mark.parametrize("is_slow", [True, False])
@pytest.mark.parametrize("between", [
    "INFO step {n}: reward evaluation done, mean 0.41", "DEBUG [qwen-test-7b] step {n} batch ready",
    "INFO val_loss tracker updated at step {n}", "INFO validation loss 2.41 at step {n}",
])  # fmt: skip
def test_a_line_below_each_step_is_no_evaluation(
    between: str, is_slow: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever it says, and be it beside the first steps alone: a step begins with the one before it."""
    at, lines = datetime(2026, 11, 22, 10, tzinfo=UTC), list[str]()
    for step in range(1, 1201):
        longer = 2.5 if is_slow and step > 700 else 0.0
        at += timedelta(seconds=0.5 + longer + 0.001 * (step % 7))
        if is_slow or step <= 500:
            lines.append(f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} {between.format(n=step)}")
        at += timedelta(seconds=0.5)
        lines.append(f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} INFO step {step}: loss 2.{step % 90 + 10}")
    said = diagnosed("\n".join(lines) + "\n", tmp_path, capsys)
    assert ("since step 701" in said) if is_slow else said.startswith("No fault found")
