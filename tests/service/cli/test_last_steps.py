"""A log that ends before the last step that it announces, and a step that alone took long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.cli import run


def said(folder: Path, capsys: pytest.CaptureFixture[str], log: str) -> str:
    """Return what is said of a log, on one line."""
    (folder / "train.log").write_text(log, encoding="utf-8")
    assert run(["diagnose", str(folder)]) == 0
    return " ".join(capsys.readouterr().out.split())


def steps(last: int, form: str = "step {n}/3000 loss {loss:.4f} time {took:.2f}s\n", pause: int = -1) -> str:
    """Return a log of so many steps of a quarter of a second each."""
    return "".join(
        form.format(n=n, loss=2 + 1 / n, took=95.0 if n == pause else 0.25 + 0.01 * (n % 3)) for n in range(1, last + 1)
    )


@pytest.mark.parametrize(
    "form",
    ["step {n}/3000 loss {loss:.4f} time {took:.2f}s\n", "step {n} of 3000: loss {loss:.4f} {took:.2f} s/it\n"],
)
def test_a_log_that_ends_before_its_last_step_is_not_said_to_be_whole(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not show whether the job goes on; what does is asked for."""
    text = said(tmp_path, capsys, steps(249, form))
    assert "train.log ends at step 249 of 3,000" in text
    assert "stacks or dumps of every rank" in text
    assert "the launcher's output" in text


@pytest.mark.parametrize("log", [
    steps(3000),
    steps(249, "step {n} loss {loss:.4f} time {took:.2f}s\n"),
    *(steps(249) + end for end in (
        "Training completed successfully.\n", "exiting program at iteration 249\n", "early stopping: no improvement\n",
        "{'train_runtime': 248.2, 'train_loss': 2.3, 'epoch': 1.0}\n")),
    steps(249, "step {n} loss {loss:.4f} time {took:.2f}s mem {n}/8192 MiB\n"),
    steps(249, "step {n} epoch {n}/300 loss {loss:.4f} time {took:.2f}s\n"),
    steps(249, "step {n} loss {loss:.4f} time {took:.2f}s\n") + "uploaded 249/300 shards\n",
])  # fmt: skip
def test_a_log_that_announces_no_further_step_is_whole(
    log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The last step was taken, no number of all steps is given, or a line below may say that the job has ended."""
    assert "ends at step" not in said(tmp_path, capsys, log)


def test_a_step_that_alone_took_long_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is no slowdown, and no reason to say nothing."""
    text = said(tmp_path, capsys, steps(3000, pause=1200))
    assert "a pause of 95 s at step 1,200, once; the other steps take 0.26 s" in text
    assert "a pause" not in said(tmp_path, capsys, steps(3000))


def test_pauses_that_come_again_are_checkpoints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are as usual."""
    parts = [steps(3000, pause=n).splitlines(keepends=True)[n - 500 : n] for n in range(500, 3001, 500)]
    assert "a pause" not in said(tmp_path, capsys, "".join(line for part in parts for line in part))


def test_steps_that_are_not_in_a_log_are_no_pause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their time is that of many steps."""
    at = [datetime(2026, 11, 22, tzinfo=UTC) + timedelta(seconds=n) for n in range(1000)]
    log = "".join(f"{at[n]:%Y-%m-%d %H:%M:%S} step {n} loss 2.{n:03d}\n" for n in range(1000) if not 300 < n <= 400)
    assert "a pause" not in said(tmp_path, capsys, log)


def test_losses_that_were_no_number_for_some_steps_are_stated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are no fault where the loss is a number since; one who looks for them finds them."""
    lines = steps(400).splitlines(keepends=True)
    for number in range(199, 204):
        lines[number] = f"step {number + 1}/3000 loss nan time 0.25s\n"
    text = said(tmp_path, capsys, "".join(lines))
    assert "the loss was no number in 5 rows, first at step 200, and is one since step 205" in text
    assert "no number" not in said(tmp_path, capsys, steps(400))
