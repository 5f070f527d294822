"""Logs that were rotated are read as one."""

from __future__ import annotations

import gzip
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from service.cli import run


def lines(first: int, last: int, seconds: float) -> str:
    """Return the lines of some steps, which take so long, as they vary."""
    return "".join(
        f"step: {step} loss: 2.5 step_time: {seconds * (1 + 0.02 * (step % 3)):.3f}s\n"
        for step in range(first, last + 1)
    )


@pytest.mark.parametrize("older", ["train.log.1", "train.log-20261128.gz", "train.log.2026-11-28_23-05"])
def test_steps_that_are_longer_since_a_rotation_are_slow(
    older: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The usual length of a step is in the older part; the newest may have been compressed or not."""
    text = lines(1, 600, 1.0).encode()
    (tmp_path / older).write_bytes(gzip.compress(text) if older.endswith(".gz") else text)
    (tmp_path / "train.log").write_text(lines(601, 1_200, 1.5), encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "since step 601, 50 % longer than before" in said
    assert "in 1 step series" in said


def test_parts_of_a_sound_log_are_no_ranks_that_stopped_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three parts, of which each goes on where the one before it ends."""
    for name, first in (("train.log.2", 1), ("train.log.1", 101), ("train.log", 201)):
        (tmp_path / name).write_text(lines(first, first + 99, 1.0), encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 0
    assert "1 log, 300 steps" in capsys.readouterr().out.splitlines()[0]


def test_logs_whose_steps_overlap_are_of_several_processes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Numbers at the end may be those of ranks."""
    for number, last in ((0, 80), (1, 41), (2, 80)):
        (tmp_path / f"out.{number}").write_text(lines(1, last, 1.0), encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 3
    assert "out.1 ends at step 41" in " ".join(capsys.readouterr().out.split())


def test_a_part_whose_name_has_its_day_is_no_log_without_steps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its steps are those of the newest part."""
    for name, first in (("train-2026-11-22.log", 1), ("train-2026-11-23.log", 101)):
        (tmp_path / name).write_text(lines(first, first + 99, 1.0), encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1 log, 200 steps" in said.splitlines()[0]
    assert "no steps were recognised" not in said


@pytest.mark.parametrize("first", [1_001, 951])
def test_of_logs_that_follow_each_other_the_newest_counts(
    first: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Jobs that were submitted one after the other write logs of unlike names; the older, longer one was slow."""
    at, text = datetime(2026, 11, 22, tzinfo=UTC), dict[str, list[str]]({"train_run8.log": [], "train_run9.log": []})
    for name, steps in (("train_run8.log", range(1, 1_001)), ("train_run9.log", range(first, 1_601))):
        for step in steps:
            took = 1.5 if name.endswith("8.log") and step > 700 else 1.0 + 0.02 * (step % 3)
            at += timedelta(seconds=took)
            text[name].append(f"{at:%Y-%m-%d %H:%M:%S} step: {step} loss: 2.5 step_time: {took:.3f}s\n")
        (tmp_path / name).write_text("".join(text[name]), encoding="utf-8")

    assert run(["diagnose", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("No fault found: 1 log")
